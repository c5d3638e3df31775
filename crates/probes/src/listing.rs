//! Counts functions by the cost of probing them: for `trace --list` and `-v`.

use std::fmt;

use crate::{Cost, Function};

/// Functions by the cost of their site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// At a 5-byte nop.
    pub nop5: usize,
    /// At an instruction that the kernel emulates.
    pub emulated: usize,
    /// At an instruction that must be single-stepped.
    pub stepped: usize,
    /// Not probeable.
    pub refused: usize,
}

/// Counts functions by cost.
pub fn summary<'a>(functions: impl IntoIterator<Item = &'a Function>) -> Summary {
    let mut summary = Summary::default();
    for function in functions {
        *match function.site.cost {
            Cost::Nop5 => &mut summary.nop5,
            Cost::Emulated => &mut summary.emulated,
            Cost::Stepped => &mut summary.stepped,
            Cost::Refused => &mut summary.refused,
        } += 1;
    }
    summary
}

impl Summary {
    /// Adds other functions.
    pub fn add(&mut self, other: &Self) {
        self.nop5 += other.nop5;
        self.emulated += other.emulated;
        self.stepped += other.stepped;
        self.refused += other.refused;
    }

    /// Returns the total.
    pub fn total(&self) -> usize {
        self.nop5 + self.emulated + self.stepped + self.refused
    }
}

/// "443 functions: 443 emulated"; costs with no functions are omitted.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        write!(f, "{total} function{}", if total == 1 { "" } else { "s" })?;
        let counts = [
            (self.nop5, "at a 5-byte nop"),
            (self.emulated, "emulated"),
            (self.stepped, "single-stepped"),
            (self.refused, "that cannot be probed"),
        ];
        let mut mark = ": ";
        for (count, what) in counts.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, "{mark}{count} {what}")?;
            mark = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;

    /// Check that counts add up and are formatted.
    #[test]
    fn costs_are_counted() {
        let function = |cost| Function {
            name: "f".into(),
            aliases: Vec::new(),
            offset: 0,
            size: 1,
            site: Site { offset: 0, cost },
        };
        let functions = [Cost::Emulated, Cost::Emulated, Cost::Stepped, Cost::Refused].map(function);
        let all = summary(&functions);
        assert_eq!(all, Summary { nop5: 0, emulated: 2, stepped: 1, refused: 1 });
        assert_eq!(all.to_string(), "4 functions: 2 emulated, 1 single-stepped, 1 that cannot be probed");
        assert_eq!(summary(&functions[..1]).to_string(), "1 function: 1 emulated");
        assert_eq!(summary([]).to_string(), "0 functions");
    }
}
