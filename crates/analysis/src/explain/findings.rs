//! Findings. docs/findings.md has the thresholds of the rules.

use crate::findings::Kind;

/// How idle time is charged, which several findings share.
const GAPS: &str = "The gaps between intervals of GPU work, from CUPTI's time stamps. Each gap is charged to the thread whose \
                    launch ended it: to a launch, a wait, or the function that samples show.";
/// The samples of `--stalls`.
const STALLS: &str = "Samples of the program counters of warps by the hardware (record --stalls). They divide the exact time of \
                      the kernel among its lines.";
/// The counters of `--counters`.
const COUNTERS: &str = "Counters of the GPU (record --counters), over samples in which the kernel ran alone.";
/// How exact stall samples are.
const SAMPLED: &str = "Statistical: at least 50 samples at the line. A wait is counted at the instruction that waits, not at the \
                       one that caused it.";
/// How exact verdicts are.
const VERDICT: &str = "Means over samples. Kernels that never run alone are judged by samples that they had nearly to \
                       themselves, which the finding says.";

/// Returns other names of a finding, what it means, how it is measured, how exact it is, and what to do.
pub(super) fn explained(kind: Kind) -> (&'static [&'static str], [&'static str; 4]) {
    match kind {
        Kind::GpuIdle => (
            &["idle gpu"],
            [
                "A GPU did nothing for 10 % or more of the time between its first and last work. The title names what the \
                 thread that feeds it did meanwhile.",
                GAPS,
                "The idle time is exact. What it is charged to is exact for launches and recorded waits, and sampled for \
                 functions; without --off-cpu more of it is [unknown]. Work of processes that were not recorded looks like idle time.",
                "Change the line that is named: prepare input in other threads, launch work ahead, wait less often.",
            ],
        ),
        Kind::Start => (
            &[],
            [
                "No GPU worked in the first part of the recording: 20 % of it or more.",
                "The time from the start of the recording to the first GPU work, charged like idle time.",
                "Exact. In a short recording of a long job the start looks more important than it is.",
                "Import and load less before the first work, or record longer to see the steady state.",
            ],
        ),
        Kind::LaunchBound => (
            &["launch bound"],
            [
                "The GPU waits for launches: its kernels are shorter than the gaps between them, so the CPU decides the speed.",
                "At least 1,000 gaps below 50 us that take 20 % of the GPU's time and are longer than its kernels on average.",
                "Gaps are exact. Work that waits for another stream starts late, too, and looks the same.",
                "Launch fewer and longer kernels: CUDA graphs, fused operations, larger batches.",
            ],
        ),
        Kind::Synchronization => (
            &["synchronisation"],
            [
                "The program waits for the GPU again and again, and the GPU is idle while the program continues.",
                "Calls that wait, and copies that block, timed in CUPTI's callbacks: 100 waits or more, for 1 % of the time.",
                "Times are exact. The line is that of the copies of at most 4 KiB, or of most samples and waits; waits for \
                 events may be elsewhere than the idle time.",
                "Wait less often: read results later or all at once, keep conditions on the GPU.",
            ],
        ),
        Kind::CopiesAlone => (
            &[],
            [
                "Copies run while no kernel does, for 10 % or more of a GPU's time.",
                "The intervals of copies that overlap with no kernel, from CUPTI's time stamps.",
                "Exact. If the GPU would be idle anyway, overlapping the copies gains nothing.",
                "Copy on another stream from pinned memory while kernels run, or copy less.",
            ],
        ),
        Kind::PageableCopies => (
            &["pinned"],
            [
                "Copies use host memory that is not pinned, so the driver copies twice, and the call waits.",
                "CUPTI reports the kind of memory of each copy.",
                "Exact. The gain is at most the time of these copies.",
                "Allocate the buffers with cudaMallocHost, or pin_memory=True in a DataLoader.",
            ],
        ),
        Kind::TinyKernels => (
            &[],
            [
                "One line launches many kernels that are shorter than a launch takes.",
                "1,000 kernels or more from one line with less than 10 us on average, from CUPTI's time stamps.",
                "Counts and times are exact. That a launch takes 10 us is an assumption.",
                "Fuse the operations, process more elements per launch, or use a CUDA graph.",
            ],
        ),
        Kind::Imbalance => (
            &[],
            [
                "Some GPUs or ranks have much more work than others, which wait for them.",
                "The busy time of each GPU, or the time of the last work of each rank.",
                "Exact. Ranks may be meant to end early.",
                "Divide the work evenly: batches, layers or experts per GPU.",
            ],
        ),
        Kind::LateRank => (
            &["late rank", "straggler"],
            [
                "One rank delays collective operations again and again, for 5 % of the time or more; or each does in turn, for 10 %.",
                "When each member of a communicator was ready for an operation: its start, less what it waited elsewhere since the last one.",
                "Exact on one host. What the late one did comes from its samples and waits. Sends and receives are not judged.",
                "Do that work ahead of time, divide it evenly, or synchronise less often.",
            ],
        ),
        Kind::CollectiveMismatch => (
            &["mismatch"],
            [
                "Members of a communicator called different operations, or passed different sizes, at the same place of their order.",
                "The calls that NCCL reports by NVTX, numbered for each communicator.",
                "Exact. The odd one out is the one that fewer members called; it may be the only right one.",
                "Make all members call the same operations in the same order.",
            ],
        ),
        Kind::MissingMember => (
            &["missing rank"],
            [
                "A member of a communicator called nothing any more, and others called an operation that needs it.",
                "The calls that NCCL reports by NVTX: the missing process has ended, or the others called 10 s before the end or earlier.",
                "A process that was killed may have called what it could not report; then nothing is said.",
                "See what the missing one did last: it failed, took another branch, or waits elsewhere.",
            ],
        ),
        Kind::NoTensorCores => (
            &["tensor cores"],
            [
                "Matrix multiplications run in single precision on a GPU whose tensor cores could do them.",
                "The names of kernels of cuBLAS and CUTLASS, which contain the precision.",
                "A conclusion from names. It does not say whether the program needs the precision.",
                "Allow TF32, or use bfloat16 or half precision where the results allow it.",
            ],
        ),
        Kind::LowOccupancy => (
            &["occupancy low"],
            [
                "A kernel that takes 5 % of the time or more leaves multiprocessors partly empty: few warps fit.",
                "Registers, shared memory and block size of each launch, and the resources of the device.",
                "Exact as an upper limit of the warps. A kernel that needs few warps is fast all the same.",
                "Use fewer registers or less shared memory per block, or another block size, then compare with diff.",
            ],
        ),
        Kind::SmallGrid => (
            &["grid"],
            [
                "A kernel has blocks for half of the multiprocessors or fewer: the others do nothing for it.",
                "The number of blocks of each launch, and the multiprocessors of the device.",
                "Exact. Other kernels may run beside it and use the rest.",
                "Divide the work into more blocks, or run independent kernels on several streams.",
            ],
        ),
        Kind::Tail => (
            &["tail effect", "wave"],
            [
                "The last wave of blocks of a kernel leaves much of the device empty.",
                "The number of blocks of each launch over the blocks that the device holds at once.",
                "Exact for blocks of equal length. Blocks of unequal length fill the last wave better or worse.",
                "Choose a grid that is a multiple of a wave, or smaller blocks.",
            ],
        ),
        Kind::MemoryLatency => (
            &[],
            [
                "Warps wait at a line for data from global memory.",
                STALLS,
                SAMPLED,
                "Load earlier, coalesce accesses, keep data in shared memory, or let more warps run.",
            ],
        ),
        Kind::MemoryQueue => (
            &[],
            [
                "Warps wait at a line because too many accesses to global memory are under way.",
                STALLS,
                SAMPLED,
                "Use fewer and wider accesses: coalesced, vectorised, or from shared memory.",
            ],
        ),
        Kind::BankConflicts => (
            &["shared memory"],
            [
                "Warps wait at a line for shared memory or for special functions.",
                STALLS,
                "Statistical: at least 50 samples at the line. The reason covers shared memory and special functions alike.",
                "Pad or swizzle arrays in shared memory, and use fewer special functions.",
            ],
        ),
        Kind::Barrier => (
            &["syncthreads"],
            [
                "Warps wait at a barrier for other warps of their block.",
                STALLS,
                SAMPLED,
                "Give the warps of a block equal work, or use fewer barriers or smaller blocks.",
            ],
        ),
        Kind::MemoryBound => (
            &["bandwidth"],
            [
                "The kernel with the most time is limited by the bandwidth of the memory.",
                COUNTERS,
                VERDICT,
                "Move fewer bytes: fuse kernels, use a smaller type, reuse data in cache or shared memory.",
            ],
        ),
        Kind::LatencyBound => (
            &[],
            [
                "The kernel with the most time keeps no unit busy: it waits for instructions or memory to answer.",
                COUNTERS,
                VERDICT,
                "Let more warps run or give each more independent work; record with --stalls to see the line.",
            ],
        ),
        Kind::TooSmall => (
            &[],
            [
                "The kernel with the most time does not fill the device.",
                COUNTERS,
                VERDICT,
                "Give a launch more work, or run several at once on streams.",
            ],
        ),
        Kind::KernelLimit => (
            &["limits", "roofline"],
            [
                "A kernel with much time at a line is limited by something that can be changed: memory, a cache, latency, or branches \
                 that diverge.",
                "Hardware counters of single launches (record --limits), as shares of the peak while the kernel ran.",
                "Statistical: of the launches that were measured; within 2 % of ncu on an H200, but for kernels of some 50 us.",
                "What the finding says. `report --by limits` has all kernels and lines with their numbers.",
            ],
        ),
        Kind::MemoryPeak => (
            &["peak"],
            [
                "One line holds much of the GPU memory when most is in use, or much of what is held is free.",
                "Allocations and frees of CUDA and of PyTorch's allocator (record --memory), by the line that allocated.",
                "Exact for what was allocated while recording. Contexts and code of the driver are not counted.",
                "Free or reuse what the line holds, use a smaller batch, or recompute instead of keeping.",
            ],
        ),
    }
}
