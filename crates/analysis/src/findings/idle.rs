//! Findings about idle GPUs.

use std::collections::BTreeMap;

use model::{idle::SHORT_GAP_NS, profile::Profile};
use text::units::time;

use super::{
    advice::Setting,
    finding::{Evidence, Finding, Gain, Kind, share},
    launches::{MANY, fewer_launches},
    outlier::outlier,
};
use crate::{
    idle::{DeviceIdle, IdleCause, ThreadState},
    idle_pools,
    user_code::{Place, without_line},
    waits,
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
/// GPUs that are idle for the same main cause, and whose shares differ by at most so many points, have one finding.
const ALIKE: f64 = 10.0;

/// GPUs are idle, and why. GPUs that are idle alike have one finding.
pub fn idle(profile: &Profile, devices: &[DeviceIdle], setting: Setting) -> Vec<Finding> {
    let worth = |device: &&DeviceIdle| device.idle_share >= IDLE && device.idle_ns >= SHORTEST_NS;
    let mut worth: Vec<&DeviceIdle> = devices.iter().filter(worth).collect();
    worth.sort_by(|a, b| a.idle_share.total_cmp(&b.idle_share));
    let mut groups: Vec<(Option<String>, Vec<&DeviceIdle>)> = Vec::new();
    for device in worth {
        let main = named(&device.causes).into_iter().next().map(|cause| cause.key);
        let alike = |(of, group): &&mut (_, Vec<&DeviceIdle>)| {
            *of == main && (100.0 * (device.idle_share - group[0].idle_share)).round() <= ALIKE
        };
        match groups.iter_mut().find(alike) {
            Some((_, group)) => group.push(device),
            None => groups.push((main, vec![device])),
        }
    }
    groups.into_iter().map(|(_, group)| gap(profile, group, setting)).collect()
}

/// The finding of some GPUs, the least idle one first.
fn gap(profile: &Profile, mut devices: Vec<&DeviceIdle>, setting: Setting) -> Finding {
    let (least, most) = (devices[0].idle_share, devices[devices.len() - 1].idle_share);
    devices.sort_by_key(|device| device.device);
    let sum = |of: fn(&DeviceIdle) -> u64| devices.iter().fold(0_u64, |sum, device| sum.saturating_add(of(device)));
    let (idle_ns, span_ns) = (sum(|device| device.idle_ns), sum(|device| device.span_ns));
    let named = named(devices.iter().flat_map(|device| &device.causes));
    let mut evidence = vec![Evidence::ns("idle", idle_ns)];
    let parts = [
        ("from intervals", sum(|device| device.exact_ns)),
        ("from samples", sum(|device| device.sampled_ns)),
        ("without evidence", sum(|device| device.unknown_ns)),
    ];
    evidence.extend(parts.into_iter().filter(|(_, ns)| *ns > 0).map(|(name, ns)| Evidence::ns(name, ns)));
    let causes = listed(&named, idle_ns, span_ns);
    let title = match &devices[..] {
        [one] => format!("GPU {} idle {} of {}: {causes}", one.label, percent(idle_ns, span_ns), time(span_ns)),
        several => {
            let (differs, idle) = (differs(several), range(least, most));
            format!("GPUs {} idle {idle}{differs}: on average {causes}", labels(several))
        }
    };
    Finding {
        kind: Kind::GpuIdle,
        title,
        evidence,
        place: named.iter().find_map(|cause| cause.place.clone()),
        advice: match devices.iter().all(|device| waits_for_launches(profile, device)) {
            true => fewer_launches(setting).into(),
            false => advice(named.first(), setting),
        },
        share: share(idle_ns, profile.wall_ns().saturating_mul(devices.len() as u64)),
        // They are idle at the same time, at best.
        gain: Gain::of(devices.iter().map(|device| device.idle_ns).max().unwrap_or(0), profile),
    }
}

/// Whether most of a GPU's idle time is in gaps as short as a launch. Whatever its thread does in them, it does again and again.
fn waits_for_launches(profile: &Profile, device: &DeviceIdle) -> bool {
    let (gaps, ns) = profile.devices.get(&device.device).map_or((0, 0), |info| info.idle.short_gaps);
    gaps >= MANY && ns >= device.idle_ns.div_ceil(2)
}

/// Names the GPU that is idle longer or shorter than the others: ` (GPU 3 39 %, the others 31 to 32 %)`.
fn differs(devices: &[&DeviceIdle]) -> String {
    let mut shares: Vec<f64> = devices.iter().map(|device| device.idle_share).collect();
    let Some(at) = outlier(&shares) else { return String::new() };
    let own = shares.remove(at);
    let (least, most) =
        shares.iter().fold((f64::MAX, 0.0), |(least, most): (f64, f64), share| (least.min(*share), most.max(*share)));
    format!(" (GPU {} {}, the others {})", devices[at].label, range(own, own), range(least, most))
}

/// Formats `31 to 35 %`.
fn range(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(|share| format!("{:.0}", 100.0 * share));
    if least == most { format!("{least} %") } else { format!("{least} to {most} %") }
}

/// Formats the labels of GPUs in order: `0 to 7`, or `0, 2 and 5`.
fn labels(devices: &[&DeviceIdle]) -> String {
    let follows = |pair: &[&DeviceIdle]| {
        let numbers = [pair[0], pair[1]].map(|device| device.label.parse::<u32>().ok());
        matches!(numbers, [Some(one), Some(next)] if one + 1 == next)
    };
    let labels: Vec<&str> = devices.iter().map(|device| device.label.as_str()).collect();
    match &labels[..] {
        [first, _, .., last] if devices.windows(2).all(follows) && labels.len() > 2 => format!("{first} to {last}"),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
        [] => String::new(),
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
        // A longer recording of the same program has the same start.
        gain: None,
    })
}

