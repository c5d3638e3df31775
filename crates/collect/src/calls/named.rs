//! Functions named by the user: `--uprobe LIBRARY:PATTERN`.

use std::{cell::RefCell, fs::File, path::PathBuf};

use anyhow::bail;
use elf::Budget;
use probes::Function;
use text::{did_you_mean, pattern::Glob};

/// The most functions of one pattern.
const MOST: usize = 1000;

/// Functions of one library or program, selected by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The library, by path or by the beginning of its file name.
    pub library: PathBuf,
    pattern: String,
    glob: Glob,
}

impl Named {
    /// Parses `LIBRARY:PATTERN`. C++ and Rust names contain `::`, so the separator is the last single colon.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let alone = |at: usize| {
            let colon = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)) == Some(&b':');
            colon(Some(at)) && !colon(at.checked_sub(1)) && !colon(Some(at + 1))
        };
        match (0..text.len()).rev().find(|at| alone(*at)).map(|at| (&text[..at], &text[at + 1..])) {
            Some((library, pattern)) if !library.is_empty() && !pattern.is_empty() => {
                Ok(Self { library: library.into(), pattern: pattern.into(), glob: Glob::parse(pattern)? })
            }
            _ => {
                bail!("--uprobe expects LIBRARY:PATTERN, such as ./libfoo.so:work or ./app:'ns::Model::*', not {text}")
            }
        }
    }

    /// Selects functions of one program.
    pub fn of(program: &str, pattern: &str) -> anyhow::Result<Self> {
        Ok(Self { library: program.into(), pattern: pattern.into(), glob: Glob::parse(pattern)? })
    }

    /// Returns the pattern as the user wrote it.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether the pattern matches the function shown by this name.
    pub fn matches(&self, name: &str) -> bool {
        self.matches_symbol(name, name)
    }

    /// Returns the matching functions of a file, each with the name to show.
    pub fn find(&self, file: &File, path: &str, budget: &Budget) -> anyhow::Result<Vec<(String, Function)>> {
        if let Some(function) = probes::find(file, &self.pattern, budget)? {
            return Ok(vec![(self.pattern.clone(), function)]);
        }
        let names = RefCell::new(Vec::new());
        let wanted = |symbol: &str| {
            let name = symbols::demangle(symbol);
            let wanted = self.matches_symbol(symbol, &name);
            names.borrow_mut().push(without_arguments(&name).to_owned());
            wanted
        };
        let found = probes::matching(file, wanted, budget)?;
        if found.is_empty() {
            let names = names.into_inner();
            let near = text::near(names.iter().map(String::as_str), &self.pattern);
            bail!("{path} has no function {}{}", self.pattern, did_you_mean(&near));
        }
        if found.len() > MOST {
            bail!(
                "{path} has {} functions matching {}, more than the limit of {MOST}: use a narrower pattern",
                found.len(),
                self.pattern
            );
        }
        let shown = |function: &Function| {
            let matches = function.names().find(|symbol| self.matches_symbol(symbol, &symbols::demangle(symbol)));
            symbols::demangle(matches.unwrap_or(&function.name))
        };
        Ok(found.into_iter().map(|function| (shown(&function), function)).collect())
    }

    /// Whether the symbol, its demangled name, or the latter without arguments matches.
    fn matches_symbol(&self, symbol: &str, name: &str) -> bool {
        [symbol, name, without_arguments(name)].into_iter().any(|name| self.glob.matches(name))
    }
}

/// Returns `ns::f(int (*)(char)) const` without its last pair of parentheses and what follows.
fn without_arguments(name: &str) -> &str {
    let Some(end) = name.rfind(')') else { return name };
    let mut open = 0;
    for (at, byte) in name.as_bytes()[..=end].iter().enumerate().rev() {
        match byte {
            b')' => open += 1,
            b'(' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return if at == 0 { name } else { &name[..at] };
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that paths may contain colons, and names pairs of them.
    #[test]
    fn libraries_and_patterns_are_split_at_the_last_single_colon() {
        for (text, library, pattern) in [
            ("libc.so.6:malloc", "libc.so.6", "malloc"),
            ("./a:ns::Model::*", "./a", "ns::Model::*"),
            ("/odd:path/a.so:f", "/odd:path/a.so", "f"),
            ("a.so:f<int, ns::T>", "a.so", "f<int, ns::T>"),
        ] {
            let named = Named::parse(text).expect(text);
            assert_eq!((named.library.to_str(), named.pattern.as_str()), (Some(library), pattern));
        }
        for text in ["", "malloc", ":f", "libc.so.6:", "ns::f", "a.so:["] {
            assert!(Named::parse(text).is_err(), "{text}");
        }
    }

    /// Check that a pattern matches the symbol, the demangled name, and the name without arguments.
    #[test]
    fn patterns_match_symbols_and_demangled_names() {
        let matches_symbol = |pattern: &str, symbol: &str| {
            let named = Named::parse(&format!("a.so:{pattern}")).expect("a pattern");
            named.matches_symbol(symbol, &symbols::demangle(symbol))
        };
        let symbol = "_ZNK2ns5Model4stepEiPFvcE";
        assert_eq!(symbols::demangle(symbol), "ns::Model::step(int, void (*)(char)) const");
        for pattern in ["ns::Model::*", "ns::Model::step", "*::step(int,*", "_ZNK2ns5Model*", "*"] {
            assert!(matches_symbol(pattern, symbol), "{pattern}");
        }
        for pattern in ["ns::Model", "step", "ns::Model::step(int)", "ns::model::*"] {
            assert!(!matches_symbol(pattern, symbol), "{pattern}");
        }
        assert!(matches_symbol("work", "work") && !matches_symbol("work", "worker"));
    }

    /// Check that the last pair of parentheses is removed as the arguments.
    #[test]
    fn arguments_are_removed() {
        for (name, expected) in [
            ("f", "f"),
            ("f()", "f"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("f(int)::{lambda()#1}::operator()(char) const", "f(int)::{lambda()#1}::operator()"),
            ("(anonymous)", "(anonymous)"),
            ("broken)", "broken)"),
        ] {
            assert_eq!(without_arguments(name), expected);
        }
    }
}
