//! Splits a function's name at its brackets.

/// Text that looks like brackets but is not. Longer ones come before their prefixes.
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
/// More deeply nested brackets are omitted.
const DEEPEST: usize = 24;

/// A piece of a name.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    /// The text between `<` and `>`, separated by commas.
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

/// Returns the parts of a name; `None` if its brackets are unbalanced.
pub(super) fn parse(name: &str) -> Option<Vec<Part>> {
    Parser { rest: name }.name(0)
}

/// Parses a name.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (front, rest) = self.rest.split_at(length);
        self.rest = rest;
        front
    }

    /// Parses a name up to its end: the end of the text or, within brackets, a comma or the closing bracket, which is
    /// not consumed. `None` if brackets are unbalanced.
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
                        // The function's own arguments, and everything after them.
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

    /// Parses the text between `<` and `>`.
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

    /// Skips brackets and everything between them.
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

    /// Skips what may be between a function's arguments and the `::` of a nested name.
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

/// Converts `{lambda(int)#1}` to `{lambda#1}`.
fn without_arguments(braces: &str) -> String {
    match (braces.find('('), braces.rfind(')')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &braces[..open], &braces[close + 1..]),
        _ => braces.to_owned(),
    }
}
