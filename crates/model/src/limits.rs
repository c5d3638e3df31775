//! What hardware counters counted for single launches, summed up by kernel, shape and call path.
//!
//! CUPTI counts in a range that is longer than the kernel by some microseconds. A share of the peak is one of the range's
//! time: times the length of the range, and divided by that of the kernel, which has an exact record, it is that of the
//! kernel. Counts need no correction.

use cuda::occupancy::Shape;
use rustc_hash::FxHashMap;

use crate::event::{ProcessId, StackId};

/// The metrics by number, as CUPTI names them. A number never changes its meaning.
pub const METRICS: [&str; 35] = [
    "gpu__time_duration.sum",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "lts__t_tag_requests.avg.pct_of_peak_sustained_elapsed",
    "lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_sectors_lookup_hit.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "sm__ops_path_tensor_op_hgmma_src_fp16.sum",
    "sm__ops_path_tensor_src_fp8.sum",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_sectors.sum",
    "lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors_lookup_hit.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "sm__thread_inst_executed_pipe_fma_pred_on.sum",
    "lts__t_sectors_lookup_miss.sum",
    "sm__thread_inst_executed_pipe_fp64_pred_on.sum",
    "sm__ops_path_tensor_src_fp64.sum",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
];

/// Stands for a metric where a launch is announced: its values follow once the library has read them.
pub const ANNOUNCED: u32 = 255;

/// The numbers of metrics.
#[allow(missing_docs, reason = "METRICS has their names")]
pub mod metric {
    pub const TIME: usize = 0;
    pub const SM_ACTIVE: usize = 1;
    pub const WARPS: usize = 2;
    pub const ISSUE: usize = 3;
    pub const TENSOR: usize = 4;
    pub const DRAM: usize = 5;
    pub const DRAM_READ: usize = 6;
    pub const DRAM_WRITE: usize = 7;
    pub const L2_SECTORS: usize = 8;
    pub const L2_TAGS: usize = 9;
    pub const L2_ATOMICS: usize = 10;
    pub const L1_DATA: usize = 11;
    pub const FP64: usize = 12;
    pub const L1_HITS: usize = 13;
    pub const LOAD_SECTORS: usize = 14;
    pub const FP16_TENSOR_OPS: usize = 15;
    pub const FP8_TENSOR_OPS: usize = 16;
    pub const FMA: usize = 17;
    pub const ALU: usize = 18;
    pub const L1_SECTORS: usize = 19;
    pub const L2_TO_SM: usize = 20;
    pub const BANK_CONFLICTS: usize = 21;
    pub const SHARED_WAVEFRONTS: usize = 22;
    pub const XU: usize = 23;
    pub const LSU: usize = 24;
    pub const L2_HITS: usize = 25;
    pub const LOAD_REQUESTS: usize = 26;
    pub const INSTRUCTIONS: usize = 27;
    pub const THREAD_INSTRUCTIONS: usize = 28;
    pub const FMA_THREADS: usize = 29;
    pub const L2_MISSES: usize = 30;
    pub const FP64_THREADS: usize = 31;
    pub const FP64_TENSOR_OPS: usize = 32;
    pub const BF16_TENSOR_OPS: usize = 33;
    pub const TF32_TENSOR_OPS: usize = 34;
}

/// A larger share of a peak, in percent, is impossible, but for what is measured at its beginning and end.
const MOST_OF_PEAK: f64 = 105.0;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitKey {
    /// The process.
    pub process: ProcessId,
    /// The stack that launched it.
    pub stack: StackId,
    /// The index of the kernel's name.
    pub kernel: u32,
    /// The device's number.
    pub device: u32,
    /// How it was launched.
    pub shape: Shape,
}

/// The launches that were measured, by what they are.
pub type KernelLimits = FxHashMap<LimitKey, Measured>;

/// Sums over launches that were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Launches.
    pub launches: u64,
    /// Of each metric: the values (shares: times the length of the kernels), and the length of the kernels that have it.
    sums: [(f64, u64); METRICS.len()],
}

impl Default for Measured {
    fn default() -> Self {
        Self { launches: 0, sums: [(0.0, 0); METRICS.len()] }
    }
}

/// What the value of a metric is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    Count,
    /// A share of what is possible in the range.
    OfRange,
    /// A share of what is possible while SMs are active.
    OfActive,
}

fn scale(metric: usize) -> Scale {
    match METRICS.get(metric) {
        Some(name) if name.ends_with("_elapsed") => Scale::OfRange,
        Some(name) if name.ends_with("_active") => Scale::OfActive,
        _ => Scale::Count,
    }
}

