//! What limits a kernel, judged by the samples of the GPU's counters that belong to it alone.
//!
//! Kernels that are shorter than a sample, and alternate with others, have none. They are judged by samples in which they
//! had nearly all of the busy time. What the others used is not known, but it is between nothing and everything: with a
//! share `o` of the busy time and a value `v` while the GPU was busy, the kernel's own value is between `(v - 100 o) /
//! (1 - o)` and `v / (1 - o)`. There is a verdict only if it is the same for all values in between.

use serde::Serialize;

use crate::gpu_counters::pm;

/// From this share of its peak on, in percent, a unit limits a kernel.
pub const BOUND: f64 = 60.0;
/// The least samples for a verdict.
pub const MIN_SAMPLES: u64 = 3;
/// A sample belongs to a kernel that ran in at least this many percent of it, alone.
pub const MIN_COVERED: u64 = 95;
/// A sample that other kernels share is that of a kernel with at least this many percent of the busy time,
pub const MIN_DOMINANT: u64 = 90;
/// if the GPU was busy for at least this many percent of it.
pub const MIN_BUSY: u64 = 50;

/// What limits a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// The tensor pipe is near its peak.
    #[serde(rename = "tensor bound")]
    Tensor,
    /// The memory is near its peak.
    #[serde(rename = "memory bound")]
    Memory,
    /// The SMs issue instructions near their peak.
    #[serde(rename = "compute bound")]
    Compute,
    /// The SMs are active, and nothing is near its peak: warps wait.
    #[serde(rename = "latency bound")]
    Latency,
    /// It does not fill the device.
    #[serde(rename = "too small")]
    Small,
    /// Too few samples belong to it.
    #[serde(rename = "not measured")]
    NotMeasured,
}

impl Verdict {
    /// Returns it as text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Tensor => "tensor bound",
            Self::Memory => "memory bound",
            Self::Compute => "compute bound",
            Self::Latency => "latency bound",
            Self::Small => "too small",
            Self::NotMeasured => "not measured",
        }
    }
}

/// The samples that belong to a kernel, summed by metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelSamples {
    /// Samples of its own.
    pub samples: u64,
    own: Sums,
    /// Samples that others share.
    pub shared: u64,
    of_shared: Sums,
    /// The time of others in shared samples, and of all.
    others: (u64, u64),
}

/// The sum of each metric in hundredths of its unit, and how many samples have it.
type Sums = [(u64, u64); pm::COUNT];

fn add(sums: &mut Sums, values: impl Iterator<Item = (u32, u64)>) {
    for (metric, value) in values {
        if let Some((sum, count)) = sums.get_mut(metric as usize) {
            *sum = sum.saturating_add(value);
            *count += 1;
        }
    }
}

impl KernelSamples {
    /// Adds a sample: its metrics, and their values in hundredths of their units.
    pub fn add(&mut self, values: impl Iterator<Item = (u32, u32)>) {
        self.samples += 1;
        add(&mut self.own, values.map(|(metric, value)| (metric, value.into())));
    }

    /// Adds a sample that others share: how long the kernel ran, how long others did, and how long the sample is.
    pub fn add_shared(&mut self, values: impl Iterator<Item = (u32, u32)>, (own, others, whole): (u64, u64, u64)) {
        self.shared += 1;
        let busy = own.saturating_add(others);
        self.others = (self.others.0.saturating_add(others), self.others.1.saturating_add(busy));
        // While nothing ran, nothing was used.
        let scaled = |value: u32| u64::from(value) * whole / busy.max(1);
        add(&mut self.of_shared, values.map(|(metric, value)| (metric, scaled(value))));
    }

    /// Whether it is judged by samples that others share.
    pub fn is_shared(&self) -> bool {
        self.samples < MIN_SAMPLES && self.shared >= MIN_SAMPLES
    }

    /// Returns the share of others in the samples by which it is judged, 0 to 1.
    pub fn others(&self) -> f64 {
        let (others, all) = self.others;
        if self.is_shared() && all > 0 { others as f64 / all as f64 } else { 0.0 }
    }

    /// Returns the mean of a metric, in its unit; `None` if no sample has it.
    pub fn mean(&self, metric: u32) -> Option<f64> {
        let sums = if self.is_shared() { &self.of_shared } else { &self.own };
        let (sum, count) = sums.get(metric as usize)?;
        (*count > 0).then(|| *sum as f64 / *count as f64 / 100.0)
    }

    /// Returns the share of the memory's peak, reads and writes together, in percent.
    pub fn dram(&self) -> Option<f64> {
        match (self.mean(pm::DRAM_READ), self.mean(pm::DRAM_WRITE)) {
            (None, None) => None,
            (read, write) => Some(read.unwrap_or(0.0) + write.unwrap_or(0.0)),
        }
    }

