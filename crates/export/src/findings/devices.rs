//! Findings about several GPUs.

use model::profile::Profile;
use text::units::{percent, time};

use super::finding::{Evidence, Finding, Kind, share};

/// Less work than half of that of the busiest GPU is worth a finding: below, the busiest one sets the pace anyway.
const LEAST_TO_MOST: f64 = 0.5;
/// A GPU that is busy for less than this share of the recording is not what the program waits for.
const BUSY: f64 = 0.05;

/// Some GPUs have much more work than others.
pub fn imbalance(profile: &Profile) -> Option<Finding> {
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
    })
}