/// A cause as it is named in a title: all time in one function, with its line if that is all in one; all launches; or all
/// that is unknown.
#[derive(Clone, Debug)]
struct Named {
    /// What has the same key has the same name.
    key: String,
    text: String,
    doing: Doing,
    place: Option<Place>,
    ns: u64,
}

/// What a cause is, as far as advice depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Running,
    Waiting,
    WaitingForWork,
    /// Launches, and how long a gap takes on average.
    Launching(u64),
    /// One launch, with its time, and whether it was the first of its kernel.
    OneLaunch(u64, bool),
    Meanwhile,
    Unknown,
}

/// Adds up causes by the name that the title uses, the longest first.
fn named<'a>(causes: impl IntoIterator<Item = &'a IdleCause>) -> Vec<Named> {
    let mut causes: Vec<&IdleCause> = causes.into_iter().collect();
    // The longest come first, so the first line of a function is the most expensive one.
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
    let mut sums: BTreeMap<String, Named> = BTreeMap::new();
    let mut launches = Vec::new();
    for cause in causes {
        let (doing, text) = match (cause.cause, &cause.place) {
            (ThreadState::Launching, _) => {
                launches.push(cause);
                continue;
            }
            (ThreadState::Other, _) => continue,
            (ThreadState::Waiting, _) if cause.reason.as_deref() == Some(idle_pools::WORK) => {
                (Doing::WaitingForWork, "waiting for work from another thread".to_owned())
            }
            (ThreadState::Meanwhile, Some(place)) => {
                (Doing::Meanwhile, format!("while another thread ran {}", place.short()))
            }
            (ThreadState::Running, Some(place)) => (Doing::Running, place.short()),
            // It had work to do.
            (ThreadState::Waiting, Some(place)) if cause.reason.as_deref() == Some(waits::CPU) => {
                (Doing::Running, place.short())
            }
            (ThreadState::Waiting, Some(place)) => (Doing::Waiting, place.short()),
            (_, _) => (Doing::Unknown, "[unknown]".to_owned()),
        };
        let place = cause.place.clone().filter(|_| !matches!(doing, Doing::WaitingForWork | Doing::Unknown));
        let other = matches!(doing, Doing::Meanwhile);
        let key = match &place {
            Some(place) => format!("{other} {} {}", place.function(), place.file),
            None => text.clone(),
        };
        let sum = sums.entry(key.clone()).or_insert(Named { key, text, doing, place, ns: 0 });
        if sum.place.is_some() && sum.place != cause.place {
            // A line would claim the time of others.
            sum.text = without_line(&sum.text);
        }
        sum.ns = sum.ns.saturating_add(cause.ns);
    }
    let mut all: Vec<Named> = sums.into_values().chain(launching(&launches)).collect();
    all.sort_by_key(|named| std::cmp::Reverse(named.ns));
    all
}

