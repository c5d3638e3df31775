//! The counters of GPUs over time: the mean and the maximum of each metric, and where they come from.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{Gpm, PmSamples, Uuid};

/// Where counters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Source {
    /// CUPTI's PM sampling.
    #[serde(rename = "PM")]
    Pm,
    /// The performance monitor that NVML offers.
    #[serde(rename = "GPM")]
    Gpm,
}

impl Source {
    /// Returns its short name, as in the names of tracks.
    pub fn text(self) -> &'static str {
        match self {
            Self::Pm => "PM",
            Self::Gpm => "GPM",
        }
    }

    /// Returns the name and the unit of a metric, if it is known.
    pub fn metric(self, number: u32) -> Option<(&'static str, CounterUnit)> {
        let metrics: &[(u32, &str, CounterUnit)] = match self {
            Self::Pm => &PM_METRICS,
            Self::Gpm => &GPM_METRICS,
        };
        metrics.iter().find(|metric| metric.0 == number).map(|(_, name, unit)| (*name, *unit))
    }
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CounterUnit {
    /// Percent.
    #[serde(rename = "%")]
    Percent,
    /// MiB per second.
    #[serde(rename = "MiB/s")]
    Rate,
}

impl CounterUnit {
    /// Returns it as text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Rate => "MiB/s",
        }
    }
}

/// NVML's numbers of metrics, their names here, and their units.
const GPM_METRICS: [(u32, &str, CounterUnit); 13] = [
    (1, "graphics active", CounterUnit::Percent),
    (2, "SM active", CounterUnit::Percent),
    (3, "SM occupancy", CounterUnit::Percent),
    (4, "integer pipe", CounterUnit::Percent),
    (5, "tensor pipe", CounterUnit::Percent),
    (10, "DRAM bandwidth", CounterUnit::Percent),
    (11, "FP64 pipe", CounterUnit::Percent),
    (12, "FP32 pipe", CounterUnit::Percent),
    (13, "FP16 pipe", CounterUnit::Percent),
    (20, "PCIe sent", CounterUnit::Rate),
    (21, "PCIe received", CounterUnit::Rate),
    (60, "NVLink received", CounterUnit::Rate),
    (61, "NVLink sent", CounterUnit::Rate),
];

/// The numbers of the metrics of PM sampling, which recordings contain.
pub mod pm {
    #![allow(missing_docs, reason = "the table of names says what each is")]
    pub const SM_ACTIVE: u32 = 0;
    pub const TENSOR_PIPE: u32 = 1;
    pub const ISSUED: u32 = 2;
    pub const DRAM_READ: u32 = 3;
    pub const DRAM_WRITE: u32 = 4;
    pub const DRAM_RATE: u32 = 5;
    pub const WARPS: u32 = 6;
    pub const GRAPHICS: u32 = 7;
    pub const PCIE_READ: u32 = 8;
    pub const PCIE_WRITE: u32 = 9;
    pub const NVLINK_RECEIVED: u32 = 10;
    pub const NVLINK_SENT: u32 = 11;
    /// How many there are.
    pub const COUNT: usize = 12;
}

/// Those numbers, the names of the metrics, and their units.
const PM_METRICS: [(u32, &str, CounterUnit); pm::COUNT] = [
    (pm::SM_ACTIVE, "SM active", CounterUnit::Percent),
    (pm::TENSOR_PIPE, "tensor pipe", CounterUnit::Percent),
    (pm::ISSUED, "instructions issued", CounterUnit::Percent),
    (pm::DRAM_READ, "DRAM read", CounterUnit::Percent),
    (pm::DRAM_WRITE, "DRAM write", CounterUnit::Percent),
    (pm::DRAM_RATE, "DRAM bandwidth", CounterUnit::Rate),
    (pm::WARPS, "warps active", CounterUnit::Percent),
    (pm::GRAPHICS, "graphics active", CounterUnit::Percent),
    (pm::PCIE_READ, "PCIe read", CounterUnit::Rate),
    (pm::PCIE_WRITE, "PCIe write", CounterUnit::Rate),
    (pm::NVLINK_RECEIVED, "NVLink received", CounterUnit::Rate),
    (pm::NVLINK_SENT, "NVLink sent", CounterUnit::Rate),
];

/// The maximum number of GPUs.
const MAX_GPUS: usize = 64;

/// A metric of a GPU over the whole recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterSum {
    /// The GPU's number as shown.
    pub gpu: String,
    /// Where it comes from.
    pub source: Source,
    /// The metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: CounterUnit,
    /// The mean, weighted by time.
    pub mean: f64,
    /// The largest mean of one interval.
    pub max: f64,
    /// Intervals.
    pub intervals: u64,
    /// Their mean length.
    pub interval_ns: u64,
}

