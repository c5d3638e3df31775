//! Frames in brackets, which are no functions. `...` is what differs.

use super::entry::{Entry, Kind};

const fn frame(name: &'static str, also: &'static [&'static str], texts: [&'static str; 4]) -> Entry {
    Entry::of(Kind::Frame, (name, also), texts)
}

/// Waits.
const SWITCHES: &str = "The kernel's scheduler reports when a thread leaves and reaches a CPU (record --off-cpu).";
const TIMED: &str = "Times are exact. Waits shorter than the limit of --off-cpu are summed as [short waits].";
/// GPU work.
const STAMPS: &str = "CUPTI's time stamps of each operation, joined to its launch by process and correlation id.";
const EXACT: &str =
    "Exact to the resolution of the GPU's clock. Concurrent work is added, so sums may exceed the wall time.";
/// Idle time.
const CHARGED: &str = "The gaps between intervals of GPU work, charged to the thread whose launch ended them.";
/// Hand-overs.
const HANDED: &str =
    "Probes see the work enter and leave the queue, so both stacks are known without using time or order.";
const CERTAIN: &str = "Certain where it is shown. Where evidence is missing the work stays under its own thread and is counted \
                       in lost.handovers.";
/// Nothing to do.
const NOTHING: &str = "Nothing: it is information.";
/// Symbols.
const NAMED: &str =
    "Addresses are named last, from the files that were mapped, by symbols, debug information and JIT maps.";
const NOT_WRONG: &str = "The time is exact; only the name is missing. A missing name is better than a wrong one.";

/// The name of files whose functions have no names.
pub(super) const MODULE: &str = "[lib...]";

