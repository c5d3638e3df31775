//! The findings of a recording: what costs time, with numbers, the line that causes it, and what to try.
//!
//! Each file of this module has the rules of one subject. A rule returns no finding where there is nothing to say. To add
//! a finding, add a [`Kind`] and a rule, and call the rule in [`findings`].

mod advice;
mod communication;
mod copies;
mod devices;
mod finding;
mod idle;
mod kernels;
mod late;
mod launches;
mod limits;
mod memory;
mod occupancy;
mod outlier;
mod stalls;
mod verdicts;

use std::cmp::Reverse;

use model::profile::Profile;

use self::advice::Setting;
pub use self::finding::{Evidence, Finding, Gain, Kind, Severity, Unit};
use crate::{
    collectives::Late, idle::DeviceIdle, memory::DeviceMemory, occupancy::ShapeOccupancy, user_code::UserCode,
};

/// The maximum number of findings: a reader acts on the first ones.
const MAX: usize = 8;

/// Returns the findings of a profile, those that could gain the most time first. Of a part of a recording, those that need
/// only what is selected.
pub fn findings(
    profile: &Profile,
    code: &UserCode<'_>,
    idle: &[DeviceIdle],
    memory: &[DeviceMemory],
    shapes: &[ShapeOccupancy],
    late: &[Late],
) -> Vec<Finding> {
    // A trace explains single calls, and has its own report.
    if profile.is_trace() {
        return Vec::new();
    }
    let setting = Setting::of(profile);
    let mut all = Vec::new();
    // Work that is not selected may run meanwhile, and threads that are not selected may be the reason.
    if !profile.is_part() {
        all.extend(idle::idle(profile, idle, setting));
        all.extend(idle::start(profile, idle));
        all.extend(launches::bound(profile, idle, setting));
        all.extend(launches::waits(profile, code, idle, setting));
        all.extend(copies::alone(profile, code, idle, setting));
        all.extend(devices::imbalance(profile, idle));
        all.extend(late::late(profile, late, setting));
        all.extend(verdicts::limited(profile, code, setting));
        all.extend(limits::kernels(profile));
    }
    all.extend(copies::pageable(profile, code, idle, setting));
    all.extend(kernels::tiny(profile, code, idle, setting));
    all.extend(kernels::without_tensor_cores(profile, code, setting));
    all.extend(occupancy::low(profile, code, shapes));
    all.extend(occupancy::small_grid(profile, code, shapes));
    all.extend(occupancy::tail(profile, code, shapes));
    all.extend(stalls::lines(profile));
    // Of equal gains, why a GPU is idle comes first: other findings are often parts of the answer.
    all.sort_by_key(|finding: &Finding| (Reverse(finding.gain.map(|gain| gain.ns)), finding.kind != Kind::GpuIdle));
    all.truncate(MAX);
    // A program whose ranks do not agree is wrong or stands still: that comes before what it could gain.
    if !profile.is_part() {
        all.splice(
            0..0,
            communication::missing(profile, code).into_iter().chain(communication::mismatch(profile, code)),
        );
    }
    // Memory affects no time, so it has no place among the others.
    all.extend(memory::peak(memory));
    all
}

#[cfg(test)]
mod tests;
