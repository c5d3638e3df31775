//! One function, or several, as a user names them: by the symbol, by the demangled name with or without its parameters, or
//! by a glob over either.

use crate::{Error, pattern::Glob};

/// What a user calls a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    text: String,
    glob: Option<Glob>,
}

impl Wanted {
    /// Reads a name or a glob.
    pub fn parse(text: &str) -> Result<Self, Error> {
        // `operator[]` and `operator*` are names. A glob with such a word in it must be written for the symbol.
        let is_glob = text.contains(['*', '?', '[']) && !text.contains("operator");
        let glob = if is_glob { Some(Glob::parse(text)?) } else { None };
        Ok(Self { text: text.to_owned(), glob })
    }

    /// As the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// It may mean several functions.
    pub fn is_glob(&self) -> bool {
        self.glob.is_some()
    }

    /// Whether the function with this symbol is meant. Only symbols that are mangled are demangled.
    pub fn takes(&self, symbol: &str, demangle: impl Fn(&str) -> String) -> bool {
        if self.is(symbol) {
            return true;
        }
        (symbol.starts_with("_Z") || symbol.starts_with("_R")) && self.is(&demangle(symbol))
    }

    fn is(&self, name: &str) -> bool {
        let without_parameters = name.find('(').map(|at| &name[..at]);
        match &self.glob {
            Some(glob) => glob.matches(name) || without_parameters.is_some_and(|name| glob.matches(name)),
            None => name.strip_prefix(self.text.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('(')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(wanted: &str, symbol: &str) -> bool {
        let demangle = |symbol: &str| match symbol {
            "_Z3runi" => "work::run(int)".to_owned(),
            "_Zcl" => "A::operator()(int)".to_owned(),
            other => other.to_owned(),
        };
        Wanted::parse(wanted).expect("a name").takes(symbol, demangle)
    }

    /// Check that a function is found by its symbol, its whole name, its name without parameters, and globs of them.
    #[test]
    fn names() {
        for wanted in ["_Z3runi", "work::run(int)", "work::run", "work::*", "*run", "_Z3*", "w?rk::run(int)"] {
            assert!(takes(wanted, "_Z3runi"), "{wanted}");
        }
        for wanted in ["work", "run", "work::ru", "work::run(", "work::run(long)", "*walk*"] {
            assert!(!takes(wanted, "_Z3runi"), "{wanted}");
        }
        assert!(takes("A::operator()", "_Zcl") && takes("A::operator()(int)", "_Zcl"));
        assert!(takes("malloc", "malloc") && !takes("malloc", "malloc_usable_size"));
        assert!(takes("malloc*", "malloc_usable_size"));
        assert!(Wanted::parse("[").is_err());
    }
}
