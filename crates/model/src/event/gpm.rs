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
