//! Tables of what the summary concludes: why GPUs were idle, what threads waited for, who held GPU memory, and traced calls.

use std::collections::BTreeMap;

use model::profile::{CpuWeight, Profile};
use text::units::share;

use super::rows::{Cell, Rows};
use crate::{
    idle::{self, IdleCause},
    memory::{self, MemoryLine},
    trace::TraceSummary,
    user_code::{Place, UserCode},
    waits,
};

/// Returns why GPUs were idle. The rows of a GPU and its busy time add up to the recorded time.
pub fn idle(profile: &Profile) -> Rows {
    let wall = profile.wall_ns();
    let mut rows = Vec::new();
    for gpu in idle::of(profile, &UserCode::new(profile)) {
        let mut add = |when: &str, cause: &str, reason: &str, place: Option<&Place>, ns, samples| {
            let line = place.map(|place| place.frame.as_str()).unwrap_or_default();
            let texts = [&*gpu.label, when, cause, reason, line].map(|text| Cell::Text(text.to_owned()));
            let numbers = [Cell::Count(samples), Cell::Ns(ns), Cell::Share(share(ns, wall))];
            rows.push(texts.into_iter().chain(numbers).collect::<Vec<_>>());
        };
        for (when, causes) in [("between", &gpu.causes), ("before", &gpu.before)] {
            for IdleCause { cause, reason, place, ns, samples, .. } in causes {
                add(when, cause.text(), reason.as_deref().unwrap_or_default(), place.as_ref(), *ns, *samples);
            }
        }
        if gpu.after_ns > 0 {
            add("after", "", "", None, gpu.after_ns, 0);
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(ns_of(row)));
    Rows { columns: vec!["gpu", "when", "cause", "reason", "line", "samples", "ns", "wall_share"], rows }
}

/// Returns the time of a row of idle time.
fn ns_of(row: &[Cell]) -> u64 {
    row.iter().find_map(|cell| if let Cell::Ns(ns) = cell { Some(*ns) } else { None }).unwrap_or(0)
}

/// Returns time off the CPU, by line of user code and reason.
pub fn waits(profile: &Profile) -> Rows {
    let code = UserCode::new(profile);
    let mut sums: BTreeMap<(String, &str), CpuWeight> = BTreeMap::new();
    for wait in waits::all(profile) {
        let line = wait.stack.map(|stack| code.place(wait.process, stack).frame).unwrap_or_default();
        let sum = sums.entry((line, wait.reason)).or_default();
        sum.count = sum.count.saturating_add(wait.count);
        sum.ns = sum.ns.saturating_add(wait.ns);
    }
    let whole = sums.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, weight)| std::cmp::Reverse(weight.ns));
    let row = |((line, reason), weight): ((String, &str), CpuWeight)| {
        vec![
            Cell::Text(line),
            Cell::Text(reason.to_owned()),
            Cell::Count(weight.count),
            Cell::Ns(weight.ns),
            Cell::Ns(weight.ns / weight.count.max(1)),
            Cell::Share(share(weight.ns, whole)),
        ]
    };
    Rows {
        columns: vec!["line", "reason", "count", "ns", "mean_ns", "wait_share"],
        rows: sums.into_iter().map(row).collect(),
    }
}

/// Returns who held GPU memory at its peak and at the end.
pub fn memory(profile: &Profile) -> Rows {
    let mut rows = Vec::new();
    for device in memory::of(profile, &UserCode::new(profile)) {
        for (when, moment) in [("peak", &device.peak), ("end", &device.end)] {
            let held = moment.in_use_bytes.saturating_add(moment.cached_bytes);
            for MemoryLine { what, place, bytes, count } in &moment.lines {
                let line = place.as_ref().map_or("[other lines]", |place| &place.frame);
                let pid = device.pid.to_string();
                let texts = [&*device.label, &device.process, &pid, when, what.name(), line];
                let numbers = [Cell::Count(*count), Cell::Bytes(*bytes), Cell::Share(share(*bytes, held))];
                rows.push(texts.map(|text| Cell::Text(text.to_owned())).into_iter().chain(numbers).collect());
            }
        }
    }
    Rows { columns: vec!["gpu", "process", "pid", "when", "use", "line", "count", "bytes", "held_share"], rows }
}

/// Returns traced calls by function.
pub fn calls(profile: &Profile) -> Rows {
    let functions = TraceSummary::of(profile).map(|trace| trace.functions).unwrap_or_default();
    let rows = functions.into_iter().map(|row| {
        let times = [row.ns, row.self_ns, row.mean_ns, row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns].map(Cell::Ns);
        let texts = [row.name, row.library].map(Cell::Text);
        texts.into_iter().chain([Cell::Count(row.calls), Cell::Count(row.errors)]).chain(times).collect()
    });
    Rows {
        columns: vec![
            "function", "library", "calls", "errors", "ns", "self_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns",
            "max_ns",
        ],
        rows: rows.collect(),
    }
}

/// Returns requests to the driver by device, request and command.
pub fn requests(profile: &Profile) -> Rows {
    let requests = TraceSummary::of(profile).map(|trace| trace.requests).unwrap_or_default();
    let rows = requests.into_iter().map(|row| {
        let times = [row.ns, row.mean_ns, row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns].map(Cell::Ns);
        let texts = [row.request, row.command.unwrap_or_default(), row.device].map(Cell::Text);
        texts.into_iter().chain([Cell::Count(row.count), Cell::Count(row.errors)]).chain(times).collect()
    });
    Rows {
        columns: vec![
            "request", "command", "device", "requests", "errors", "ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns",
            "max_ns",
        ],
        rows: rows.collect(),
    }
}
