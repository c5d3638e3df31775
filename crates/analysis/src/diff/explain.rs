//! Which change explains the difference of the wall time.
//!
//! A GPU is busy or idle at every moment, and idle time is charged to what the thread that feeds it did. So the changes of
//! these parts add up to the change of the wall time. Without a GPU that worked on both sides, the explanation is what
//! changed most on the CPU and off it; such parts need not add up, because threads run at the same time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use text::{short::shortened, units::time};

use super::{
    change::{Change, signed},
    run::{Amounts, BUSY, Run, Subject, Total},
};

/// A smaller relative change needs no explanation, unless it is significant.
pub(super) const SMALL: f64 = 0.01;
/// Parts that are a smaller share of the difference do not explain it.
const MINOR: f64 = 0.1;
/// The most parts that are named.
const MOST_PARTS: usize = 3;

/// Which change explains the difference of the wall time, or of the median step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The time after, less the time before, in nanoseconds.
    pub wall_ns: i64,
    /// The number of the GPU whose time is divided; absent if none worked on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// What changed most in the same direction, the largest change first. Empty if no change explains it.
    pub parts: Vec<Part>,
}

/// A part of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What the GPU or the program did: `[GPU busy]`, or the row of the table of idle time, CPU functions or waits.
    pub name: String,
    /// The change of its time, in nanoseconds.
    pub ns: i64,
    /// For `[GPU busy]`, the kernel whose time changed most, and by how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<(String, i64)>,
}

impl Explanation {
    /// Explains the difference of the wall time, if there is one.
    pub(super) fn of(
        before: &[Run],
        after: &[Run],
        totals: &[Change],
        changes: &BTreeMap<Subject, Vec<Change>>,
    ) -> Option<Self> {
        let wall = totals.iter().find(|row| row.name == Total::Wall.name())?;
        let small = wall.change.is_none_or(|change| change.abs() < SMALL);
        if wall.significant == Some(false) || (small && wall.significant != Some(true)) {
            return None;
        }
        let wall_ns = wall.difference();
        let gpu = busiest(before, after);
        let of = |subject: Subject| changes.get(&subject).into_iter().flatten();
        let parts: Vec<Part> = match &gpu {
            Some(gpu) => divided(before, after, gpu),
            None => of(Subject::Functions).chain(of(Subject::Waits)).map(Part::of).collect(),
        };
        let kernels = of(Subject::Kernels).map(|row| (row.name.clone(), row.difference()));
        Some(Self::of_parts(wall_ns, gpu, parts, kernels))
    }

    /// Names the parts that explain a difference. `kernels` are the changes of kernels, the largest first.
    pub(super) fn of_parts(
        wall_ns: i64,
        gpu: Option<String>,
        mut parts: Vec<Part>,
        mut kernels: impl Iterator<Item = (String, i64)>,
    ) -> Self {
        let explains = |part: &Part| {
            part.ns.signum() == wall_ns.signum()
                && part.ns.unsigned_abs() as f64 >= MINOR * wall_ns.unsigned_abs() as f64
        };
        parts.retain(explains);
        parts.sort_by_key(|part| std::cmp::Reverse(part.ns.unsigned_abs()));
        parts.truncate(MOST_PARTS);
        if let Some(busy) = parts.iter_mut().find(|part| part.name == BUSY) {
            busy.kernel = kernels.find(|(_, ns)| ns.signum() == busy.ns.signum());
        }
        Self { wall_ns, gpu, parts }
    }
}

impl Explanation {
    /// Says which changes explain the difference, if any do.
    pub(super) fn reasons(&self) -> Option<String> {
        let parts: Vec<String> = self.parts.iter().map(|part| part.said(self.gpu.as_deref())).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl Part {
    fn of(row: &Change) -> Self {
        Self { name: row.name.clone(), ns: row.difference(), kernel: None }
    }

    /// Says how it has changed.
    fn said(&self, gpu: Option<&str>) -> String {
        let (amount, more) = (time(self.ns.unsigned_abs()), if self.ns > 0 { "longer" } else { "shorter" });
        let name = crate::names::printable(&self.name);
        match (gpu, &self.kernel) {
            (Some(gpu), Some((kernel, ns))) => {
                let sign = if *ns > 0 { "+" } else { "-" };
                let kernel = shortened(kernel, 60);
                format!("GPU {gpu} was busy {amount} {more}, most in {kernel} ({sign}{})", time(ns.unsigned_abs()))
            }
            (Some(gpu), None) if self.name == BUSY => format!("GPU {gpu} was busy {amount} {more}"),
            (Some(gpu), None) => format!("GPU {gpu} was idle {amount} {more}: {name}"),
            (None, _) => format!("{amount} {more} in {name}"),
        }
    }
}

/// Returns the GPU that worked in all recordings, and most.
fn busiest(before: &[Run], after: &[Run]) -> Option<String> {
    let all = || before.iter().chain(after);
    let busy = |label: &str| -> Option<u64> {
        all().map(|run| run.gpus.get(label).and_then(|parts| parts.get(BUSY)).map(|busy| busy.amount)).sum()
    };
    let labels: BTreeSet<&String> = all().flat_map(|run| run.gpus.keys()).collect();
    let worked = labels.into_iter().filter_map(|label| Some((busy(label)?, label)));
    worked.max_by_key(|(busy, _)| *busy).map(|(_, label)| label.clone())
}

/// Returns the changes of the parts of a GPU's time.
fn divided(before: &[Run], after: &[Run], gpu: &str) -> Vec<Part> {
    let means = |runs: &[Run]| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (name, amount) in runs.iter().filter_map(|run| run.gpus.get(gpu)).flat_map(Amounts::iter) {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount.amount);
        }
        sums.values_mut().for_each(|sum| *sum /= runs.len() as u64);
        sums
    };
    let (before, after) = (means(before), means(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |side: &BTreeMap<String, u64>, name: &String| signed(side.get(name).copied().unwrap_or(0));
    let part = |name: &String| Part { name: name.clone(), ns: of(&after, name) - of(&before, name), kernel: None };
    names.into_iter().map(part).collect()
}
