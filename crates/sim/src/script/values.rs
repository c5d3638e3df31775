//! The values of a script.

use std::sync::atomic::{AtomicU64, Ordering};

/// A fault that occurs every Nth time.
#[derive(Debug, Default)]
pub struct Every {
    pub(super) period: u64,
    count: AtomicU64,
}

impl Every {
    /// Parses `1/N`.
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let period = value.strip_prefix("1/").and_then(|n| n.parse().ok()).filter(|&n: &u64| n > 0);
        let period = period.ok_or_else(|| format!("`{value}` is not of the form 1/N"))?;
        Ok(Self { period, count: AtomicU64::new(0) })
    }

    /// Counts one occurrence; true if it is the Nth.
    pub fn occurs(&self) -> bool {
        self.period != 0 && (self.count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.period)
    }
}

/// The size of the driver's object behind the handle of a kernel, and of what it points to.
pub const OBJECT: usize = 1024;

/// Where an object has the pointer to its kernel's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The offset in the object.
    pub at: usize,
    /// The offset in what the word there points to; `None` if that is the name.
    pub then: Option<usize>,
}

impl Place {
    /// Parses `AT` or `AT:THEN`. The first word of an object says what it is.
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let within = |text: &str, first: usize| match usize::try_from(offset(text)?) {
            Ok(at) if at.is_multiple_of(8) && (first..OBJECT).contains(&at) => Ok(at),
            _ => Err(format!("`{text}` is not the offset of a word")),
        };
        let (at, then) = value.split_once(':').map_or((value, None), |(at, then)| (at, Some(then)));
        Ok(Self { at: within(at, 8)?, then: then.map(|then| within(then, 0)).transpose()? })
    }
}

/// Parses an offset, decimal or with `0x`.
pub(super) fn offset(value: &str) -> Result<u64, String> {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| format!("`{value}` is not a number")),
        None => number(value),
    }
}

/// Returns the index of a word in a list.
pub(super) fn one_of(value: &str, choices: &[&str]) -> Result<usize, String> {
    choices.iter().position(|&c| c == value).ok_or_else(|| format!("`{value}` is not one of {choices:?}"))
}

/// Parses a number.
pub(super) fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is not a number in range"))
}

/// Parses a duration in nanoseconds, or with a unit.
pub(super) fn duration(value: &str) -> Result<u64, String> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let unit = match &value[digits..] {
        "" | "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("`{value}` is not a duration such as 50us")),
    };
    number::<u64>(&value[..digits])?.checked_mul(unit).ok_or_else(|| format!("`{value}` is too long"))
}

/// Whether `text` matches `glob`, where `*` is any text and `?` any one character.
pub(super) fn matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut retry = None;
    while t < text.len() {
        if glob.get(g) == Some(&b'*') {
            retry = Some((g, t));
            g += 1;
        } else if g < glob.len() && (glob[g] == b'?' || glob[g] == text[t]) {
            g += 1;
            t += 1;
        } else if let Some((star, from)) = retry {
            g = star + 1;
            t = from + 1;
            retry = Some((star, from + 1));
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault occurs every Nth time, first at the Nth.
    #[test]
    fn faults_occur_every_nth_time() {
        let every = Every::parse("1/3").expect("good");
        let struck: Vec<bool> = (0..7).map(|_| every.occurs()).collect();
        assert_eq!(struck, [false, false, true, false, false, true, false]);
        assert!(!Every::default().occurs());
    }

    /// Globs match whole names.
    #[test]
    fn globs_match_whole_names() {
        for (glob, text, expected) in [
            ("*", "", true),
            ("mat*", "matmul", true),
            ("*mul", "matmul", true),
            ("m?t*l", "matmul", true),
            ("mat", "matmul", false),
            ("*a*a*", "banana", true),
            ("*x*", "banana", false),
        ] {
            assert_eq!(matches(glob.as_bytes(), text.as_bytes()), expected, "{glob} {text}");
        }
    }
}
