//! Findings about idle GPUs.

use std::collections::BTreeMap;

use model::profile::Profile;
use text::units::time;

use super::finding::{Evidence, Finding, Kind, share};
use crate::{
    idle::{DeviceIdle, IdleCause, ThreadState},
    user_code::{Place, without_line},
};

/// Between its first and its last work, a GPU that is idle for a smaller share is well used.
const IDLE: f64 = 0.1;
/// A gap shorter than this in total is not worth a change.
const SHORTEST_NS: u64 = 1_000_000;
/// The share and the time before the first work that are worth a finding: a start takes some seconds, and only in a short
/// recording it matters.
const START: f64 = 0.2;
const START_NS: u64 = 1_000_000_000;
/// Causes with a smaller share of the time are not named.
const NAMED: f64 = 0.01;
/// The maximum number of causes that are named.
const MAX_NAMED: usize = 3;

/// A GPU is idle, and why.
pub fn idle(profile: &Profile, devices: &[DeviceIdle]) -> Vec<Finding> {
    let worth = |device: &&DeviceIdle| device.idle_share >= IDLE && device.idle_ns >= SHORTEST_NS;
    devices.iter().filter(worth).map(|device| gap(profile, device)).collect()
}

fn gap(profile: &Profile, device: &DeviceIdle) -> Finding {
    let named = named(&device.causes);
    let mut evidence = vec![Evidence::ns("idle", device.idle_ns)];
    let parts = [
        ("from intervals", device.exact_ns),
        ("from samples", device.sampled_ns),
        ("without evidence", device.unknown_ns),
    ];
    evidence.extend(parts.into_iter().filter(|(_, ns)| *ns > 0).map(|(name, ns)| Evidence::ns(name, ns)));
    Finding {
        kind: Kind::GpuIdle,
        title: format!(
            "GPU {} idle {} of {}: {}",
            device.label,
            percent(device.idle_ns, device.span_ns),
            time(device.span_ns),
            listed(&named, device.idle_ns, device.span_ns)
        ),
        evidence,
        place: named.iter().find_map(|cause| cause.place.clone()),
        advice: advice(named.first()).into(),
        share: share(device.idle_ns, profile.wall_ns()),
    }
}

/// No GPU does anything for a long time after the start.
pub fn start(profile: &Profile, devices: &[DeviceIdle]) -> Option<Finding> {
    let wall = profile.wall_ns();
    let first = devices.iter().min_by_key(|device| device.before_ns)?;
    if first.before_ns < START_NS || share(first.before_ns, wall) < START {
        return None;
    }
    let named = named(&first.before);
    Some(Finding {
        kind: Kind::Start,
        title: format!(
            "no GPU worked for the first {}, {} of the recording: {}",
            time(first.before_ns),
            percent(first.before_ns, wall),
            listed(&named, first.before_ns, wall)
        ),
        evidence: vec![Evidence::ns("before the first GPU work", first.before_ns)],
        place: named.iter().find_map(|cause| cause.place.clone()),
        advice: "record longer, or attach to the running program with -p, to see how it runs after its start".into(),
        share: share(first.before_ns, wall),
    })
}

/// A cause as it is named in a title: all time in one function, with its line if that is all in one; all launches; or all
/// that is unknown.
struct Named {
    text: String,
    doing: ThreadState,
    place: Option<Place>,
    ns: u64,
}

/// Adds up causes by the name that the title uses, the longest first.
fn named(causes: &[IdleCause]) -> Vec<Named> {
    let mut sums: BTreeMap<(&str, &str), Named> = BTreeMap::new();
    // The longest come first, so the first line of a function is the most expensive one.
    for cause in causes {
        let (key, text, place) = match (cause.cause, &cause.place) {
            (ThreadState::Launching, _) => (("launching", ""), "launching".to_owned(), None),
            (ThreadState::Other, _) => continue,
            (_, Some(place)) => ((place.function(), &*place.file), place.short(), Some(place.clone())),
            (_, None) => (("[unknown]", ""), "[unknown]".to_owned(), None),
        };
        let sum = sums.entry(key).or_insert(Named { text, doing: cause.cause, place, ns: 0 });
        if sum.place != cause.place && sum.place.is_some() {
            // A line would claim the time of others.
            sum.text = without_line(&sum.text);
        }
        sum.ns = sum.ns.saturating_add(cause.ns);
    }
    let mut all: Vec<Named> = sums.into_values().collect();
    all.sort_by_key(|named| std::cmp::Reverse(named.ns));
    all
}

/// Formats `23 % load (data.py:88), 9 % launching, 9 % other`.
fn listed(named: &[Named], idle: u64, whole: u64) -> String {
    let shown = named.iter().take(MAX_NAMED).filter(|cause| share(cause.ns, whole) >= NAMED);
    let mut rest = idle;
    let mut parts = Vec::new();
    for cause in shown {
        rest = rest.saturating_sub(cause.ns);
        parts.push(format!("{} {}", percent(cause.ns, whole), cause.text));
    }
    if share(rest, whole) >= NAMED {
        parts.push(format!("{} other", percent(rest, whole)));
    }
    parts.join(", ")
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * share(part, whole))
}

/// What to try, by what the thread that feeds the GPU mostly did.
fn advice(first: Option<&Named>) -> &'static str {
    match first.map(|cause| cause.doing) {
        Some(ThreadState::Running) => {
            "do this work ahead of time, in another thread or process: prefetch, or use a DataLoader with workers"
        }
        Some(ThreadState::Waiting) => {
            "do not wait here while the GPU is idle: prefetch, use more workers, or queue more work first"
        }
        Some(ThreadState::Launching) => {
            "launch fewer and longer kernels: use CUDA graphs or torch.compile, or larger batches"
        }
        _ => "record with --off-cpu to see what the thread waited for",
    }
}
