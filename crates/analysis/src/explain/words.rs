//! Words of summaries, and tables.

use super::entry::{Entry, Kind};
use crate::Table;

const fn word(name: &'static str, also: &'static [&'static str], texts: [&'static str; 4]) -> Entry {
    Entry::of(Kind::Word, (name, also), texts)
}

const NOTHING: &str = "Nothing: it is information.";

pub(super) const ALL: &[Entry] = &[
    word(
        "matched",
        &["unmatched", "join", "correlation id"],
        [
            "The share of kernels, copies and memsets whose launch is known, so that they appear under the code that caused them.",
            "Each operation is joined to its launch by process and correlation id, never by time or order.",
            "Exact, and rounded down: 100 % means all.",
            "Below 100 % read the ledger: it says what was lost, and why.",
        ],
    ),
    word(
        "ledger",
        &["the ledger", "losses", "lost", "dropped"],
        [
            "Everything that could not be recorded, by name and number.",
            "Every place that drops something has a counter, and every counter a name and a sentence.",
            "Exact, but for what CUPTI or the kernel does not report as lost.",
            "`report --by ledger` prints all counts. A conclusion about what was lost is not possible.",
        ],
    ),
    word(
        "idle",
        &["idle time", "GPU idle time", "idle gap"],
        [
            "Time between a GPU's first and last work in which it did nothing.",
            "The gaps between intervals of GPU work, from CUPTI's time stamps.",
            "Exact. Its cause is exact for launches and recorded waits, sampled for functions.",
            "`report --by idle` lists what it is charged to; see the finding gpu-idle.",
        ],
    ),
    word(
        "busy",
        &["GPU busy time", "busy share"],
        [
            "Time in which at least one kernel, copy or memset ran on a GPU.",
            "The union of the intervals of GPU work.",
            "Exact. It does not say how full the GPU was: see occupancy.",
            NOTHING,
        ],
    ),
    word(
        "GPU time",
        &["gpu_time", "of GPU", "gpu share"],
        [
            "The durations of all kernels, copies and memsets, added up. Concurrent work counts twice, so it may exceed the wall time.",
            "CUPTI's time stamps of each operation.",
            "Exact.",
            "Shares of GPU time say where the GPU worked, not why the program is slow: look at idle time first.",
        ],
    ),
    word(
        "wall time",
        &["wall", "recorded time"],
        [
            "From the start to the end of the recording.",
            "CLOCK_MONOTONIC, the clock of all time stamps.",
            "Exact; one run differs from the next by some percent.",
            "Compare several runs: `warpscope diff A1 A2 -- B1 B2`.",
        ],
    ),
    word(
        "CPU time",
        &["CPU sample", "sample", "samples", "sampling"],
        [
            "The time that CPU samples stand for.",
            "Each CPU is interrupted -F times per second of its running time, and the stack is taken.",
            "Statistical: a share of n samples is off by about 1 / sqrt(n).",
            "Record longer or with a higher -F for small functions.",
        ],
    ),
    word(
        "launch",
        &["launches"],
        [
            "A call that gives a GPU work: a kernel, a copy, a memset or a graph.",
            "CUPTI's callbacks in the process; the stack is taken at the call.",
            "Exact; launches that were lost are in the ledger.",
            NOTHING,
        ],
    ),
    word(
        "pending",
        &["pending launch", "pending launches"],
        [
            "Launches whose GPU work was never reported. They have no time.",
            "Launches without an operation of the same correlation id.",
            "Exact.",
            "The program ended before the GPU did, or records were lost: see the ledger.",
        ],
    ),
    word(
        "launch-bound gaps",
        &["short gaps", "gaps"],
        [
            "Gaps below 50 us between GPU work: as short as a launch takes.",
            "CUPTI's time stamps.",
            "Exact.",
            "See the finding launch-bound.",
        ],
    ),
    word(
        "step",
        &["steps", "iteration"],
        [
            "An iteration of the loop that launches most of a process's work.",
            "Found in the order of its launches, or defined with --step.",
            "The boundaries are launches; work of one step may run while the next is launched.",
            "`report --by steps` compares them; `report --step slowest` shows one.",
        ],
    ),
    word(
        "overhead",
        &["cost", "cost of collecting"],
        [
            "What the recording cost the program.",
            "The time of probes and of the injected library, measured in the run itself.",
            "A lower bound: caches that the tool evicts are not measured.",
            "--max-overhead PERCENT limits it by sampling stacks.",
        ],
    ),
    word(
        "occupancy",
        &[],
        [
            "The warps that a multiprocessor can hold of a kernel, as a share of those that fit.",
            "Registers, shared memory and block size of each launch, and the resources of the device.",
            "Exact as an upper limit; what was reached at run time may be less.",
            "See low-occupancy, small-grid and tail.",
        ],
    ),
    word(
        "path",
        &["paths", "call path", "stack"],
        [
            "The functions from the process to the line that launched or ran something.",
            "Unwind tables and the interpreter's own structures, at the moment of the launch or sample.",
            "Exact. A stack that ends early is counted by the reason why it ended.",
            NOTHING,
        ],
    ),
    word(
        "user code",
        &["place", "line"],
        [
            "The line that you can change: in Python a file outside of the interpreter and its packages, otherwise a function of the executable.",
            "By the path of the file of each frame.",
            "A rule by paths: your own package below site-packages counts as a library.",
            NOTHING,
        ],
    ),
    word(
        "finding",
        &["findings"],
        [
            "Something that costs time and that you can change: with numbers, the line that causes it, and what to try.",
            "Rules with fixed thresholds over the whole recording (docs/findings.md).",
            "Each rule is tested with programs whose bottleneck is known. The share is an upper bound of the gain.",
            "Change the first one, record again, and compare with `warpscope diff`.",
        ],
    ),
    word(
        "share",
        &["percent", "denominator", "gain"],
        [
            "A part of a whole from 0 to 1. A finding's share is of the recorded time; a kernel's is of all GPU time.",
            "A quotient of exact sums, or of samples for CPU functions.",
            "As exact as its parts. A finding's share is the most that can be gained.",
            NOTHING,
        ],
    ),
    word(
        "significant",
        &["noise", "Welch", "significance"],
        [
            "In comparisons of several recordings: the difference is larger than those between runs of one side.",
            "Welch's t-test at 95 %.",
            "One comparison of twenty without a difference looks significant.",
            "Record each side three times or more.",
        ],
    ),
    word(
        "attach",
        &["attached", "-p"],
        [
            "The recording began in a running process: what happened before is missing.",
            "The injected library is loaded into the process.",
            "Libraries, names and allocations from before the start are incomplete; shares are of the recorded time only.",
            "Record from the start where that matters.",
        ],
    ),
    word(
        "part",
        &["filtered", "filters"],
        [
            "Only a selected part of a recording is shown.",
            "Filters choose what is shown; facts about GPUs come from the whole.",
            "Exact for the part. Findings that need the whole are not drawn.",
            "Do not conclude from a part that something is absent.",
        ],
    ),
    word(
        "stall reasons",
        &["stall reason", "--stalls"],
        [
            "Why the warps of a kernel waited.",
            "The hardware samples program counters of warps (record --stalls).",
            "Statistical.",
            "`report --by stalls` lists lines; `warpscope explain REASON` explains one.",
        ],
    ),
    word(
        "verdict",
        &["verdicts", "tensor-bound", "compute-bound", "balanced"],
        [
            "What limits a kernel: memory bandwidth, tensor cores, instructions, latency, or its size.",
            "Counters of the GPU while the kernel ran alone (record --counters).",
            "Means over samples; see docs/counters.md.",
            "See memory-bound, latency-bound and too-small.",
        ],
    ),
    word(
        "rank imbalance",
        &["communication", "NCCL"],
        [
            "In collective operations, ranks that arrive early wait for the last.",
            "The intervals of NCCL's kernels on each rank.",
            "Exact per rank; clocks of different hosts differ by the stated bound.",
            "Find the rank that waits least: it is the slow one.",
        ],
    ),
    word(
        "only communication",
        &["exposed", "exposed communication"],
        [
            "Time in which a rank's GPU ran communication kernels (NCCL) and nothing else.",
            "The union of the intervals of its work, without that of its other kernels and copies.",
            "Exact.",
            "Start collective operations earlier, in buckets, so that they overlap with computation.",
        ],
    ),
    word(
        "transfer",
        &["transfer time"],
        [
            "The time in which all members of a collective operation took part.",
            "From the start of the last member's kernel to the end of the first one.",
            "Exact on one host; across hosts within the difference of their clocks.",
            "Compare its bus bandwidth with what the links can do.",
        ],
    ),
    word(
        "bus bandwidth",
        &["bus", "busbw"],
        [
            "What each link must have carried at least, by transfer time: comparable between operations and numbers of ranks.",
            "Bytes passed to the call, times the factor of nccl-tests for the operation, divided by transfer time.",
            "Exact for single operations; absent where nccl-tests define none.",
            "Small operations are limited by latency: put several into one.",
        ],
    ),
    word(
        "simulated GPU",
        &["--sim", "sim"],
        [
            "Libraries that stand in for NVIDIA's driver: times of kernels are made up by a script.",
            "WARPSCOPE_SIM configures it (docs/simulator.md).",
            "Host times are real, kernel times are not.",
            "Do not conclude anything about the speed of kernels from it.",
        ],
    ),
    word(
        "CPU self",
        &["self", "self time"],
        [
            "CPU time in a function or line itself, without what it calls.",
            "CPU samples whose innermost frame it is.",
            "Statistical: a share of n samples is off by about 1 / sqrt(n).",
            "A large self time is work of the code itself; a small one beside a large total is that of its callees.",
        ],
    ),
    word(
        "CPU total",
        &["total", "total time"],
        [
            "CPU time in a function or line and in everything that it calls. Totals of callers and callees overlap.",
            "CPU samples whose stack contains it; recursion counts once.",
            "Statistical: a share of n samples is off by about 1 / sqrt(n).",
            "Follow the largest total inwards in the flame graph, to where it divides.",
        ],
    ),
    word(
        "waiting",
        &["wait", "off-CPU time", "host wait"],
        [
            "Time in which threads did not run: off the CPU, or in CUDA calls that wait for the GPU. Threads that wait at the same time add up.",
            "Reports of the scheduler (record --off-cpu), and CUPTI's callbacks.",
            "Intervals are exact. Without --off-cpu, only waits for the GPU are known.",
            "Waiting is harmless where nothing depends on the thread: look at idle time first.",
        ],
    ),
    word(
        "rate",
        &["bandwidth", "bytes per second"],
        [
            "Bytes of copies or memsets divided by the time that they took.",
            "The bytes and time stamps of each operation, as CUPTI reports them.",
            "Exact. Copies that run at the same time share the bus.",
            "Compare with the bus: a rate far below it suggests pageable memory or small copies.",
        ],
    ),
    word(
        "feeding thread",
        &["what the feeding thread did"],
        [
            "The thread that launched the work which ends an idle gap: what it did during the gap is why the GPU was idle.",
            "The join identifies it; its time is divided by launches, waits and samples.",
            "Launches and recorded waits are exact, the rest is sampled.",
            "Record with --off-cpu if much is unknown.",
        ],
    ),
    word(
        "limited by",
        &["limiter"],
        [
            "What runs out first when blocks of a kernel are placed on a multiprocessor: registers, shared memory, the block size, or blocks.",
            "The resources of each launch and of the device.",
            "Exact.",
            "Reducing another resource does not raise the occupancy. See low-occupancy.",
        ],
    ),
    word(
        "waves",
        &["waves full"],
        [
            "How often a kernel fills the device: its blocks, divided by the blocks that the device holds at once. A last wave with few blocks \
             takes as long as a full one.",
            "The grid of each launch, and its occupancy.",
            "Exact if the kernel runs alone.",
            "See the findings tail and small-grid.",
        ],
    ),
    word(
        "SMs used",
        &["multiprocessors used"],
        [
            "The share of a GPU's multiprocessors (SMs) that have a block of the kernel.",
            "The grid of each launch.",
            "Exact as an upper limit.",
            "See the finding small-grid.",
        ],
    ),
    word(
        "flame graph",
        &["icicle graph", "top-down", "bottom-up"],
        [
            "Stacks as boxes: the width is the total of a frame, and what it calls is below it. Boxes beside each other are in no order of time.",
            "Sums by stack of the chosen kind of time; widths of one graph can be compared, those of different kinds cannot.",
            "GPU times are exact, CPU times are sampled.",
            "Look for wide boxes that you can change. Bottom-up shows who calls a function; a drag over the strip above selects a time.",
        ],
    ),
    word(
        "timeline",
        &["time line"],
        [
            "Single events in order of time: GPU work by stream, and launches, samples and waits by thread.",
            "CUPTI's time stamps and CLOCK_MONOTONIC: one clock.",
            "Exact; where there are too many events for a page, a part of them is shown, and the page says so.",
            "Select a gap, and read what the thread that feeds the GPU did in it.",
        ],
    ),
    word(
        "source",
        &["source lines"],
        [
            "Lines of kernels with their GPU time, and why warps waited there.",
            "Samples of warps (record --stalls), with the line information of the compiler (nvcc -lineinfo).",
            "Statistical; a kernel's exact time is divided among its lines by samples.",
            "Start with the longest bar, and explain its first reason.",
        ],
    ),
    word(
        "process",
        &["processes", "process image"],
        [
            "A program that ran: a process that executes another program is listed again.",
            "The kernel's reports of fork, exec and exit.",
            "Exact.",
            NOTHING,
        ],
    ),
];

