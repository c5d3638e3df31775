//! Rules that say which functions name a phase: a table, and what users add to it.

use model::event::{FrameKind, NamedFrame};
use text::{pattern::Glob, short::split_place};

/// What is known of libraries.
const KNOWN: &str = include_str!("rules.txt");

/// Rules, the first that matches wins.
#[derive(Debug)]
pub struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    phase: String,
    function: Function,
    /// The source file of a Python function.
    file: Option<Glob>,
}

#[derive(Debug)]
enum Function {
    /// A word between underscores.
    Word(String),
    Name(Glob),
}

/// Why rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line has too few or too many words.
    #[error("line {0}: expected PHASE FUNCTION [FILE]")]
    Words(usize),
    /// A pattern is invalid.
    #[error("line {line}: {error}")]
    Pattern {
        /// The number of the line.
        line: usize,
        /// What is wrong with it.
        error: text::pattern::Error,
    },
}

impl Rules {
    /// Parses the rules of a user, which come first, and adds the table.
    pub fn new(of_user: &str) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for text in [of_user, KNOWN] {
            for (number, line) in text.lines().enumerate() {
                rules.extend(Rule::parse(line, number + 1)?);
            }
        }
        Ok(Self(rules))
    }

    /// Returns the phase that a function names.
    pub fn phase(&self, frame: &NamedFrame) -> Option<&str> {
        let function = function(frame);
        self.0.iter().find(|rule| rule.matches(function, frame)).map(|rule| rule.phase.as_str())
    }

    /// Returns all phases, each once.
    pub fn phases(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.0.iter().map(|rule| rule.phase.as_str()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Rule {
    fn parse(line: &str, number: usize) -> Result<Option<Self>, Error> {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let glob = |text: &str| Glob::parse(text).map_err(|error| Error::Pattern { line: number, error });
        let (phase, name, file) = match words[..] {
            [] => return Ok(None),
            [phase, name] => (phase, name, None),
            [phase, name, file] if file.contains('/') => (phase, name, Some(glob(file)?)),
            [phase, name, file] => (phase, name, Some(glob(&format!("*/{file}"))?)),
            _ => return Err(Error::Words(number)),
        };
        let function = match name.strip_prefix("word:") {
            Some(word) => Function::Word(word.to_owned()),
            None => Function::Name(glob(name)?),
        };
        Ok(Some(Self { phase: phase.to_owned(), function, file }))
    }

    fn matches(&self, function: &str, frame: &NamedFrame) -> bool {
        let is_function = match &self.function {
            Function::Word(word) => function.split('_').any(|part| part == word),
            Function::Name(glob) => glob.matches(function),
        };
        let is_file = |file: &Glob| {
            frame.kind == FrameKind::Python
                && (file.matches(&frame.module) || file.matches(&format!("/{}", frame.module)))
        };
        is_function && self.file.as_ref().is_none_or(is_file)
    }
}

/// Returns the function of a frame, without its class, its arguments and its line.
fn function(frame: &NamedFrame) -> &str {
    let name = split_place(&frame.name).0;
    let name = name.split_once('(').map_or(name, |(name, _)| name);
    name.rsplit(['.', ':']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, file: &str) -> NamedFrame {
        let kind = if file.ends_with(".py") { FrameKind::Python } else { FrameKind::Native };
        NamedFrame { kind, name: name.into(), module: file.into() }
    }

    /// Check that rules of a user come before the table, and add phases.
    #[test]
    fn users_add_rules() {
        let rules = Rules::new("sampling  sample_*  engine.py # by name\n\ndecode forward").expect("rules");
        let phase = |name: &str, file: &str| rules.phase(&frame(name, file)).map(str::to_owned);
        assert_eq!(phase("Engine.sample_tokens (engine.py:4)", "/srv/engine.py").as_deref(), Some("sampling"));
        assert_eq!(phase("sample_tokens (engine.py:4)", "engine.py").as_deref(), Some("sampling"));
        assert_eq!(phase("sample_tokens (other.py:4)", "/srv/other.py"), None);
        assert_eq!(phase("net::forward(int)", "app").as_deref(), Some("decode"));
        assert_eq!(phase("backward (a.py:1)", "/a.py").as_deref(), Some("backward"));
        assert!(rules.phases().contains(&"sampling"));
    }

    /// Check that a mistake is reported with its line.
    #[test]
    fn mistakes_have_lines() {
        let error = |text: &str| Rules::new(text).map(|_| ()).expect_err("a mistake").to_string();
        assert_eq!(error("# nothing\nforward"), "line 2: expected PHASE FUNCTION [FILE]");
        assert!(error("decode [").starts_with("line 1: "));
    }
}
