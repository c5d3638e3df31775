//! Findings about several GPUs and ranks.

use model::profile::Profile;
use text::units::{percent, time};

use super::finding::{Evidence, Finding, Gain, Kind, share};
use crate::idle::DeviceIdle;

/// Less work than half of that of the busiest GPU is worth a finding: below, the busiest one sets the pace anyway.
const LEAST_TO_MOST: f64 = 0.5;
/// A GPU that is busy for less than this share of the recording is not what the program waits for.
const BUSY: f64 = 0.05;
/// The share of the recording between the ends of the first and the last that is worth a finding.
const APART: f64 = 0.2;

/// Some GPUs have much more work than others, or some ranks or GPUs work much longer.
pub fn imbalance(profile: &Profile, devices: &[DeviceIdle]) -> Option<Finding> {
    unevenly_busy(profile).or_else(|| ended_apart(profile, devices))
}

fn unevenly_busy(profile: &Profile) -> Option<Finding> {
    let wall = profile.wall_ns();
    let working = || profile.devices.values().filter(|device| !device.streams.is_empty());
    let most = working().max_by_key(|device| device.busy_ns)?;
    let least = working().min_by_key(|device| device.busy_ns)?;
    if share(least.busy_ns, most.busy_ns) >= LEAST_TO_MOST || share(most.busy_ns, wall) < BUSY {
        return None;
    }
    let difference = most.busy_ns - least.busy_ns;
    Some(Finding {
        kind: Kind::Imbalance,
        title: format!(
            "GPU {} was busy {} of the time, GPU {} only {}",
            most.label,
            percent(most.busy_ns, wall),
            least.label,
            percent(least.busy_ns, wall)
        ),
        evidence: vec![Evidence::ns("busiest", most.busy_ns), Evidence::ns("least busy", least.busy_ns)],
        place: None,
        advice: format!("divide the work evenly: {} of it would have to move", time(difference / 2)),
        share: share(difference, wall),
        // If each were busy as long as all are on average.
        gain: Gain::of(most.busy_ns - mean(working().map(|device| device.busy_ns)), profile),
    })
}

fn mean(values: impl Iterator<Item = u64> + Clone) -> u64 {
    let count = values.clone().count().max(1) as u64;
    values.fold(0, |sum, value| sum.saturating_add(value / count))
}

/// The last rank, or GPU if there are no ranks, works much longer than the first. They may be equally busy until then.
fn ended_apart(profile: &Profile, devices: &[DeviceIdle]) -> Option<Finding> {
    let wall = profile.wall_ns();
    let ranks = profile.ranks.all.iter().filter(|(_, info)| info.end > 0);
    let start = profile.start.as_ref().map_or(0, |start| start.time);
    let mut ends: Vec<(u64, String)> =
        ranks.map(|(rank, info)| (info.end.saturating_sub(start), format!("rank {rank}"))).collect();
    if ends.is_empty() {
        let end = |device: &DeviceIdle| (wall.saturating_sub(device.after_ns), format!("GPU {}", device.label));
        ends = devices.iter().map(end).collect();
    }
    let (first, who_first) = ends.iter().min_by_key(|(end, _)| *end)?;
    let (last, who_last) = ends.iter().max_by_key(|(end, _)| *end)?;
    if share(last - first, wall) < APART {
        return None;
    }
    Some(Finding {
        kind: Kind::Imbalance,
        title: format!("{who_last} worked until {}, {who_first} only until {}", time(*last), time(*first)),
        evidence: vec![Evidence::ns("last end", *last), Evidence::ns("first end", *first)],
        place: None,
        advice:
            "divide the work evenly, or find out what the last one does longer: compare both with --rank or --device"
                .into(),
        share: share(last - first, wall),
        gain: Gain::of(last - mean(ends.iter().map(|(end, _)| *end)), profile),
    })
}