impl Measured {
    /// Adds a launch: its values by metric, and how long its kernel ran. Returns false, and adds nothing, if they cannot be those
    /// of the kernel: something else ran in the range, such as a copy of its code to the GPU.
    pub fn add(&mut self, values: &[(u32, f64)], ns: u64) -> bool {
        let range = values.iter().find(|(metric, _)| *metric as usize == metric::TIME).map(|(_, time)| *time);
        let too_large = |(metric, value): &(u32, f64)| {
            scale(*metric as usize) == Scale::OfRange
                && range.is_some_and(|range| value * range > MOST_OF_PEAK * ns as f64)
        };
        if ns == 0 || values.iter().any(too_large) {
            return false;
        }
        self.launches += 1;
        for (metric, value) in values {
            let metric = *metric as usize;
            let value = match (scale(metric), range) {
                (Scale::Count, _) => *value,
                (Scale::OfActive, _) => value * ns as f64,
                (Scale::OfRange, Some(range)) => value * range,
                // Nobody knows what it is a share of.
                (Scale::OfRange, None) => continue,
            };
            if let Some((sum, time)) = self.sums.get_mut(metric)
                && value.is_finite()
            {
                (*sum, *time) = (*sum + value, time.saturating_add(ns));
            }
        }
        true
    }

    /// Adds others.
    pub fn merge(&mut self, other: &Self) {
        self.launches += other.launches;
        for ((sum, time), (more, longer)) in self.sums.iter_mut().zip(&other.sums) {
            (*sum, *time) = (*sum + more, time.saturating_add(*longer));
        }
    }

    /// Returns a share of the peak in percent, or a count per second.
    pub fn value(&self, metric: usize) -> Option<f64> {
        let (sum, time) = self.sums.get(metric).copied().filter(|(_, time)| *time > 0)?;
        Some(if scale(metric) == Scale::Count { sum * 1e9 / time as f64 } else { sum / time as f64 })
    }

    /// Returns the ratio of two counts. They may be of different launches.
    pub fn ratio(&self, of: usize, by: usize) -> Option<f64> {
        let (of, by) = (self.value(of)?, self.value(by)?);
        (by > 0.0).then(|| of / by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that shares are those while the kernel ran, that counts become rates, and that launches count by their length.
    #[test]
    fn shares_are_those_of_the_kernel() {
        let mut all = Measured::default();
        let of = |range: f64, dram: f64, bytes: f64| {
            vec![
                (metric::TIME as u32, range),
                (metric::DRAM as u32, dram),
                (metric::DRAM_READ as u32, bytes),
                (metric::WARPS as u32, 50.0),
            ]
        };
        // Half of the range is the kernel's.
        all.add(&of(20_000.0, 40.0, 1e6), 10_000);
        assert_eq!(all.value(metric::DRAM), Some(80.0));
        assert_eq!(all.value(metric::DRAM_READ), Some(1e11));
        assert_eq!(all.value(metric::WARPS), Some(50.0));
        all.add(&of(40_000.0, 15.0, 0.0), 30_000);
        assert_eq!(all.value(metric::DRAM), Some((80.0 + 3.0 * 20.0) / 4.0));
        assert_eq!((all.value(metric::FMA), all.launches), (None, 2));
        all.add(&[(metric::FMA as u32, 40.0), (99, 1.0)], 1);
        assert_eq!(all.value(metric::FMA), None, "without the length of the range");
    }

    /// Check that the last launch without a time changes nothing, and that ratios need a divisor.
    #[test]
    fn ratios_and_empty_launches() {
        let mut all = Measured::default();
        all.add(&[(metric::INSTRUCTIONS as u32, 2.0)], 0);
        assert_eq!(all.launches, 0);
        assert!(!all.add(&[(metric::TIME as u32, 20.0), (metric::DRAM as u32, 52.6)], 10), "105.2 % of the peak");
        assert!(all.add(&[(metric::TIME as u32, 20.0), (metric::DRAM as u32, 52.5)], 10));
        all.add(&[(metric::INSTRUCTIONS as u32, 2.0), (metric::THREAD_INSTRUCTIONS as u32, 32.0)], 10);
        all.add(&[(metric::L2_HITS as u32, 2.0), (metric::L2_MISSES as u32, 0.0)], 10);
        assert_eq!(all.ratio(metric::THREAD_INSTRUCTIONS, metric::INSTRUCTIONS), Some(16.0));
        assert_eq!(all.ratio(metric::L2_HITS, metric::L2_MISSES), None);
    }
}
