//! An explanation, and the spellings by which it is found.

use serde::Serialize;

/// What is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A kind of finding.
    Finding,
    /// A frame in brackets, or another one that is no function.
    Frame,
    /// A metric of the monitor.
    Metric,
    /// A reason why warps wait.
    Stall,
    /// A table.
    Table,
    /// A word.
    Word,
}

impl Kind {
    /// Returns its name.
    pub fn text(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Frame => "frame",
            Self::Metric => "metric",
            Self::Stall => "stall reason",
            Self::Table => "table",
            Self::Word => "term",
        }
    }
}

/// An explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What is explained.
    pub kind: Kind,
    /// Its name. What differs from case to case is `...`: `[rank ...]`.
    pub name: &'static str,
    /// Other names.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub also: &'static [&'static str],
    /// What it means.
    pub means: &'static str,
    /// How it is measured.
    pub measured: &'static str,
    /// How exact it is, and what could make it wrong.
    pub exact: &'static str,
    /// What to do.
    pub act: &'static str,
}

impl Entry {
    /// An entry of a table of entries.
    pub(super) const fn of(
        kind: Kind,
        (name, also): (&'static str, &'static [&'static str]),
        [means, measured, exact, act]: [&'static str; 4],
    ) -> Self {
        Self { kind, name, also, means, measured, exact, act }
    }

    /// Whether this is the explanation of a term, as a user types it or as an output shows it.
    pub fn explains(&self, term: &str) -> bool {
        let term = plain(term);
        let series = term.rsplit_once(' ').filter(|(_, ending)| self.kind == Kind::Metric && SERIES.contains(ending));
        let matches = |name: &&str| match name.split_once("...") {
            Some((before, after)) => term.starts_with(&plain(before)) && term.ends_with(&plain(after)),
            None => plain(name) == term || series.is_some_and(|(family, _)| plain(name) == family),
        };
        !term.is_empty() && [self.name].iter().chain(self.also).any(matches)
    }
}

/// How the series of a family of metrics end.
const SERIES: [&str; 5] = ["total", "bucket", "sum", "count", "info"];

/// Returns a name without what differs in how it is written: `[GPU0_Kernel] gemm` is `gpu kernel gemm`.
fn plain(name: &str) -> String {
    let lower = name.to_lowercase().replace(['[', ']', '_', '-', '`', '"'], " ");
    let number = |word: &str| word.strip_prefix("gpu").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let words = lower.split_whitespace().map(|word| if number(word) { "gpu" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
