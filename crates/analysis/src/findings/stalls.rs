//! Findings about lines at which warps wait.

use std::collections::BTreeMap;

use model::{event::SourceLine, fold::divide, profile::Profile};
use text::{short::shortened, units::percent};

use super::finding::{Evidence, Finding, Gain, Kind, share};
use crate::{names, stalls, user_code::Place};

/// A smaller share of the recorded time at one line is not worth a change.
const WORTH: f64 = 0.05;
/// Fewer samples are an accident.
const LEAST_SAMPLES: u64 = 50;
/// The most characters of a kernel's name in a title.
const NAME: usize = 60;

/// What a stall reason at a line means.
struct Rule {
    kind: Kind,
    reasons: &'static [&'static str],
    /// What the warps wait for, as a part of the title.
    waits: &'static str,
    advice: &'static str,
}

const RULES: [Rule; 4] = [
    Rule {
        kind: Kind::MemoryLatency,
        reasons: &["long_scoreboard"],
        waits: "for data from global memory",
        advice: "check that neighbouring threads read neighbouring addresses; otherwise reuse data in shared memory, load \
                 earlier, or keep more loads in flight. The load may be above this line, which needs its data",
    },
    Rule {
        kind: Kind::MemoryQueue,
        reasons: &["lg_throttle"],
        waits: "because the queue for global memory is full",
        advice: "use fewer and wider accesses: neighbouring threads at neighbouring addresses, float4 instead of float, no \
                 register spills",
    },
    Rule {
        kind: Kind::BankConflicts,
        reasons: &["short_scoreboard", "mio_throttle"],
        waits: "for shared memory or special functions",
        advice: "if this line uses shared memory, check for bank conflicts: pad rows by one element, or swizzle; if it \
                 uses functions such as expf and sinf, use fewer",
    },
    Rule {
        kind: Kind::Barrier,
        reasons: &["barrier"],
        waits: "at a barrier for other warps of their block",
        advice: "give all warps of a block the same amount of work between barriers, or use smaller blocks",
    },
];

/// Samples of a kernel at a line and their time, by stall reason.
type Lines<'a> = BTreeMap<(u32, &'a [SourceLine]), BTreeMap<&'a str, Sum>>;

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    samples: u64,
    ns: u64,
}

impl Sum {
    fn add(self, other: Self) -> Self {
        Self { samples: self.samples.saturating_add(other.samples), ns: self.ns.saturating_add(other.ns) }
    }
}

/// Returns, for each rule, the line at which the most time is lost.
pub fn lines(profile: &Profile) -> Vec<Finding> {
    let lines = times(profile);
    RULES.iter().filter_map(|rule| worst(profile, &lines, rule)).collect()
}

fn worst(profile: &Profile, lines: &Lines<'_>, rule: &Rule) -> Option<Finding> {
    let lost = |reasons: &BTreeMap<&str, Sum>| {
        rule.reasons.iter().filter_map(|name| reasons.get(name)).fold(Sum::default(), |sum, one| sum.add(*one))
    };
    let ((kernel, at), reasons) = lines.iter().max_by_key(|(_, reasons)| lost(reasons).ns)?;
    let Sum { samples, ns } = lost(reasons);
    if share(ns, profile.wall_ns()) < WORTH || samples < LEAST_SAMPLES {
        return None;
    }
    let line_ns = reasons.values().fold(Sum::default(), |sum, one| sum.add(*one)).ns;
    let kernel_ns = stalls::kernel_times(profile).get(kernel).copied().unwrap_or(0);
    let place = at.last().map(|line| Place { frame: stalls::line(line), file: line.file.to_string() });
    let name = shortened(names::kernel(profile, *kernel), NAME);
    let where_ = place.as_ref().map_or_else(|| "[no line information]".to_owned(), Place::short);
    Some(Finding {
        kind: rule.kind,
        title: format!(
            "warps of {name} wait {} at {where_}: {} of the time",
            rule.waits,
            percent(ns, profile.wall_ns())
        ),
        evidence: vec![
            Evidence::count("samples", samples),
            Evidence::ns("in this stall", ns),
            Evidence::ns("at this line", line_ns),
            Evidence::ns("in this kernel", kernel_ns),
        ],
        place,
        advice: rule.advice.into(),
        share: share(ns, profile.wall_ns()),
        gain: Gain::of(ns, profile),
    })
}

/// Divides the time of kernels among their lines and reasons, in proportion to their samples.
fn times(profile: &Profile) -> Lines<'_> {
    let stalls = &profile.stalls;
    let mut samples: BTreeMap<u32, BTreeMap<(&[SourceLine], &str), u64>> = BTreeMap::new();
    for ((at, reason), count) in &stalls.samples {
        let Some(kernel) = stalls.functions.get(&(at.session, at.function)) else { continue };
        let line = stalls.lines.get(at).map_or(&[][..], |lines| lines);
        let sum = samples.entry(*kernel).or_default().entry((line, stalls.reason(at.session, *reason))).or_default();
        *sum = sum.saturating_add(*count);
    }
    let whole = stalls::kernel_times(profile);
    let mut lines = Lines::new();
    for (kernel, sums) in samples {
        let counts: Vec<u64> = sums.values().copied().collect();
        let times = divide(whole.get(&kernel).copied().unwrap_or(0), &counts);
        for (((line, reason), samples), ns) in sums.into_iter().zip(times) {
            lines.entry((kernel, line)).or_default().insert(reason, Sum { samples, ns });
        }
    }
    lines
}
