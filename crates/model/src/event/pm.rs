//! Samples of the counters of GPUs, by CUPTI's PM sampling: `record --counters`.

use super::Uuid;

/// Samples of the counters of a GPU, in order of time. There are many of them, so they share what they have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmSamples {
    /// The GPU.
    pub gpu: Uuid,
    /// The time from which the others count.
    pub start: u64,
    /// The numbers of the metrics ([`crate::gpu_counters::pm`]).
    pub metrics: Vec<u32>,
    /// The beginning and the end of each sample, in nanoseconds after `start`.
    pub times: Vec<(u64, u64)>,
    /// As many values as metrics for each sample, in hundredths of their unit: percent, or MiB per second.
    pub values: Vec<u32>,
}

impl PmSamples {
    /// Returns each sample: its beginning, its end, and its values in the order of the metrics.
    pub fn samples(&self) -> impl Iterator<Item = (u64, u64, &[u32])> {
        let values = self.values.chunks_exact(self.metrics.len().max(1));
        let at = |after: u64| self.start.saturating_add(after);
        self.times.iter().zip(values).map(move |((from, to), values)| (at(*from), at(*to), values))
    }

    /// Returns each sample: its beginning, its end, and the number of each metric and its value in its unit.
    pub fn readings(&self) -> impl Iterator<Item = (u64, u64, impl Iterator<Item = (u32, f64)>)> {
        self.samples().map(|(start, end, values)| {
            let values = values.iter().map(|value| f64::from(*value) / 1e2);
            (start, end, self.metrics.iter().copied().zip(values))
        })
    }

    /// Returns the end of the last sample.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.times.last().map_or(0, |(_, end)| *end))
    }
}
