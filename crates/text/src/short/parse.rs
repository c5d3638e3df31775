//! A function's name taken apart at its brackets.

/// What looks like brackets and is none. Longer ones come before those they begin with.
const NOT_BRACKETS: [&str; 20] = [
    "(anonymous namespace)",
    "operator()",
    "operator<=>",
    "operator<<=",
    "operator<<",
    "operator<=",
    "operator<",
    "operator>>=",
    "operator>>",
    "operator>=",
    "operator->*",
    "operator->",
    "operator>",
    "->",
    "<module>",
    "<lambda>",
    "<locals>",
    "<listcomp>",
    "<dictcomp>",
    "<genexpr>",
];
/// Brackets nested deeper than this are left out.
const DEEPEST: usize = 24;

/// A piece of a name.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    /// What stands between `<` and `>`, parted by commas.
    Between(Vec<Vec<Part>>),
}

impl Part {
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Between(names) => names.len(),
        }
    }
}

/// The parts of a name; `None` if its brackets do not match.
pub(super) fn parse(name: &str) -> Option<Vec<Part>> {
    Parser { rest: name }.name(0)
}

/// Takes a name apart.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// A name up to its end: that of the text, or within brackets a comma or the closing one, which is left. `None` if brackets
    /// do not match.
    fn name(&mut self, depth: usize) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        let mut text = String::new();
        while let Some(c) = self.rest.chars().next() {
            if let Some(literal) = NOT_BRACKETS.iter().find(|literal| self.rest.starts_with(**literal)) {
                text.push_str(self.take(literal.len()));
                continue;
            }
            match c {
                '<' => {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(Part::Between(self.between(depth)?));
                }
                '>' if depth == 0 => return None,
                '>' | ',' if depth > 0 => break,
                '(' => {
                    let starts = text.is_empty() || text.ends_with("::") || text.ends_with(' ');
                    self.skip('(', ')')?;
                    self.skip_qualifiers();
                    let goes_on = self.rest.starts_with("::");
                    match () {
                        // `f(int)::{lambda()#1}`: f's arguments.
                        () if goes_on => {}
                        // `(int)4`: a cast.
                        () if starts
                            && depth > 0
                            && !self.rest.is_empty()
                            && !self.rest.starts_with([',', '>', ' ']) => {}
                        // The function's own arguments, and what follows them.
                        () if depth == 0 && !(text.is_empty() && parts.is_empty()) => self.rest = "",
                        () => text.push_str("(…)"),
                    }
                }
                '{' => {
                    let whole = self.rest;
                    self.skip('{', '}')?;
                    text.push_str(&without_arguments(&whole[..whole.len() - self.rest.len()]));
                }
                _ => text.push_str(self.take(c.len_utf8())),
            }
        }
        parts.push(Part::Text(text));
        Some(parts)
    }

    /// What stands between `<` and `>`.
    fn between(&mut self, depth: usize) -> Option<Vec<Vec<Part>>> {
        if depth >= DEEPEST {
            self.skip('<', '>')?;
            return Some(vec![vec![Part::Text("…".to_owned())]]);
        }
        let mut names = Vec::new();
        // First the opening bracket, then each comma.
        loop {
            self.take(1);
            names.push(self.name(depth + 1)?);
            match self.rest.as_bytes().first()? {
                b',' => {}
                _ => break,
            }
        }
        self.take(1);
        Some(names)
    }

    /// Passes over brackets and all between them.
    fn skip(&mut self, open: char, close: char) -> Option<()> {
        let mut depth = 0_usize;
        for (at, c) in self.rest.char_indices() {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    self.take(at + c.len_utf8());
                    return Some(());
                }
            }
        }
        None
    }

    /// What may stand between a function's arguments and the `::` of something within it.
    fn skip_qualifiers(&mut self) {
        let before = self.rest;
        for qualifier in [" const", " volatile", " &&", " &", "&&", "&"] {
            if let Some(rest) = self.rest.strip_prefix(qualifier) {
                self.rest = rest;
            }
        }
        if !self.rest.starts_with("::") {
            self.rest = before;
        }
    }
}

/// `{lambda(int)#1}` as `{lambda#1}`.
fn without_arguments(braces: &str) -> String {
    match (braces.find('('), braces.rfind(')')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &braces[..open], &braces[close + 1..]),
        _ => braces.to_owned(),
    }
}