pub(super) const ALL: &[Entry] = &[
    frame(
        "[GPU_Kernel] ...",
        &["GPU kernel", "kernel frame"],
        [
            "A kernel on the GPU, under the code that launched it. With several GPUs it has the GPU's number: [GPU0_Kernel].",
            STAMPS,
            EXACT,
            "Read upwards for the line that launches it; `warpscope record --stalls` shows why its warps wait.",
        ],
    ),
    frame(
        "[GPU_Memcpy ...",
        &["memcpy", "copy"],
        [
            "A copy on the GPU, by direction (HtoD: host to device) and size.",
            STAMPS,
            EXACT,
            "Copy less, from pinned memory, and beside kernels: see copies-alone and pageable-copies.",
        ],
    ),
    frame(
        "[GPU_Memset]",
        &["memset"],
        ["A memset on the GPU.", STAMPS, EXACT, "Set less memory, or set it in the kernel that uses it."],
    ),
    frame(
        "[GPU busy]",
        &[],
        [
            "In comparisons: the time in which the GPU did something.",
            "The union of the intervals of GPU work.",
            "Exact.",
            "Look at the kernels whose time has changed.",
        ],
    ),
    frame(
        "[GPU memory]",
        &[],
        [
            "GPU memory that the program allocated through CUDA, under the code that allocated it.",
            "Calls that allocate and free (record --memory).",
            "Exact for what was allocated while recording.",
            "Free or reuse it; see memory-peak.",
        ],
    ),
    frame(
        "[tensors]",
        &[],
        [
            "GPU memory of PyTorch that tensors use, under the code that allocated it.",
            "Probes in PyTorch's caching allocator (record --memory).",
            "Exact for what was allocated while recording.",
            "Keep fewer tensors, for example by a smaller batch or by checkpointing activations.",
        ],
    ),
    frame(
        "[cached by PyTorch, free]",
        &["cached"],
        [
            "GPU memory that PyTorch's allocator holds and no tensor uses.",
            "Probes in PyTorch's caching allocator (record --memory).",
            "Exact for what was allocated while recording.",
            "Much of it is fragmentation: allocate in fewer sizes, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        ],
    ),
    frame(
        "[CUDA graph replay]",
        &["[CUDA graph]", "graph"],
        [
            "Work of a CUDA graph, under the code that created the graph's node. It runs each time the graph is launched.",
            "CUPTI reports the node of each operation, and its creation.",
            "Exact. Nodes created before the recording are under the launch of the graph, which the ledger counts.",
            "`--graph-stacks launch` shows it under the launch instead.",
        ],
    ),
    frame(
        "[launching]",
        &[],
        [
            "The thread that feeds the GPU was launching the work that ended the idle time.",
            "From the launch call to the start of the work.",
            "Exact. A stream that waits for another one looks the same.",
            "Launch earlier, or fewer and longer kernels; see launch-bound.",
        ],
    ),
    frame(
        "[before the first GPU work]",
        &[],
        [
            "Time from the start of the recording to the GPU's first work; it is not part of its idle time.",
            CHARGED,
            "Exact.",
            "See the finding start.",
        ],
    ),
    frame(
        "[after the last GPU work]",
        &[],
        [
            "Time from the GPU's last work to the end of the recording; it is not part of its idle time.",
            CHARGED,
            "Exact.",
            "Stop the recording earlier, or look at what the program does at its end.",
        ],
    ),
    frame(
        "[meanwhile, in another thread]",
        &["meanwhile"],
        [
            "Nothing is known about the thread that feeds the GPU, but another thread of its process ran this code meanwhile.",
            "Samples of other threads in a gap of 10 ms or more.",
            "A fact, and not yet a reason: the thread may have waited for something else.",
            "Record with --off-cpu to see what the thread waited for.",
        ],
    ),
    frame(
        "[unknown]",
        &[],
        [
            "In stacks: a function without a name. In idle time: there is no evidence of what the thread did.",
            NAMED,
            "The time is exact; only its cause or its name is missing.",
            "Install debug information; record with --off-cpu and a higher -F for causes.",
        ],
    ),
    frame(
        MODULE,
        &["[anon]", "module frame"],
        [
            "A function of this file whose name is not known: the file has no symbol for the address.",
            NAMED,
            NOT_WRONG,
            "Install the debug symbols of the library.",
        ],
    ),
    frame(
        "[kernel]",
        &["[bpf]", "[uprobes]"],
        [
            "A function of the operating system's kernel, or of a BPF program, whose name is not known.",
            "Addresses are looked up in the kernel's symbol table, which root may read.",
            NOT_WRONG,
            "Record as root; check kernel.kptr_restrict.",
        ],
    ),
    frame(
        "[vdso]",
        &["[stack]"],
        [
            "Code that the operating system's kernel maps into each process, such as clock_gettime.",
            NAMED,
            "Exact.",
            NOTHING,
        ],
    ),
    frame(
        "[python]",
        &[],
        [
            "The Python interpreter, where its Python frames could not be read.",
            "Python frames are read from the interpreter's own structures at the moment of the sample.",
            NOT_WRONG,
            "Check that the version of CPython is supported: `warpscope doctor`.",
        ],
    ),
    frame(
        "[unknown kernel ...",
        &["[unknown kernel]"],
        [
            "A kernel whose name is not known; the address identifies it.",
            "Names come from CUPTI, from symbols of the program, and from modules that it loads.",
            NOT_WRONG,
            "Do not strip the program, or start the monitor before it.",
        ],
    ),
    frame(
        "[kernel name lost]",
        &[],
        [
            "A kernel whose name was lost: a table of names was full.",
            "The name is sent once for each kernel.",
            NOT_WRONG,
            "The ledger has the number: lost.names.",
        ],
    ),
    frame(
        "[other kernels]",
        &["[other lines]", "[other instructions]", "[other GPU work]", "[others]", "[... other programs]"],
        [
            "What was too small or too much to be listed, summed.",
            "It is the rest of the sum.",
            "The sum is exact.",
            "Select a part with filters, or export a table with all rows (-o FILE.csv).",
        ],
    ),
    frame(
        "[not recorded: too many different shapes]",
        &[],
        [
            "A value of a launch that was left out of the file, because there were too many different ones.",
            "The exporter bounds what it keeps.",
            "Times are exact.",
            "Select a part with filters.",
        ],
    ),
    frame(
        "[launch not seen]",
        &[],
        [
            "GPU work whose launch was not recorded: it began before the recording, or its launch was lost.",
            STAMPS,
            "The time is exact; the code that launched it is unknown. The ledger counts it as unmatched.",
            "Start the recording before the program, and look at the ledger for losses.",
        ],
    ),
    frame(
        "[stack not sampled]",
        &[],
        [
            "The stack of this launch was not taken, to limit the cost (--max-overhead).",
            "The time of each kernel is exact and is divided among its stacks by those that were sampled.",
            "Totals are exact, shares of paths are estimates.",
            "Allow more overhead to see more stacks.",
        ],
    ),
    frame(
        "[stack lost]",
        &["[no frames]"],
        [
            "The stack of this launch or sample never arrived, or it has no frames.",
            "A stack is sent once, and then referred to by number.",
            "The time is exact. The ledger counts it: stacks_missing.",
            "Look at the ledger: a ring buffer was full.",
        ],
    ),
    frame(
        "[too many stacks]",
        &[],
        [
            "There were more distinct stacks than are kept; this is the rest.",
            "Memory of the recording is bounded.",
            "The sum is exact.",
            "Record a part of the program.",
        ],
    ),
    frame(
        "[unnamed]",
        &["[unknown_process]", "[unknown process]", "[unknown thread]", "[unknown line]", "[no line information]"],
        [
            "Something whose name or line is empty or was not reported.",
            NAMED,
            NOT_WRONG,
            "Compile with -g (host) or -lineinfo (device), and start the recording before the program.",
        ],
    ),
    frame(
        "[resolving]",
        &[],
        [
            "In the monitor: the name of this line is still being looked up.",
            NAMED,
            NOT_WRONG,
            "Wait for the next interval.",
        ],
    ),
    frame(
        "[idle]",
        &[],
        [
            "In the table of energy: what the GPU used while it did nothing.",
            "NVML's energy counter, read often, and divided among what ran in between (record --energy).",
            "Sums are those of NVML. What one short kernel used is an estimate.",
            "Keep the GPU busy, or use fewer GPUs.",
        ],
    ),
    frame(
        "[event ...",
        &["event"],
        [
            "A counted event, under the stack that hit it (record --event).",
            "A probe at each hit; sums are kept in the kernel.",
            "Exact; hits that were lost are in the ledger.",
            NOTHING,
        ],
    ),
    frame(
        "[nvtx: ...",
        &["nvtx"],
        [
            "An NVTX range of the program; work launched inside it is below it.",
            "The program's own calls of NVTX (record --nvtx).",
            "Exact. Ranges belong to the thread that opened them.",
            "Select it with --nvtx NAME, or define steps with --step nvtx:NAME.",
        ],
    ),
    frame(
        "[rank ...",
        &["rank"],
        [
            "The processes of one rank of a distributed program.",
            "The environment of the process: RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID and others.",
            "Exact.",
            "Compare ranks with `report --by ranks`.",
        ],
    ),
    frame(
        "[started by ...",
        &["started by"],
        [
            "The boundary between a Python thread and the line that started it.",
            "The kernel reports new threads; the stack of the call that started it is taken then.",
            CERTAIN,
            NOTHING,
        ],
    ),
    frame(
        "[handed over by ...]",
        &["handed over"],
        [
            "The boundary between a thread and the code that gave it this work, such as an XLA task.",
            HANDED,
            CERTAIN,
            NOTHING,
        ],
    ),
    frame(
        "[handed over by backward ...]",
        &[],
        [
            "PyTorch's autograd thread runs this work; the frames above are those of the line that called backward().",
            HANDED,
            CERTAIN,
            "Look at the forward code that is named by [backward of ...].",
        ],
    ),
    frame(
        "[backward of ...]",
        &["backward"],
        [
            "The gradient of what this line or module computed in the forward pass.",
            "PyTorch's sequence numbers connect a node of the backward pass to the call that created it.",
            CERTAIN,
            "Change the forward code: it decides what the backward pass does.",
        ],
    ),
    frame(
        "[waiting for work]",
        &[],
        [
            "A thread of a pool that had nothing to do. It costs no time.",
            "The functions by which idle threads of known pools are recognised.",
            "Pools that are not known appear as other waits.",
            "Nothing, unless the pool should have had work.",
        ],
    ),
    frame(
        "[waiting for the GPU]",
        &["[wait: GPU]"],
        [
            "The thread waited in a call until GPU work ended.",
            "The stack has a CUDA call that waits, and the thread was off the CPU or spun.",
            TIMED,
            "Wait later or less often, and do other work meanwhile; see synchronization.",
        ],
    ),
    frame(
        "[waiting for a CPU]",
        &[],
        [
            "The thread could have run, but other threads had all CPUs.",
            SWITCHES,
            TIMED,
            "Use fewer threads, or give the program more CPUs; in a container check the CPU limit.",
        ],
    ),
    frame(
        "[waiting for a lock]",
        &["futex"],
        [
            "The thread waited for another thread: a mutex, a condition variable, Python's GIL.",
            SWITCHES,
            TIMED,
            "Find who holds the lock: the other threads at the same time in the timeline.",
        ],
    ),
    frame(
        "[sleeping]",
        &[],
        [
            "The thread slept for a time that it chose.",
            SWITCHES,
            TIMED,
            "Remove the sleep, or wait for the event itself.",
        ],
    ),
    frame(
        "[waiting for events]",
        &["poll", "epoll"],
        ["The thread waited in poll, select or epoll.", SWITCHES, TIMED, "Look at what should have sent the event."],
    ),
    frame(
        "[waiting for I/O]",
        &["[waiting for a device]", "I/O"],
        [
            "The thread waited for a disk, a network or a pipe.",
            SWITCHES,
            TIMED,
            "Read ahead in other threads, in larger pieces, or from a faster disk.",
        ],
    ),
    frame(
        "[waiting for a process]",
        &[],
        ["The thread waited for a process to end.", SWITCHES, TIMED, "Look at what that process did."],
    ),
    frame(
        "[waiting for a driver]",
        &["ioctl"],
        [
            "The thread waited inside a device driver, mostly NVIDIA's.",
            SWITCHES,
            TIMED,
            "`warpscope trace --driver` shows the requests; allocate and map memory less often.",
        ],
    ),
    frame(
        "[waiting for memory]",
        &["page fault"],
        [
            "The thread waited for a page of memory: a page fault.",
            SWITCHES,
            TIMED,
            "Touch memory before it is needed, use huge pages, or read files with larger reads.",
        ],
    ),
    frame(
        "[waiting]",
        &["[off-cpu]", "off-cpu"],
        ["The thread waited; the reason is not known.", SWITCHES, TIMED, "Look at the function that waits."],
    ),
    frame(
        "[short waits]",
        &[],
        [
            "Waits too short to be recorded one by one, summed without stacks.",
            SWITCHES,
            "The sum is exact; the places are unknown.",
            "`--off-cpu TIME` sets the limit.",
        ],
    ),
    frame(
        "[issuing]",
        &[],
        [
            "Below a kernel: warps issued instructions; they did not wait.",
            "Samples of the program counters of warps by the hardware (record --stalls).",
            "Statistical.",
            NOTHING,
        ],
    ),
    frame(
        "[stall: ...",
        &["stall"],
        [
            "Below a kernel: why its warps waited. `warpscope explain long_scoreboard` explains a single reason.",
            "Samples of the program counters of warps by the hardware (record --stalls).",
            "Statistical. The time of the kernel is exact and divided by samples.",
            "Look at the line with most of it.",
        ],
    ),
];
