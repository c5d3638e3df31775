//! Patterns for names.

use text::pattern::{Error, Glob};

/// Patterns, of which one must match: a part of the name, or a glob.
pub struct Patterns {
    parts: Vec<String>,
    globs: Vec<Glob>,
}

impl Patterns {
    /// Parses patterns.
    pub fn parse(patterns: &[String]) -> Result<Self, Error> {
        let (globs, parts): (Vec<&String>, Vec<&String>) =
            patterns.iter().partition(|pattern| pattern.contains(['*', '?', '[']));
        let globs = globs.into_iter().map(|pattern| Glob::parse(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { parts: parts.into_iter().cloned().collect(), globs })
    }

    /// Whether one matches.
    pub fn matches(&self, name: &str) -> bool {
        self.parts.iter().any(|part| name.contains(part.as_str())) || self.globs.iter().any(|glob| glob.matches(name))
    }
}
