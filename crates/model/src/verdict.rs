//! What limits a kernel, judged by the samples of the GPU's counters that belong to it alone.

use serde::Serialize;

use crate::gpu_counters::pm;

/// From this share of its peak on, in percent, a unit limits a kernel.
pub const BOUND: f64 = 60.0;
/// The least samples for a verdict.
pub const MIN_SAMPLES: u64 = 3;
/// A sample belongs to a kernel that ran in at least this many percent of it, alone.
pub const MIN_COVERED: u64 = 95;

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
    /// Samples.
    pub samples: u64,
    /// The sum of each metric in hundredths of its unit, and how many samples have it.
    sums: [(u64, u64); pm::COUNT],
}

impl KernelSamples {
    /// Adds a sample: its metrics, and their values in hundredths of their units.
    pub fn add(&mut self, values: impl Iterator<Item = (u32, u32)>) {
        self.samples += 1;
        for (metric, value) in values {
            if let Some((sum, count)) = self.sums.get_mut(metric as usize) {
                *sum = sum.saturating_add(value.into());
                *count += 1;
            }
        }
    }

    /// Returns the mean of a metric, in its unit; `None` if no sample has it.
    pub fn mean(&self, metric: u32) -> Option<f64> {
        let (sum, count) = self.sums.get(metric as usize)?;
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
        let reached = |value: Option<f64>| value.is_some_and(|value| value >= BOUND);
        match self.mean(pm::SM_ACTIVE) {
            None => Verdict::NotMeasured,
            Some(_) if self.samples < MIN_SAMPLES => Verdict::NotMeasured,
            Some(_) if reached(self.mean(pm::TENSOR_PIPE)) => Verdict::Tensor,
            Some(_) if reached(self.dram()) => Verdict::Memory,
            Some(_) if reached(self.mean(pm::ISSUED)) => Verdict::Compute,
            Some(active) if active >= BOUND => Verdict::Latency,
            Some(_) => Verdict::Small,
        }
    }
}

/// How the samples of all GPUs were assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Assigned {
    /// All samples.
    pub samples: u64,
    /// Those that belong to one kernel.
    pub of_kernels: u64,
    /// Those in which several kernels ran, or a copy or memset.
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
