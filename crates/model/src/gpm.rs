//! The performance monitors of GPUs (GPM, through NVML): the mean and the maximum of each metric.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{Gpm, Uuid};

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GpmUnit {
    /// Percent.
    #[serde(rename = "%")]
    Percent,
    /// MiB per second.
    #[serde(rename = "MiB/s")]
    Rate,
}

impl GpmUnit {
    /// Returns it as text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Rate => "MiB/s",
        }
    }
}

/// NVML's numbers of metrics, their names here, and their units.
const METRICS: [(u32, &str, GpmUnit); 13] = [
    (1, "graphics active", GpmUnit::Percent),
    (2, "SM active", GpmUnit::Percent),
    (3, "SM occupancy", GpmUnit::Percent),
    (4, "integer pipe", GpmUnit::Percent),
    (5, "tensor pipe", GpmUnit::Percent),
    (10, "DRAM bandwidth", GpmUnit::Percent),
    (11, "FP64 pipe", GpmUnit::Percent),
    (12, "FP32 pipe", GpmUnit::Percent),
    (13, "FP16 pipe", GpmUnit::Percent),
    (20, "PCIe sent", GpmUnit::Rate),
    (21, "PCIe received", GpmUnit::Rate),
    (60, "NVLink received", GpmUnit::Rate),
    (61, "NVLink sent", GpmUnit::Rate),
];

/// Returns the name and the unit of a metric, if it is known.
pub fn metric(number: u32) -> Option<(&'static str, GpmUnit)> {
    METRICS.iter().find(|metric| metric.0 == number).map(|(_, name, unit)| (*name, *unit))
}

/// The maximum number of GPUs.
const MAX_GPUS: usize = 64;

/// A metric of a GPU over the whole recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpmSum {
    /// The GPU's number as shown.
    pub gpu: String,
    /// The metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: GpmUnit,
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
pub struct GpmSums(BTreeMap<Uuid, BTreeMap<u32, Sum>>);

#[derive(Default)]
struct Sum {
    /// Thousandths of the unit, times nanoseconds.
    weighted: u128,
    max: u64,
    ns: u64,
    intervals: u64,
}

impl GpmSums {
    /// Adds what was measured between two samples.
    pub fn add(&mut self, gpm: &Gpm) {
        let ns = gpm.end.saturating_sub(gpm.start);
        if ns == 0 || (self.0.len() >= MAX_GPUS && !self.0.contains_key(&gpm.gpu)) {
            return;
        }
        let of_gpu = self.0.entry(gpm.gpu).or_default();
        for (number, value) in gpm.values.iter().filter(|(number, _)| metric(*number).is_some()) {
            let sum = of_gpu.entry(*number).or_default();
            sum.weighted = sum.weighted.saturating_add(u128::from(*value) * u128::from(ns));
            sum.max = sum.max.max(*value);
            sum.ns = sum.ns.saturating_add(ns);
            sum.intervals += 1;
        }
    }

    /// Returns all sums of the GPUs for which `label` has a label.
    pub fn finish(self, label: impl Fn(Uuid) -> Option<String>) -> Vec<GpmSum> {
        let mut all = Vec::new();
        for (gpu, sums) in self.0 {
            let Some(label) = label(gpu) else { continue };
            for (number, Sum { weighted, max, ns, intervals }) in sums {
                let Some((metric, unit)) = metric(number) else { continue };
                let (mean, max) = (weighted as f64 / ns as f64 / 1e3, max as f64 / 1e3);
                let gpu = label.clone();
                all.push(GpmSum { gpu, metric, unit, mean, max, intervals, interval_ns: ns / intervals });
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
        let mut sums = GpmSums::default();
        let gpm = |gpu, start, end, values: &[(u32, u64)]| Gpm { gpu: Uuid(gpu), start, end, values: values.to_vec() };
        sums.add(&gpm(7, 100, 200, &[(2, 30_000), (999, 1)]));
        sums.add(&gpm(7, 200, 500, &[(2, 50_000), (20, 2_500)]));
        sums.add(&gpm(7, 500, 500, &[(2, 99_000)]));
        sums.add(&gpm(8, 0, 100, &[(2, 99_000)]));
        let all = sums.finish(|gpu| (gpu == Uuid(7)).then(|| "0".to_owned()));
        let rows: Vec<_> = all.iter().map(|s| (s.metric, s.mean, s.max, s.intervals, s.interval_ns)).collect();
        assert_eq!(rows, [("SM active", 45.0, 50.0, 2, 200), ("PCIe sent", 2.5, 2.5, 1, 300)]);
    }
}
