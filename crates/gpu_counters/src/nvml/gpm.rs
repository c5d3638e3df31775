//! The GPU performance monitor, available from Hopper on: the utilisation of a GPU's units between two samples.

use std::{ffi::c_uint, ptr::null};

use super::abi::{Functions, GPM_ROOM, GPM_VERSION, GpmMetric, GpmMetrics, GpmSample, GpmSupport, Handle, SUCCESS};
use crate::clock::now;

/// Metrics that are percentages, and their names here.
const SHARES: [(c_uint, &str); 9] = [
    (1, "graphics"),
    (2, "sm"),
    (3, "sm_occupancy"),
    (4, "integer"),
    (5, "tensor"),
    (10, "dram_bandwidth"),
    (11, "fp64"),
    (12, "fp32"),
    (13, "fp16"),
];
/// Sent and received over PCIe, in MiB per second.
const PCIE: [c_uint; 2] = [20, 21];

/// Received and sent over all NVLinks, in MiB per second.
const NVLINK: [c_uint; 2] = [60, 61];

/// The values of one reading.
#[derive(Default)]
pub(crate) struct Readings {
    /// The time of the older sample.
    pub(crate) start: u64,
    /// The time of the newer one.
    pub(crate) end: u64,
    /// All values, by NVML's number of the metric and in its unit.
    pub(crate) values: Vec<(u32, f64)>,
    /// Shares from 0 to 1, by name.
    pub(crate) shares: Vec<(&'static str, f64)>,
    /// Bytes per second.
    pub(crate) pcie_sent: Option<u64>,
    /// Bytes per second.
    pub(crate) pcie_received: Option<u64>,
}

/// Two samples of one GPU, the older one first.
pub(crate) struct Gpm {
    samples: [GpmSample; 2],
    filled: bool,
    /// When the newer sample was taken.
    time: u64,
}

// SAFETY: samples are plain memory of NVML's, used by one thread at a time.
unsafe impl Send for Gpm {}

impl Gpm {
    /// Creates the monitor of a GPU that has one.
    pub(crate) fn new(functions: &Functions, device: Handle) -> Option<Self> {
        let (support, alloc) = (functions.gpm_support?, functions.gpm_alloc?);
        functions.gpm_free.and(functions.gpm_sample).and(functions.gpm_metrics)?;
        let mut answer = GpmSupport { version: GPM_VERSION, supported: 0 };
        // SAFETY: the handle is NVML's, and the structure contains its version.
        if unsafe { support(device, &mut answer) } != SUCCESS || answer.supported == 0 {
            return None;
        }
        let mut samples = [std::ptr::null_mut(); 2];
        for place in 0..samples.len() {
            // SAFETY: NVML writes a pointer.
            if unsafe { alloc(&mut samples[place]) } != SUCCESS {
                Self { samples, filled: false, time: 0 }.free(functions);
                return None;
            }
        }
        Some(Self { samples, filled: false, time: 0 })
    }

    /// Returns the values since the last call; nothing on the first call and on a partitioned GPU (MIG), where samples
    /// of the whole GPU are refused.
    pub(crate) fn read(&mut self, functions: &Functions, device: Handle) -> Option<Readings> {
        let (sample, metrics) = (functions.gpm_sample?, functions.gpm_metrics?);
        self.samples.swap(0, 1);
        let end = now();
        let start = std::mem::replace(&mut self.time, end);
        // SAFETY: the handle and the sample are NVML's.
        let sampled = unsafe { sample(device, self.samples[1]) } == SUCCESS;
        let both = std::mem::replace(&mut self.filled, sampled) && sampled;
        if !both {
            return None;
        }
        let empty = GpmMetric { metric: 0, result: SUCCESS, value: 0.0, names: [null(); 3] };
        let mut get = Box::new(GpmMetrics {
            version: GPM_VERSION,
            count: (SHARES.len() + PCIE.len() + NVLINK.len()) as c_uint,
            first: self.samples[0],
            second: self.samples[1],
            metrics: [empty; GPM_ROOM],
        });
        let requested = || SHARES.iter().map(|(metric, _)| *metric).chain(PCIE).chain(NVLINK);
        for (slot, metric) in get.metrics.iter_mut().zip(requested()) {
            slot.metric = metric;
        }
        // SAFETY: the structure contains its version and the number of metrics requested, and has capacity for more.
        if unsafe { metrics(&mut *get) } != SUCCESS {
            return None;
        }
        let value = |place: usize| {
            let metric = &get.metrics[place];
            (metric.result == SUCCESS && metric.value.is_finite() && metric.value >= 0.0).then_some(metric.value)
        };
        let mebibytes = |place| value(place).map(|rate| (rate * 1_048_576.0) as u64);
        Some(Readings {
            start,
            end,
            values: requested().enumerate().filter_map(|(place, metric)| Some((metric, value(place)?))).collect(),
            shares: SHARES
                .iter()
                .enumerate()
                .filter_map(|(place, (_, name))| Some((*name, (value(place)? / 100.0).min(1.0))))
                .collect(),
            pcie_sent: mebibytes(SHARES.len()),
            pcie_received: mebibytes(SHARES.len() + 1),
        })
    }

    /// Frees the samples.
    pub(crate) fn free(self, functions: &Functions) {
        if let Some(free) = functions.gpm_free {
            for sample in self.samples.into_iter().filter(|sample| !sample.is_null()) {
                // SAFETY: each was allocated by NVML, and is not used again.
                unsafe { free(sample) };
            }
        }
    }
}
