//! Selects names by shell-like globs, for `--match` and `--exclude`.
//!
//! `*` is any text, `?` any one character, `[A-Z_]` one of these, `[!0-9]` any other. Patterns are case-sensitive.
//! Several patterns are separated by commas or given in several options.

/// An invalid pattern.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern '{pattern}': {reason}")]
pub struct Error {
    /// The pattern as given.
    pattern: String,
    /// What is wrong with it.
    reason: &'static str,
}

/// The names to include and to exclude.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    include: Vec<Glob>,
    exclude: Vec<Glob>,
}

impl Selection {
    /// Parses the values of `--match` and `--exclude`, each a comma-separated list of globs. Without `--match`
    /// everything is selected.
    pub fn parse(include: &[String], exclude: &[String]) -> Result<Selection, Error> {
        Ok(Selection { include: globs(include)?, exclude: globs(exclude)? })
    }

    /// Returns the same selection, with `patterns` if no `--match` was given.
    pub fn or(&self, patterns: impl IntoIterator<Item = Glob>) -> Selection {
        let include = if self.include.is_empty() { patterns.into_iter().collect() } else { self.include.clone() };
        Selection { include, exclude: self.exclude.clone() }
    }

    /// Whether there is a `--match`.
    pub fn has_patterns(&self) -> bool {
        !self.include.is_empty()
    }

    /// Whether a name is selected.
    pub fn takes(&self, name: &str) -> bool {
        let any = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Returns the first selected of a function's names. None of them may be excluded, since a probe cannot tell by
    /// which of them the function was called.
    pub fn first_selected<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
        let excluded = |name: &str| self.exclude.iter().any(|glob| glob.matches(name));
        if names.clone().any(excluded) {
            return None;
        }
        names.into_iter().find(|name| self.takes(name))
    }

    /// Returns the patterns of `--match` that match none of these names, for error messages.
    pub fn unmatched<'a>(&self, names: impl IntoIterator<Item = &'a str> + Clone) -> Vec<&str> {
        let idle = |glob: &&Glob| !names.clone().into_iter().any(|name| glob.matches(name));
        self.include.iter().filter(idle).map(|glob| glob.text.as_str()).collect()
    }
}

fn globs(lists: &[String]) -> Result<Vec<Glob>, Error> {
    lists.iter().flat_map(|list| list.split(',')).map(|pattern| Glob::parse(pattern.trim())).collect()
}

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `*`
    Star,
    /// `?`
    One,
    /// A literal byte.
    Byte(u8),
    /// `[...]`: inclusive ranges.
    Class { ranges: Vec<(u8, u8)>, negated: bool },
}

impl Glob {
    /// Parses a pattern. Commas are literal: names of templates contain them.
    pub fn parse(text: &str) -> Result<Glob, Error> {
        let wrong = |reason| Error { pattern: text.into(), reason };
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        let mut parts = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            rest = tail;
            parts.push(match first {
                b'*' => Part::Star,
                b'?' => Part::One,
                b'[' => {
                    // A bracket right after the opening one is a member.
                    let from = if tail.first().is_some_and(|&byte| byte == b'!' || byte == b'^') { 2 } else { 1 };
                    let closing = tail.iter().skip(from).position(|&byte| byte == b']').map(|at| at + from);
                    let closing = closing.ok_or_else(|| wrong("a [ has no closing ], or is empty"))?;
                    rest = &tail[closing + 1..];
                    class(&tail[..closing]).ok_or_else(|| wrong("a range is reversed"))?
                }
                &byte => Part::Byte(byte),
            });
        }
        // Adjacent stars mean one.
        parts.dedup_by(|a, b| *a == Part::Star && *b == Part::Star);
        Ok(Glob { text: text.into(), parts })
    }

    /// Whether the whole name matches.
    ///
    /// Each star first matches as little as possible, and more if the rest does not match. Only the last star has to be
    /// retried, so this takes at most pattern times name steps.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let (mut part, mut at) = (0, 0);
        let mut again = None;
        loop {
            match (self.parts.get(part), name.get(at)) {
                (Some(Part::Star), _) => {
                    again = Some((part, at));
                    part += 1;
                    continue;
                }
                (None, None) => return true,
                (Some(expected), Some(&byte)) if expected.takes(byte) => {
                    part += 1;
                    at += 1;
                    continue;
                }
                _ => {}
            }
            match again {
                Some((star, from)) if from < name.len() => {
                    again = Some((star, from + 1));
                    (part, at) = (star + 1, from + 1);
                }
                _ => return false,
            }
        }
    }
}

