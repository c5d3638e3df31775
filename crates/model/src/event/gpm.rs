//! What the performance monitors of GPUs measure: `record --counters`.

use super::Uuid;

/// What the performance monitor (GPM) of a GPU measured between two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpm {
    /// The GPU.
    pub gpu: Uuid,
    /// The first sample.
    pub start: u64,
    /// The second sample.
    pub end: u64,
    /// Values by NVML's number of the metric (`nvmlGpmMetricId_t`), in thousandths of its unit: percent, or MiB per second.
    pub values: Vec<(u32, u64)>,
}

impl Gpm {
    /// Returns the number of each metric and its value in its unit.
    pub fn readings(&self) -> impl Iterator<Item = (u32, f64)> {
        self.values.iter().map(|&(number, value)| (number, value as f64 / 1e3))
    }
}
