//! Text that is read elsewhere than on a terminal, in a log or a pull request: plain, or as Markdown. Neither depends on the
//! terminal.

use text::{names::printable, short::cut};

/// The columns of plain text.
const WIDTH: usize = 160;

/// How a document is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Plain lines.
    #[default]
    Text,
    /// GitHub's Markdown.
    Markdown,
}

/// A document.
pub(crate) struct Document {
    form: Form,
    text: String,
}

impl Document {
    pub(crate) fn new(form: Form) -> Self {
        Self { form, text: String::new() }
    }

    /// Adds the title: a name.
    pub(crate) fn title(&mut self, title: &str) {
        match self.form {
            Form::Text => self.line(title),
            Form::Markdown => self.push(&format!("### {}\n", code(title))),
        }
    }

    /// Adds the title: our own words.
    pub(crate) fn verdict(&mut self, verdict: &'static str) {
        match self.form {
            Form::Text => self.push(verdict),
            Form::Markdown => self.push(&format!("### {verdict}\n")),
        }
    }

    /// Begins a section.
    pub(crate) fn section(&mut self, title: &str) {
        match self.form {
            Form::Text => self.push(&format!("\n{title}")),
            Form::Markdown => {
                self.push(&format!("{}**{title}**\n", if self.text.ends_with("\n\n") { "" } else { "\n" }));
            }
        }
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, text: &str) {
        match self.form {
            Form::Text => self.push(&cut(&printable(text), WIDTH)),
            Form::Markdown => self.push(&format!("{}\n", escaped(text))),
        }
    }

    /// Adds an item of a list, and what is below it.
    pub(crate) fn item(&mut self, text: &str, below: &[String]) {
        let (bullet, indent) = match self.form {
            Form::Text => ("  ", "      "),
            Form::Markdown => ("- ", "  - "),
        };
        for (start, text) in [(bullet, text)].into_iter().chain(below.iter().map(|text| (indent, text.as_str()))) {
            match self.form {
                Form::Text => self.push(&format!("{start}{}", cut(&printable(text), WIDTH - start.len()))),
                Form::Markdown => self.push(&format!("{start}{}", escaped(text))),
            }
        }
    }

    /// Adds a table: numbers, then a name.
    pub(crate) fn table(&mut self, columns: &[&str], rows: &[(Vec<String>, String)]) {
        let (name, numbers) = columns.split_last().unwrap_or((&"", &[]));
        if self.form == Form::Markdown {
            self.push(&format!("| {} | {name} |", numbers.join(" | ")));
            self.push(&format!("|{}---|", "---:|".repeat(numbers.len())));
            for (cells, name) in rows {
                let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
                self.push(&format!("| {} | {} |", cells.join(" | "), code(name).replace('|', "\\|")));
            }
            return;
        }
        let width = |at: usize| {
            let cells = rows.iter().map(|(cells, _)| cells[at].chars().count());
            cells.chain([columns[at].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..numbers.len()).map(width).collect();
        let mut line = |cells: &[&str], name: &str| {
            let cells: String = cells.iter().zip(&widths).map(|(cell, width)| format!("  {cell:>width$}")).collect();
            let room = WIDTH.saturating_sub(cells.chars().count() + 2);
            self.push(&format!("{cells}  {}", cut(&printable(name), room)));
        };
        line(numbers, name);
        for (cells, name) in rows {
            line(&cells.iter().map(String::as_str).collect::<Vec<_>>(), name);
        }
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
        self.text
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line.trim_end_matches(' '));
        self.text.push('\n');
    }
}

/// Returns text in which nothing is Markdown, HTML, a link or a mention: it may contain names from programs.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    // A word joiner ends a link or a mention before it begins.
    let text = cut(&printable(text), 400).replace("://", ":\u{2060}//").replace("www.", "www\u{2060}.");
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '@' => out.push_str("@\u{2060}"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '#' | '|' | '~' | '!' => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out
}

/// Returns a name as code, in which nothing else is Markdown.
fn code(text: &str) -> String {
    format!("`{}`", cut(&printable(text), 200).replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name cannot become Markdown, HTML, a link or a mention.
    #[test]
    fn names_are_no_markdown() {
        let name = "a|<img src=x>\n# @team [x](https://e.com) *b* __c__ \u{202e}";
        let mut document = Document::new(Form::Markdown);
        document.line(name);
        document.item(name, &[name.to_owned()]);
        document.table(&["time", "name"], &[(vec!["1 s".into()], name.into())]);
        let text = document.finish();
        let outside: String = text.split('`').step_by(2).collect();
        for active in ["<img", "@t", "https:/", " *b", "(x", "\n#"] {
            assert!(!outside.contains(active), "{active}: {text}");
        }
        assert!(!text.contains('\u{202e}'), "{text}");
        let row = text.lines().last().unwrap_or_default();
        assert_eq!(row.replace("\\|", "").matches('|').count(), 3, "{row}");
        assert_eq!(code("a`b"), "`a'b`");
    }

    /// Check that plain text has the same width everywhere, and columns that are aligned.
    #[test]
    fn plain_text_is_aligned() {
        let mut document = Document::new(Form::Text);
        document.table(
            &["time", "runs", "name"],
            &[(vec!["1 s".into(), "10".into()], "x".repeat(300)), (vec!["100 ms".into(), "2".into()], "b".into())],
        );
        let text = document.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[2]), ("    time  runs  name", "  100 ms     2  b"));
        assert_eq!(lines[1].chars().count(), WIDTH);
    }
}
