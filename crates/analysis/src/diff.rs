//! Compares recordings: what got slower or faster, and which change explains it.
//!
//! Each side has one or more recordings of the same program. With several, a change is significant if Welch's t-test says
//! so at 95 %: the difference of the means is larger than what runs of one side differ by.
//!
//! ```text
//!   run            what a comparison needs of one recording: totals, and amounts by name
//!   change         two sides of one amount
//!   significance   whether two sides differ by more than chance
//!   steps          the median step, if both sides have steps
//!   explain        which change explains the difference of the wall time
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use text::units::time;

mod change;
mod explain;
mod run;
mod significance;
mod steps;
#[cfg(test)]
mod tests;

use self::run::Amount;
pub use self::{
    change::Change,
    explain::{Explanation, Part},
    run::{Run, Subject, Total, Unit},
    steps::{MadeOf, StepsChange},
};

/// A change of idle time or waits that is a smaller part of the wall time, as 1 part in this many, is noise.
const NOISE: u64 = 1_000;

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
    /// The steps; absent if not all recordings have steps of the same place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepsChange>,
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
        let steps = StepsChange::of(before, after);
        Self { recordings: (before.len(), after.len()), filters, totals, steps, explanation, changes }
    }

    /// Returns a total, if either side has it.
    pub fn total(&self, total: Total) -> Option<&Change> {
        self.totals.iter().find(|row| row.name == total.name())
    }

    /// Says that a total has increased by more than `share` and, with several recordings, significantly.
    pub fn above(&self, total: Total, share: f64) -> Option<String> {
        Self::is_above(self.total(total)?, share)
    }

    /// Says the same of the median step.
    pub fn step_above(&self, share: f64) -> Option<String> {
        Self::is_above(&self.steps.as_ref()?.median, share)
    }

    fn is_above(row: &Change, share: f64) -> Option<String> {
        let more = row.change.map_or(row.after > 0, |change| change > share);
        let by = row.change.map_or_else(|| "from nothing".to_owned(), |change| format!("by {:.1} %", change * 100.0));
        let limit = (share * 1e4).round() / 100.0;
        (more && row.significant != Some(false))
            .then(|| format!("the {} has increased {by}, more than {limit} %", row.name))
    }

    /// Whether a change is more than noise. Durations of GPU work are exact, and those of one recording may differ from
    /// those of another for no reason that a recording could show.
    pub fn is_beyond_noise(&self, subject: Subject, row: &Change) -> bool {
        if let Some(significant) = row.significant {
            return significant || matches!(subject, Subject::Kernels | Subject::Paths | Subject::Copies);
        }
        match subject {
            Subject::Kernels | Subject::Paths | Subject::Copies | Subject::Memory => true,
            // The number of samples differs by chance: by more than this in one of twenty cases.
            Subject::Functions | Subject::Lines => {
                let (a, b) = (row.before_count as f64, row.after_count as f64);
                (a - b).abs() > 2.0 * (a + b).sqrt()
            }
            Subject::Idle | Subject::Waits | Subject::Communication => {
                let wall = self.total(Total::Wall).map_or(0, |wall| wall.before.max(wall.after));
                row.before.abs_diff(row.after) >= wall / NOISE
            }
        }
    }

    /// Says which change explains the difference of the wall time, if there is one.
    pub fn explained(&self) -> Option<String> {
        let explanation = self.explanation.as_ref()?;
        let more = explanation.wall_ns > 0;
        let change = self.total(Total::Wall).and_then(Change::percent).unwrap_or_default();
        let begin = format!(
            "the wall time has {} by {} ({change}): ",
            if more { "increased" } else { "decreased" },
            time(explanation.wall_ns.unsigned_abs()),
        );
        Some(begin + &explanation.reasons().unwrap_or_else(|| "no single change explains it".to_owned()))
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
