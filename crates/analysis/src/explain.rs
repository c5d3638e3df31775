//! What findings, frames, tables and words mean, how they are measured, how exact they are, and what to do about them.
//!
//! ```text
//!   entry      an explanation, and the spellings by which it is found
//!   findings   one entry for each kind of finding
//!   frames     frames in brackets, which are no functions
//!   stalls     why warps wait
//!   words      words of summaries and tables
//! ```
//!
//! The one source of these texts, for `warpscope explain`, the page and agents.

use std::collections::BTreeSet;

use text::near;

use crate::{Table, findings::Kind as Finding};

mod entry;
mod findings;
mod frames;
mod stalls;
mod words;

pub use self::entry::{Entry, Kind};

/// Returns all explanations but those of metrics.
pub fn all() -> impl Iterator<Item = Entry> {
    let findings = Finding::ALL.into_iter().map(finding);
    let tables = Table::ALL.into_iter().map(|(name, table)| words::table(name, table));
    findings.chain(frames::ALL.iter().copied()).chain(stalls::all()).chain(tables).chain(words::ALL.iter().copied())
}

/// Returns the explanation of a finding.
pub fn finding(kind: Finding) -> Entry {
    let (also, texts) = findings::explained(kind);
    Entry::of(Kind::Finding, (kind.name(), also), texts)
}

/// Returns the explanations of a term: its own, those of its other spellings, or that of frames which begin in the same way.
pub fn find(entries: &[Entry], term: &str) -> Vec<Entry> {
    let exact: Vec<Entry> = entries.iter().filter(|entry| entry.name == term).copied().collect();
    if !exact.is_empty() {
        return exact;
    }
    let found: Vec<Entry> = entries.iter().filter(|entry| entry.explains(term)).copied().collect();
    let is_module = term.starts_with('[') && term.ends_with(']') && !term.contains(' ');
    if found.is_empty() && is_module {
        return entries.iter().filter(|entry| entry.name == frames::MODULE).copied().collect();
    }
    // `[handed over by backward ...]` before `[handed over by ...]`.
    let longest = found.iter().map(prefix).max();
    found.into_iter().filter(|entry| Some(prefix(entry)) == longest).collect()
}

/// Returns the length of what a frame begins with; names without a variable part are longer than all.
fn prefix(entry: &Entry) -> usize {
    entry.name.split_once("...").map_or(usize::MAX, |(before, _)| before.len())
}

/// Returns names that are similar to an unknown term.
pub fn similar(entries: &[Entry], term: &str) -> Vec<String> {
    let names: BTreeSet<&str> =
        entries.iter().flat_map(|entry| [entry.name].into_iter().chain(entry.also.iter().copied())).collect();
    let found = near(names.iter().copied(), term);
    if !found.is_empty() {
        return found;
    }
    // Of several words, one may be known.
    let words = term.split_whitespace().filter(|word| word.len() > 3);
    words.flat_map(|word| near(names.iter().copied(), word)).take(5).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are found as outputs show them and as users type them.
    #[test]
    fn names_are_found_in_any_spelling() {
        let entries: Vec<Entry> = all().collect();
        for (term, name) in [
            ("gpu-idle", "gpu-idle"),
            ("GPU idle", "gpu-idle"),
            ("[launching]", "[launching]"),
            ("launching", "[launching]"),
            ("[handed over by train (train.py:31)]", "[handed over by ...]"),
            ("[handed over by backward (train.py:31)]", "[handed over by backward ...]"),
            ("[GPU0_Kernel] gemm", "[GPU_Kernel] ..."),
            ("[stall: long scoreboard]", "long_scoreboard"),
            ("[libcuda.so.1]", "[lib...]"),
            ("[myprogram]", "[lib...]"),
            ("launch-bound", "launch-bound"),
            ("matched", "matched"),
            ("the ledger", "ledger"),
        ] {
            let found = find(&entries, term);
            assert!(found.iter().any(|entry| entry.name == name), "{term}: {found:?}");
        }
        assert!(find(&entries, "").is_empty() && find(&entries, "nonsense").is_empty());
        assert!(similar(&entries, "lauch-bound").contains(&"launch-bound".to_owned()));
        assert!(similar(&entries, "zzzzzzzz").is_empty());
    }

    /// Check that every entry has a text for each question, in sentences, and that no name is explained twice.
    #[test]
    fn entries_are_complete() {
        let mut names = BTreeSet::new();
        for entry in all() {
            for text in [entry.means, entry.measured, entry.exact, entry.act] {
                assert!(text.len() > 5 && (text.ends_with('.') || entry.kind == Kind::Stall), "{}: {text}", entry.name);
            }
            assert!(names.insert((entry.kind, entry.name)), "{} is explained twice", entry.name);
        }
    }
}