/// Sums by GPU and metric.
#[derive(Default)]
pub struct CounterSums(BTreeMap<Uuid, BTreeMap<(Source, u32), Sum>>);

#[derive(Default)]
struct Sum {
    /// Thousandths of the unit, times nanoseconds.
    weighted: u128,
    max: u64,
    ns: u64,
    intervals: u64,
}

impl CounterSums {
    /// Adds what NVML's performance monitor measured between two samples.
    pub fn add_gpm(&mut self, gpm: &Gpm) {
        let ns = gpm.end.saturating_sub(gpm.start);
        self.add(gpm.gpu, Source::Gpm, ns, gpm.values.iter().copied());
    }

    /// Adds samples of CUPTI's PM sampling.
    pub fn add_pm(&mut self, pm: &PmSamples) {
        for (start, end, values) in pm.samples() {
            let thousandths = values.iter().map(|value| u64::from(*value) * 10);
            self.add(pm.gpu, Source::Pm, end.saturating_sub(start), pm.metrics.iter().copied().zip(thousandths));
        }
    }

    fn add(&mut self, gpu: Uuid, source: Source, ns: u64, values: impl Iterator<Item = (u32, u64)>) {
        if ns == 0 || (self.0.len() >= MAX_GPUS && !self.0.contains_key(&gpu)) {
            return;
        }
        let of_gpu = self.0.entry(gpu).or_default();
        for (number, value) in values.filter(|(number, _)| source.metric(*number).is_some()) {
            let sum = of_gpu.entry((source, number)).or_default();
            sum.weighted = sum.weighted.saturating_add(u128::from(value) * u128::from(ns));
            sum.max = sum.max.max(value);
            sum.ns = sum.ns.saturating_add(ns);
            sum.intervals += 1;
        }
    }

    /// Returns all sums of the GPUs for which `label` has a label.
    pub fn finish(self, label: impl Fn(Uuid) -> Option<String>) -> Vec<CounterSum> {
        let mut all = Vec::new();
        for (gpu, sums) in self.0 {
            let Some(label) = label(gpu) else { continue };
            for ((source, number), Sum { weighted, max, ns, intervals }) in sums {
                let Some((metric, unit)) = source.metric(number) else { continue };
                let (mean, max) = (weighted as f64 / ns as f64 / 1e3, max as f64 / 1e3);
                let gpu = label.clone();
                all.push(CounterSum { gpu, source, metric, unit, mean, max, intervals, interval_ns: ns / intervals });
            }
        }
        all.sort_by(|a, b| a.gpu.cmp(&b.gpu));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that means are weighted by time, and that unknown metrics and GPUs are left out.
    #[test]
    fn means_are_weighted_by_time() {
        let mut sums = CounterSums::default();
        let gpm = |gpu, start, end, values: &[(u32, u64)]| Gpm { gpu: Uuid(gpu), start, end, values: values.to_vec() };
        sums.add_gpm(&gpm(7, 100, 200, &[(2, 30_000), (999, 1)]));
        sums.add_gpm(&gpm(7, 200, 500, &[(2, 50_000), (20, 2_500)]));
        sums.add_gpm(&gpm(7, 500, 500, &[(2, 99_000)]));
        sums.add_gpm(&gpm(8, 0, 100, &[(2, 99_000)]));
        let (metrics, values) = (vec![pm::DRAM_RATE, 99, pm::SM_ACTIVE], vec![12_345, 1, 5_000, 12_345, 1, 7_000, 3]);
        sums.add_pm(&PmSamples {
            gpu: Uuid(7),
            start: 100,
            metrics,
            times: vec![(0, 100), (100, 400), (400, 500)],
            values,
        });
        let all = sums.finish(|gpu| (gpu == Uuid(7)).then(|| "0".to_owned()));
        let rows: Vec<_> =
            all.iter().map(|s| (s.source, s.metric, s.mean, s.max, s.intervals, s.interval_ns)).collect();
        let expected = [
            (Source::Pm, "SM active", 65.0, 70.0, 2, 200),
            (Source::Pm, "DRAM bandwidth", 123.45, 123.45, 2, 200),
            (Source::Gpm, "SM active", 45.0, 50.0, 2, 200),
            (Source::Gpm, "PCIe sent", 2.5, 2.5, 1, 300),
        ];
        assert_eq!(rows, expected);
    }
}
