//! `--format` of summaries and comparisons.

/// How text is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    // Not doc comments: clap would print each option in two lines.
    #[default]
    Text,
    Markdown,
}

impl From<Form> for terminal::Form {
    fn from(form: Form) -> Self {
        match form {
            Form::Text => Self::Text,
            Form::Markdown => Self::Markdown,
        }
    }
}
