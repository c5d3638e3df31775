//! Findings about what limits a kernel at a line, by hardware counters of single launches.

use model::profile::Profile;
use text::{short::shortened, units::percent};

use super::finding::{Evidence, Finding, Gain, Kind, share};
use crate::limits::{self, KernelLimit, Limit};

/// A smaller share of the recorded time is not worth a change.
const WORTH: f64 = 0.05;
/// The most findings: the first ones are what matters.
const MOST: usize = 3;
/// The most characters of a kernel's name in a title.
const NAME: usize = 60;
/// Fewer active threads in an instruction are a reason by themselves.
const DIVERGENT: f64 = 16.0;

/// The kernels with much time that are limited by something that can be changed.
pub fn kernels(profile: &Profile) -> Vec<Finding> {
    let worth = |row: &KernelLimit| share(row.ns, profile.wall_ns()) >= WORTH && can_change(row);
    limits::all(profile).into_iter().filter(worth).take(MOST).map(|row| finding(profile, row)).collect()
}

/// Whether a change of the kernel could help, and no other finding is about the same.
fn can_change(row: &KernelLimit) -> bool {
    match row.limit {
        Limit::Dram | Limit::L2 | Limit::L1 | Limit::BankConflicts | Limit::LoadStore | Limit::Latency => true,
        Limit::Integer | Limit::Special => true,
        // A pipe at its peak is what it is for, unless few threads use it.
        Limit::Fp32 | Limit::Fp64 | Limit::Issue => row.threads.is_some_and(|threads| threads < DIVERGENT),
        // `small-grid`, `tail` and `low-occupancy` follow from the shapes of all runs.
        Limit::SmallGrid | Limit::Tail | Limit::Occupancy => false,
        Limit::Tensor | Limit::Undecided | Limit::NotMeasured => false,
    }
}

/// Returns what would have to change.
fn advice(row: &KernelLimit) -> String {
    match row.threads {
        Some(threads) if threads < DIVERGENT => {
            format!(
                "on average {threads:.1} of 32 threads are active: let the threads of a warp take the same branches"
            )
        }
        _ => row.limit.advice().to_owned(),
    }
}

fn finding(profile: &Profile, row: KernelLimit) -> Finding {
    let limit = match row.limit {
        Limit::Latency => "waits: no unit is near its peak".to_owned(),
        limit => format!("is limited by {}: {:.0} % of the peak", limit.text(), row.of_peak.unwrap_or(0.0)),
    };
    let mut evidence = vec![
        Evidence::ns("time", row.ns),
        Evidence::count("launches", row.runs),
        Evidence::count("measured", row.measured),
    ];
    for (name, value) in [
        ("percent of SMs active", row.sm_active),
        ("percent of the memory's peak", row.dram),
        ("percent of L2's peak", row.l2),
        ("percent of L1's peak", row.l1),
        ("percent of instructions issued", row.issue),
        ("active threads of an instruction", row.threads),
    ] {
        evidence.extend(value.map(|value| Evidence::count(name, value.round() as u64)));
    }
    Finding {
        kind: Kind::KernelLimit,
        title: format!(
            "{} at {} ({} of the recorded time) {limit}",
            shortened(&row.kernel, NAME),
            row.line.short(),
            percent(row.ns, profile.wall_ns()),
        ),
        evidence,
        gain: Gain::of(row.ns, profile),
        share: share(row.ns, profile.wall_ns()),
        advice: advice(&row),
        place: Some(row.line),
    }
}
