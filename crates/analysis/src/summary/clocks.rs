//! The clocks of the hosts of a recording.

use model::profile::Profile;
use serde::Serialize;

/// The clock of a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clock {
    /// The host.
    pub host: String,
    /// What was added to its times, in the middle of the recording, after its wall clock had been aligned with that of the first host.
    pub offset_ns: i64,
    /// By how many millionths its clock is too slow.
    pub drift_ppm: f64,
    /// By how much its times may still be wrong. Absent if nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_ns: Option<u64>,
    /// The operations that this is based on.
    pub operations: u64,
    /// Its wall clock agrees with them, so nothing was added.
    pub wall_clock_fits: bool,
}

impl Clock {
    /// Returns the clocks, if there are several: the times are those of the first one.
    pub(super) fn all(profile: &Profile) -> Vec<Self> {
        let clocks = &profile.recording().communication.clocks;
        let clock = |clock: &model::clocks::Clock| Self {
            host: clock.host.clone(),
            offset_ns: clock.correction.offset.round() as i64,
            drift_ppm: (clock.correction.drift * 1e9).round() / 1e3,
            bound_ns: clock.bound,
            operations: clock.operations,
            wall_clock_fits: clock.wall_clock_fits,
        };
        clocks.all.iter().filter(|_| clocks.are_several()).map(clock).collect()
    }
}