    /// Returns what limits the kernel: the first of the rules that holds.
    pub fn verdict(&self) -> Verdict {
        if self.samples < MIN_SAMPLES && !self.is_shared() {
            return Verdict::NotMeasured;
        }
        let rules = [
            (self.mean(pm::TENSOR_PIPE), Verdict::Tensor),
            (self.dram(), Verdict::Memory),
            (self.mean(pm::ISSUED), Verdict::Compute),
        ];
        let Some(active) = self.mean(pm::SM_ACTIVE) else { return Verdict::NotMeasured };
        for (value, verdict) in rules.into_iter().chain([(Some(active), Verdict::Latency)]) {
            match value.map(|value| self.reaches(value)) {
                Some(None) => return Verdict::NotMeasured,
                Some(Some(true)) => return verdict,
                Some(Some(false)) | None => {}
            }
        }
        Verdict::Small
    }

    /// Whether the kernel's own value reaches [`BOUND`]; `None` if that depends on what the others used.
    fn reaches(&self, value: f64) -> Option<bool> {
        let others = self.others();
        let (least, most) = ((value - 100.0 * others) / (1.0 - others), value / (1.0 - others));
        if least >= BOUND { Some(true) } else { (most < BOUND).then_some(false) }
    }
}

/// How the samples of all GPUs were assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Assigned {
    /// All samples.
    pub samples: u64,
    /// Those that belong to one kernel.
    pub of_kernels: u64,
    /// Those that one kernel had nearly to itself, beside others.
    pub mostly: u64,
    /// Those in which several operations ran, none of them a kernel for nearly all of the time.
    pub shared: u64,
    /// Those in which one kernel ran for part of the time.
    pub partial: u64,
    /// Those in which nothing ran that was recorded.
    pub idle: u64,
    /// Time of operations that were reported after their samples had been assigned.
    pub late_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples with these values of SM active, tensor pipe, issued, DRAM read and DRAM write, in hundredths of a percent.
    fn samples(count: u64, values: [u32; 5]) -> KernelSamples {
        let mut all = KernelSamples::default();
        (0..count).for_each(|_| all.add((0_u32..).zip(values)));
        all
    }

    /// Check every rule at its threshold, and the order of the rules.
    #[test]
    fn verdicts_follow_the_rules() {
        for (values, expected) in [
            ([10_000, 6_000, 9_000, 9_000, 0], Verdict::Tensor),
            ([10_000, 5_999, 9_000, 4_000, 2_000], Verdict::Memory),
            ([10_000, 5_999, 6_000, 4_000, 1_999], Verdict::Compute),
            ([6_000, 5_999, 5_999, 4_000, 1_999], Verdict::Latency),
            ([5_999, 0, 0, 0, 0], Verdict::Small),
            ([0, 0, 0, 0, 0], Verdict::Small),
        ] {
            assert_eq!(samples(3, values).verdict(), expected, "{values:?}");
            assert_eq!(samples(2, values).verdict(), Verdict::NotMeasured);
        }
    }

    /// Check that a kernel without samples of its own is judged by those that others share, if that does not depend on what the
    /// others used.
    #[test]
    fn shared_samples_are_bounded() {
        let judged = |dram: u32, others: u64| {
            let mut all = KernelSamples::default();
            let values = [(pm::SM_ACTIVE, 9_000), (pm::DRAM_READ, dram)];
            (0..5).for_each(|_| all.add_shared(values.into_iter(), (100 - others, others, 200)));
            (all.verdict(), all.mean(pm::DRAM_READ))
        };
        // Half of each sample is idle: the value while the GPU is busy is twice as large.
        assert_eq!(judged(3_500, 5), (Verdict::Memory, Some(70.0)));
        assert_eq!(judged(3_000, 5), (Verdict::NotMeasured, Some(60.0)), "it may be 57.9 or 63.2");
        assert_eq!(judged(3_000, 0), (Verdict::Memory, Some(60.0)));
        assert_eq!(judged(2_500, 5), (Verdict::Latency, Some(50.0)));
    }

    /// Check that means count the samples that have a metric, and that a missing metric limits nothing.
    #[test]
    fn missing_metrics_limit_nothing() {
        let mut all = KernelSamples::default();
        all.add([(pm::SM_ACTIVE, 7_000), (999, 1)].into_iter());
        all.add([(pm::SM_ACTIVE, 8_000), (pm::DRAM_WRITE, 1_000)].into_iter());
        assert_eq!((all.verdict(), all.mean(pm::TENSOR_PIPE)), (Verdict::NotMeasured, None));
        all.add([(pm::SM_ACTIVE, 9_000)].into_iter());
        assert_eq!((all.verdict(), all.mean(pm::SM_ACTIVE), all.dram()), (Verdict::Latency, Some(80.0), Some(10.0)));
        let mut without = KernelSamples::default();
        (0..9).for_each(|_| without.add([(pm::TENSOR_PIPE, 9_900)].into_iter()));
        assert_eq!(without.verdict(), Verdict::NotMeasured);
    }
}
