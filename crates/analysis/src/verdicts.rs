//! What limits each kernel, by the counters of the GPUs.

use std::collections::BTreeMap;

use model::{
    gpu_counters::pm,
    profile::Profile,
    verdict::{Assigned, KernelSamples, Verdict},
};
use serde::Serialize;

use crate::names;

/// The most kernels in a summary.
const MOST: usize = 100;

/// The verdicts of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictSummary {
    /// Kernels, those with the most time first.
    pub kernels: Vec<KernelVerdict>,
    /// How the samples were assigned.
    pub samples: Assigned,
}

/// A kernel, what it used, and what limits it. Values are means over its samples; absent if the GPU has no such counter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelVerdict {
    /// Its name.
    pub kernel: String,
    /// The index of the name.
    #[serde(skip)]
    pub index: u32,
    /// What limits it.
    pub verdict: Verdict,
    /// Its time, all runs together.
    pub ns: u64,
    /// Its share of the GPU time of all work.
    pub share: f64,
    /// Samples in which it ran alone.
    pub samples: u64,
    /// Samples that it had nearly to itself, if it is judged by these because there are too few of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_samples: Option<u64>,
    /// The share of other kernels in these, 0 to 1. The kernel's own values may differ by as much, relative to the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_share: Option<f64>,
    /// SMs that were active, in percent.
    pub sm_active: Option<f64>,
    /// The tensor pipe, in percent of its peak.
    pub tensor: Option<f64>,
    /// Reads and writes of the memory, in percent of its peak.
    pub dram: Option<f64>,
    /// The same in bytes per second.
    pub dram_bytes_per_second: Option<f64>,
    /// Instructions issued, in percent of the peak.
    pub issued: Option<f64>,
}

/// Sums up the verdicts of a profile; `None` without samples.
pub(crate) fn summary(profile: &Profile) -> Option<VerdictSummary> {
    let mut kernels = all(profile);
    kernels.truncate(MOST);
    (profile.assigned.samples > 0).then_some(VerdictSummary { kernels, samples: profile.assigned })
}

/// Returns the verdict of each kernel, those with the most time first. Empty without samples.
pub(crate) fn all(profile: &Profile) -> Vec<KernelVerdict> {
    if profile.assigned.samples == 0 {
        return Vec::new();
    }
    let mut times: BTreeMap<u32, u64> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        if let Some(kernel) = key.what.kernel() {
            let ns = times.entry(kernel).or_default();
            *ns = ns.saturating_add(weight.ns);
        }
    }
    let whole = profile.gpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
    let none = KernelSamples::default();
    let row = |(index, ns): (u32, u64)| {
        let samples = profile.kernel_samples.get(&index).unwrap_or(&none);
        KernelVerdict {
            kernel: names::kernel(profile, index).to_owned(),
            index,
            verdict: samples.verdict(),
            ns,
            share: if whole == 0 { 0.0 } else { ns as f64 / whole as f64 },
            samples: samples.samples,
            shared_samples: samples.is_shared().then_some(samples.shared),
            others_share: samples.is_shared().then(|| samples.others()),
            sm_active: samples.mean(pm::SM_ACTIVE),
            tensor: samples.mean(pm::TENSOR_PIPE),
            dram: samples.dram(),
            dram_bytes_per_second: samples.mean(pm::DRAM_RATE).map(|rate| rate * 1_048_576.0),
            issued: samples.mean(pm::ISSUED),
        }
    };
    let mut rows: Vec<KernelVerdict> = times.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.kernel.cmp(&b.kernel)));
    rows
}
