//! What has changed.

use serde::Serialize;

use super::{
    run::{Amount, Unit},
    significance::{mean, significant},
};

/// A change. Amounts and counts are means of the recordings of a side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What has changed.
    pub name: String,
    /// The unit of the amounts.
    pub unit: Unit,
    /// The amount before.
    pub before: u64,
    /// The amount after.
    pub after: u64,
    /// Runs, copies, waits, samples or allocations before; 0 for totals.
    pub before_count: u64,
    /// The same after.
    pub after_count: u64,
    /// The relative change of the amount: 0.1 is 10 % more. Absent if there was none before.
    pub change: Option<f64>,
    /// Whether it is significant; absent with one recording on a side.
    pub significant: Option<bool>,
}

impl Change {
    /// Compares amounts and counts, one of each for each recording.
    pub(super) fn of(name: &str, unit: Unit, before: &[Amount], after: &[Amount]) -> Self {
        let amounts = |side: &[Amount]| side.iter().map(|amount| amount.amount as f64).collect::<Vec<_>>();
        let counts = |side: &[Amount]| mean(&side.iter().map(|amount| amount.count as f64).collect::<Vec<_>>());
        let (a, b) = (amounts(before), amounts(after));
        let (from, to) = (mean(&a), mean(&b));
        Self {
            name: name.to_owned(),
            unit,
            before: from.round() as u64,
            after: to.round() as u64,
            before_count: counts(before).round() as u64,
            after_count: counts(after).round() as u64,
            change: (from > 0.0).then(|| to / from - 1.0),
            significant: (a.len() > 1 && b.len() > 1).then(|| significant(&a, &b)),
        }
    }

    /// Returns the change in percent, if there was something before: `+50.0 %`.
    pub fn percent(&self) -> Option<String> {
        self.change.map(|change| format!("{:+.1} %", change * 100.0))
    }

    /// Returns the amount after less the amount before.
    pub(super) fn difference(&self) -> i64 {
        signed(self.after) - signed(self.before)
    }
}

/// A damaged recording may contain any amount.
pub(super) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
