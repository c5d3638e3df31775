//! Compares recordings: what got slower or faster, and which change explains it.
//!
//! Each side has one or more recordings of the same program. With several, a change is significant if Welch's t-test says
//! so at 95 %: the difference of the means is larger than what runs of one side differ by.
//!
//! ```text
//!   run            what a comparison needs of one recording: totals, and amounts by name
//!   change         two sides of one amount
//!   significance   whether two sides differ by more than chance
//!   explain        which change explains the difference of the wall time
//!   text, html     the comparison for a terminal and for the browser
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

mod change;
mod explain;
mod html;
mod run;
mod significance;
#[cfg(test)]
mod tests;
mod text;

use self::run::Amount;
pub use self::{
    change::Change,
    explain::{Explanation, Part},
    run::{Run, Subject, Total, Unit},
};

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// Recordings of each side.
    pub recordings: (usize, usize),
    /// The options that select the parts that are compared; absent if these are whole recordings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// Totals of the recordings: those that either side has.
    pub totals: Vec<Change>,
    /// Which change explains the difference of the wall time; absent if the wall time is the same.
    pub explanation: Option<Explanation>,
    /// Changes by subject, the largest first.
    #[serde(flatten)]
    pub changes: BTreeMap<Subject, Vec<Change>>,
}

impl Diff {
    /// Compares two sides, each with at least one recording.
    pub fn of(before: &[Run], after: &[Run]) -> Self {
        let total = |total: Total| {
            let amounts = |runs: &[Run]| runs.iter().map(|run| run.total(total)).collect::<Vec<_>>();
            Change::of(total.name(), total.unit(), &amounts(before), &amounts(after))
        };
        let totals: Vec<Change> =
            Total::ALL.map(total).into_iter().filter(|row| row.before > 0 || row.after > 0).collect();
        let changes: BTreeMap<Subject, Vec<Change>> =
            Subject::ALL.into_iter().map(|subject| (subject, changes(before, after, subject))).collect();
        let explanation = Explanation::of(before, after, &totals, &changes);
        let filters = before.first().map(|run| run.filters.clone()).unwrap_or_default();
        Self { recordings: (before.len(), after.len()), filters, totals, explanation, changes }
    }

    /// Returns a total, if either side has it.
    pub fn total(&self, total: Total) -> Option<&Change> {
        self.totals.iter().find(|row| row.name == total.name())
    }

    /// Says that a total has increased by more than `share` and, with several recordings, significantly.
    pub fn above(&self, total: Total, share: f64) -> Option<String> {
        let row = self.total(total)?;
        let more = row.change.map_or(row.after > 0, |change| change > share);
        let by = row.change.map_or_else(|| "from nothing".to_owned(), |change| format!("by {:.1} %", change * 100.0));
        let limit = (share * 1e4).round() / 100.0;
        (more && row.significant != Some(false))
            .then(|| format!("the {} has increased {by}, more than {limit} %", row.name))
    }

    /// Keeps the first rows of each table.
    pub fn truncate(&mut self, rows: usize) {
        self.changes.values_mut().for_each(|changes| changes.truncate(rows));
    }
}

/// Compares everything with a name, the largest difference first.
fn changes(before: &[Run], after: &[Run], subject: Subject) -> Vec<Change> {
    let names: BTreeSet<&String> = before.iter().chain(after).flat_map(|run| run.of_subject(subject).keys()).collect();
    let mut changes: Vec<Change> = Vec::new();
    for name in names {
        let amounts = |runs: &[Run]| {
            let of = |run: &Run| run.of_subject(subject).get(name).copied().unwrap_or_default();
            runs.iter().map(of).collect::<Vec<Amount>>()
        };
        changes.push(Change::of(name, subject.unit(), &amounts(before), &amounts(after)));
    }
    changes.sort_by_key(|row| std::cmp::Reverse(row.before.abs_diff(row.after)));
    changes
}
