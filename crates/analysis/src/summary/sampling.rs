//! What was sampled, if the cost was limited.

use model::profile::{Profile, Sampled};
use serde::Serialize;
use text::units::{count, counted, percent, share};

/// What was sampled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// Recorded launches.
    pub recorded_launches: u64,
    /// Of those, the ones whose stack was not taken. Their time is divided among the stacks of their kernel.
    pub launches_without_stack: u64,
    /// The share of recorded launches whose stack was taken, 0 to 1.
    pub stacks_share: f64,
    /// Launches that were only counted. Their time is the mean of their kernel.
    pub counted_launches: u64,
    /// Of those, the ones without a time, because nothing like them was recorded.
    pub timeless_launches: u64,
    /// The share of the time in which GPU work was recorded, 0 to 1.
    pub recorded_share: f64,
    /// Kernels in the totals that are estimated.
    pub estimated_kernels: u64,
    /// Their time.
    pub estimated_kernel_ns: u64,
}

impl Sampling {
    /// Returns what was sampled; `None` if the cost was not limited.
    pub fn of(profile: &Profile) -> Option<Self> {
        let Sampled { without_stack, estimated, sessions } = &profile.sampled;
        let sum = |of: fn(&model::event::Sampling) -> u64| sessions.values().map(of).fold(0, u64::saturating_add);
        let (recorded, whole) = (sum(|s| s.recorded_ns), sum(|s| s.whole_ns));
        let launches = profile.ledger.launches;
        (!sessions.is_empty() || *without_stack > 0).then(|| Self {
            recorded_launches: launches,
            launches_without_stack: *without_stack,
            stacks_share: share(launches.saturating_sub(*without_stack), launches),
            counted_launches: estimated.launches,
            timeless_launches: estimated.timeless,
            recorded_share: if estimated.launches == 0 { 1.0 } else { share(recorded, whole) },
            estimated_kernels: estimated.kernels,
            estimated_kernel_ns: estimated.kernel_ns,
        })
    }

    /// Returns what was sampled in sentences. Nothing is lost, except the times that the last one names.
    pub fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.launches_without_stack > 0 {
            let taken = self.recorded_launches.saturating_sub(self.launches_without_stack);
            all.push(format!(
                "stacks of {} of the recorded launches were taken: the time of the others is divided among them, by kernel",
                percent(taken, self.recorded_launches)
            ));
        }
        if self.counted_launches > 0 {
            all.push(format!(
                "GPU work was recorded during {} of the time: {} were only counted, and have the mean time of their kernel",
                percent((self.recorded_share * 1e6) as u64, 1_000_000),
                counted(self.counted_launches, "launch", "launches")
            ));
        }
        if self.timeless_launches > 0 {
            all.push(format!(
                "{} of the counted launches have no time: no launch of their kind was recorded",
                count(self.timeless_launches)
            ));
        }
        all
    }
}
