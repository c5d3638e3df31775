//! The energy that GPUs consumed while they were recorded.
//!
//! NVML counts the energy of a whole GPU. Each difference between two readings is divided by time: the part of the interval
//! in which kernels ran belongs to them, in proportion to the time of each, and the rest is idle. Nothing is rounded away:
//! the parts add up to the difference.
//!
//! ```text
//!   readings     |-------------------|-------------------|
//!   kernel a       ====                 ========
//!   kernel b         ======                  ======
//!   idle         ##        ##########   (###)      #######     no kernel ran
//! ```

use serde::Serialize;

/// The energy of one GPU between its first reading and its last. All energies are in microjoules, of which NVML's counter
/// has whole thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuEnergy {
    /// The GPU's number as shown.
    pub label: String,
    /// Its UUID.
    pub uuid: String,
    /// The difference of its counter: what kernels and idle time add up to.
    pub total_uj: u64,
    /// The part of the kernels.
    pub kernels_uj: u64,
    /// The part of the time in which no recorded kernel ran.
    pub idle_uj: u64,
    /// The time between the first reading and the last.
    pub ns: u64,
    /// The part of it in which kernels ran.
    pub busy_ns: u64,
    /// Readings.
    pub readings: u64,
    /// Of those, the ones that differ from the reading before.
    pub changes: u64,
    /// The shortest time between two readings that differ; 0 if there is none.
    pub shortest_change_ns: u64,
    /// The smallest difference between two readings that differ; 0 if there is none.
    pub smallest_change_uj: u64,
    /// Readings below the one before: the counter was reset, and the energy between the two is not known.
    pub resets: u64,
    /// Time of kernels before the first reading or after the last change: it has no energy.
    pub outside_ns: u64,
    /// Time of kernels that were reported too late: their energy was given to others, or to idle time.
    pub late_ns: u64,
}

impl GpuEnergy {
    /// Returns the mean power in watts; `None` without time.
    pub fn watts(&self) -> Option<f64> {
        watts(self.total_uj, self.ns)
    }

    /// Returns the time between two changes of the counter, as far as the readings show: their number in the time.
    pub fn change_ns(&self) -> Option<u64> {
        (self.changes > 0).then(|| self.ns / self.changes)
    }
}

/// The energy of all GPUs, and what is missing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EnergyLedger {
    /// The difference of NVML's counters: `kernels_uj` and `idle_uj` add up to it.
    pub total_uj: u64,
    /// The part of the kernels.
    pub kernels_uj: u64,
    /// The part of the time in which no recorded kernel ran.
    pub idle_uj: u64,
    /// Readings of the counters.
    pub readings: u64,
    /// How often a counter was reset.
    pub resets: u64,
    /// Time of kernels that has no energy because it is not between two readings.
    pub outside_ns: u64,
    /// Time of kernels that has no energy because it was reported too late.
    pub late_ns: u64,
}

impl EnergyLedger {
    /// Sums up GPUs; `None` if there are none.
    pub fn of(gpus: &[GpuEnergy]) -> Option<Self> {
        let mut ledger = Self::default();
        for gpu in gpus {
            for (sum, part) in [
                (&mut ledger.total_uj, gpu.total_uj),
                (&mut ledger.kernels_uj, gpu.kernels_uj),
                (&mut ledger.idle_uj, gpu.idle_uj),
                (&mut ledger.readings, gpu.readings),
                (&mut ledger.resets, gpu.resets),
                (&mut ledger.outside_ns, gpu.outside_ns),
                (&mut ledger.late_ns, gpu.late_ns),
            ] {
                *sum = sum.saturating_add(part);
            }
        }
        (!gpus.is_empty()).then_some(ledger)
    }
}

/// Returns the mean power in watts of an energy in microjoules.
pub fn watts(microjoules: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| microjoules as f64 * 1e3 / ns as f64)
}