impl Part {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Part::Star => false,
            Part::One => true,
            Part::Byte(expected) => byte == *expected,
            Part::Class { ranges, negated } => ranges.iter().any(|&(from, to)| (from..=to).contains(&byte)) != *negated,
        }
    }
}

/// Parses the text between brackets; `None` if a range is empty.
fn class(text: &[u8]) -> Option<Part> {
    let (negated, mut rest) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut ranges = Vec::new();
    while let [from, tail @ ..] = rest {
        let (to, tail) = match tail {
            [b'-', to, tail @ ..] => (to, tail),
            _ => (from, tail),
        };
        if from > to {
            return None;
        }
        ranges.push((*from, *to));
        rest = tail;
    }
    Some(Part::Class { ranges, negated })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(include: &[&str], exclude: &[&str]) -> Result<Selection, Error> {
        let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Selection::parse(&own(include), &own(exclude))
    }

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(name)
    }

    /// Check each kind of glob against names that match and names that nearly do.
    #[test]
    fn globs_match_names() {
        for (pattern, yes, no) in [
            ("cuInit", &["cuInit"][..], &["cuInit2", "ccuInit", "cuinit", ""][..]),
            ("cuMem*", &["cuMem", "cuMemAlloc_v2"], &["cuMe", "xcuMem"]),
            ("*_v2", &["cuMemAlloc_v2", "_v2", "a_v2_v2"], &["cuMemAlloc_v3", "_v2x"]),
            (
                "cu*Async*_ptsz",
                &["cuMemcpyAsync_ptsz", "cuMemcpyAsyncAsync_v2_ptsz"],
                &["cuMemcpy_ptsz", "cuAsync_pts"],
            ),
            ("cu?nit", &["cuInit", "cu_nit"], &["cunit", "cuIInit"]),
            ("cu[A-Z]*", &["cuInit", "cuZ"], &["cudbgMain", "cu", "cu_x"]),
            ("cu[!A-Z]*", &["cudbgMain"], &["cuInit", "cu"]),
            ("[^a]", &["b"], &["a", "bb"]),
            ("[abc-]x", &["ax", "cx", "-x"], &["dx", "x"]),
            ("[]]", &["]"], &["["]),
            ("[*?]", &["*", "?"], &["a"]),
            ("**a**", &["a", "bab"], &["b", ""]),
            ("*", &["", "x"], &[]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern} should match {name}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern} should not match {name}");
            }
        }
    }

    /// Check that matching a pattern with many stars is not slow.
    #[test]
    fn many_stars_are_fast() {
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
        assert!(!matches(&format!("{}b", "*a".repeat(200)), &"a".repeat(10_000)));
    }

    /// Check that invalid patterns are rejected with the reason.
    #[test]
    fn invalid_patterns_are_rejected() {
        for (pattern, reason) in [
            ("", "empty"),
            ("cuMem*,", "empty"),
            ("cu[A", "no closing ]"),
            ("cu[]", "no closing ]"),
            ("cu[!]", "no closing ]"),
            ("[z-a]", "reversed"),
        ] {
            let error = selection(&[pattern], &[]).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    /// Check that lists add up, and that exclusion takes precedence.
    #[test]
    fn exclusion_takes_precedence() {
        let selection = selection(&["cuMem*, cuLaunch*", "cuInit"], &["*Host*,*_ptsz"]).unwrap();
        for name in ["cuMemAlloc", "cuLaunchKernel", "cuInit"] {
            assert!(selection.takes(name));
        }
        for name in ["cuMemHostAlloc", "cuMemcpy_ptsz", "cuInit2", "cuCtxCreate"] {
            assert!(!selection.takes(name));
        }
        assert_eq!(selection.unmatched(["cuInit", "cuMemX"]), ["cuLaunch*"]);
    }

    /// Check by which of its names a function is shown.
    #[test]
    fn functions_are_shown_by_a_selected_name() {
        let names = || ["puts", "_IO_puts"].into_iter();
        assert_eq!(Selection::default().first_selected(names()), Some("puts"));
        assert_eq!(selection(&["_IO*"], &[]).unwrap().first_selected(names()), Some("_IO_puts"));
        assert_eq!(selection(&["*"], &["puts"]).unwrap().first_selected(names()), None);
        assert_eq!(selection(&["gets"], &[]).unwrap().first_selected(names()), None);
    }
}
