//! The hardware counters that `record --limits` reads for single launches.
//!
//! A launch runs once, so only what one pass of the hardware can count is read for it. The metrics are in groups, each of
//! which fits into one pass on a GH100; where one does not fit, the library splits it. What a chip does not have is left
//! out. No metric is one that CUPTI gets by changing the kernel's code (`smsp__sass_...`): these kernels took up to 10
//! times as long on an H200.

use core::ffi::CStr;

/// The names that CUPTI gives them. Their places are their numbers, in messages and in recordings: they never change.
pub const METRICS: [&CStr; 35] = [
    // How long the range lasted: in every group.
    c"gpu__time_duration.sum",
    c"sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"sm__warps_active.avg.pct_of_peak_sustained_active",
    c"smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    c"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"dram__throughput.avg.pct_of_peak_sustained_elapsed",
    c"dram__bytes_read.sum",
    c"dram__bytes_write.sum",
    c"lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    c"lts__t_tag_requests.avg.pct_of_peak_sustained_elapsed",
    c"lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    c"sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"l1tex__t_sectors_lookup_hit.sum",
    c"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    c"sm__ops_path_tensor_op_hgmma_src_fp16.sum",
    c"sm__ops_path_tensor_src_fp8.sum",
    c"sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"l1tex__t_sectors.sum",
    c"lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    c"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    c"sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    c"sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed",
    c"lts__t_sectors_lookup_hit.sum",
    c"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    c"smsp__inst_executed.sum",
    c"smsp__thread_inst_executed.sum",
    c"sm__thread_inst_executed_pipe_fma_pred_on.sum",
    c"lts__t_sectors_lookup_miss.sum",
    c"sm__thread_inst_executed_pipe_fp64_pred_on.sum",
    c"sm__ops_path_tensor_src_fp64.sum",
    c"sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    c"sm__ops_path_tensor_src_tf32_dst_fp32.sum",
];

/// The time of the range, in nanoseconds.
pub const TIME: u8 = 0;

/// Stands for a metric in a message that announces a launch: its values follow.
pub const ANNOUNCED: u8 = 255;

/// The groups, the most important first: the first metric of each, and the one after its last.
pub const GROUPS: [(u8, u8); 7] = [(1, 17), (17, 23), (23, 29), (29, 31), (31, 33), (33, 34), (34, 35)];

/// The kernel with which CUPTI separates ranges. It has a record, with the correlation id of the launch in the range.
pub const SEPARATOR: &CStr = c"WaitNs";

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each metric but the time is in one group.
    #[test]
    fn groups_have_every_metric_once() {
        let all = GROUPS.iter().flat_map(|(first, end)| *first..*end);
        assert!(all.eq(1..METRICS.len() as u8));
    }
}