/// Names launches: all together, but for a single one that took most of the time. That is not a pattern.
fn launching(causes: &[&IdleCause]) -> Vec<Named> {
    let ns = causes.iter().fold(0_u64, |sum, cause| sum.saturating_add(cause.ns));
    let gaps = causes.iter().fold(0_u64, |sum, cause| sum.saturating_add(cause.gaps));
    let longest = causes.iter().max_by_key(|cause| cause.longest_ns);
    let single = longest.filter(|cause| cause.longest_ns >= SHORTEST_NS && cause.longest_ns >= ns.div_ceil(2));
    let one = single.map(|cause| {
        let at = cause.place.as_ref().map(|place| format!(" at {}", place.short())).unwrap_or_default();
        Named {
            key: format!("one launch{at}"),
            text: format!("one launch of {}{at}", time(cause.longest_ns)),
            doing: Doing::OneLaunch(cause.longest_ns, cause.first_use),
            place: cause.place.clone(),
            ns: cause.longest_ns,
        }
    });
    let rest = ns - one.as_ref().map_or(0, |one| one.ns);
    let others = gaps.saturating_sub(one.iter().len() as u64);
    let all = (rest > 0).then(|| Named {
        key: "launching".to_owned(),
        text: "launching".to_owned(),
        doing: Doing::Launching(rest / others.max(1)),
        place: None,
        ns: rest,
    });
    one.into_iter().chain(all).collect()
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
fn advice(first: Option<&Named>, setting: Setting) -> String {
    match first.map_or(Doing::Unknown, |cause| cause.doing) {
        Doing::Running => setting.torch_or(
            "do this work ahead of time, in another thread or process: prefetch, or use a DataLoader with workers",
            "do this work ahead of time, in another thread or process",
        ),
        Doing::Waiting => {
            "do not wait here while the GPU is idle: prefetch, use more workers, or queue more work first"
        }
        Doing::WaitingForWork => {
            "the thread that feeds the GPU had nothing to do: look at the threads that give it work"
        }
        // A gap this short is the cost of a launch.
        Doing::Launching(mean) if mean < SHORT_GAP_NS => fewer_launches(setting),
        Doing::Launching(_) => {
            "the work had been launched and started late: see with warpscope trace which calls are slow, or which streams \
             wait for each other"
        }
        Doing::OneLaunch(ns, first_use) => {
            let why = match first_use {
                true => "the first use of a kernel loads its module: run it once before it matters",
                false => "a single slow launch is not a pattern: see with warpscope trace what it did",
            };
            return format!("one launch took {}: {why}", time(ns));
        }
        Doing::Meanwhile if setting.waits => {
            "check whether the thread that feeds the GPU waits for this one; its own waits are recorded from its first \
             launch on"
        }
        Doing::Meanwhile => {
            "check whether the thread that feeds the GPU waits for this one: record with --off-cpu to see its waits"
        }
        Doing::Unknown if !setting.samples => "record CPU samples, and waits with --off-cpu, to see what the thread did",
        Doing::Unknown if setting.waits => {
            "what the thread that feeds the GPU did before its first launch was not recorded: see the timeline"
        }
        Doing::Unknown => "record with --off-cpu to see what the thread waited for",
    }
    .into()
}