/// Returns the explanation of a table.
pub(super) fn table(name: &'static str, table: Table) -> Entry {
    let means = match table {
        Table::Kernels => "Kernels by GPU time.",
        Table::Classes => "GPU time by class of kernel: gemm, attention, elementwise and so on, by their names.",
        Table::Phases => "GPU time by phase: forward, backward, optimizer and so on.",
        Table::Paths => "GPU time by whole call path.",
        Table::UserPaths => "GPU time by path of user code, without the frames of libraries.",
        Table::Lines => "GPU time and CPU time by line of user code.",
        Table::Steps => "The iterations of the program's loop, slowest first.",
        Table::Functions => {
            "Functions by their own CPU time, without what they call. The page also has the time with what they call, and the GPU time that they caused."
        }
        Table::Threads => "CPU time and launches by thread.",
        Table::Streams => "GPU time by stream.",
        Table::Ranks => "Ranks of a distributed program: work, communication and waits.",
        Table::Copies => "Copies by direction; in the page, memsets as well.",
        Table::Collectives => {
            "Operations of communicators (NCCL) by kind: sizes, the time in which all members took part, and their waits."
        }
        Table::Devices => "GPUs, and how long each was busy.",
        Table::Occupancy => "Kernels by shape: how they fill the device, and what limits them.",
        Table::Energy => "Energy by user code and kernel, and that of idle time.",
        Table::Counters => "Metrics of the counters of GPUs.",
        Table::Verdicts => "What limits each kernel, by counters.",
        Table::Limits => "What limits each kernel at each line of code, by counters of single launches.",
        Table::Stalls => "Source lines of kernels by GPU time, and why their warps waited.",
        Table::Instructions => "Instructions of kernels by GPU time, and why their warps waited.",
        Table::Idle => "Why GPUs were idle, by line and cause.",
        Table::Waits => {
            "Time off the CPU by reason and line of user code. The page also has calls that wait for the GPU."
        }
        Table::Memory => "Who held GPU memory at its peak and at the end.",
        Table::Calls => "Traced calls by function.",
        Table::Requests => "Requests to the driver by command.",
        Table::Ledger => "Every count of the ledger.",
    };
    let measured = match table {
        Table::Functions => "CPU samples.",
        Table::Stalls | Table::Instructions => "Samples of warps (record --stalls).",
        Table::Counters | Table::Verdicts => "Counters of the GPU (record --counters).",
        Table::Limits => "Counters of single launches (record --limits), scaled by the kernels' exact times.",
        Table::Energy => "NVML's energy counter (record --energy).",
        Table::Waits => "Reports of the scheduler (record --off-cpu); waits for the GPU by CUPTI's callbacks.",
        Table::Memory => "Calls that allocate and free (record --memory).",
        Table::Calls | Table::Requests => "Callbacks of CUPTI, or probes (trace).",
        Table::Ledger => "Counters at every place that drops something.",
        _ => "CUPTI's time stamps, joined to launches; CPU times by samples.",
    };
    let exact = match table {
        Table::Functions | Table::Stalls | Table::Instructions | Table::Counters | Table::Verdicts | Table::Limits => {
            "Statistical."
        }
        Table::Lines | Table::Threads | Table::Idle => "GPU times are exact, CPU times are sampled.",
        Table::Phases | Table::Classes => "Times are exact; the names of kernels and functions decide the row.",
        _ => "Exact, but for what the ledger counts as lost.",
    };
    Entry::of(
        Kind::Table,
        (name, &[]),
        [
            means,
            measured,
            exact,
            "`warpscope report --by TABLE` prints it; `export --table TABLE -o FILE.csv` writes all rows.",
        ],
    )
}
