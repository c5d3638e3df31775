//! The command line of `record`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use collect::command::target::StallSampling;

use super::{flight::Flight, formats::with_formats, graph_stacks::GraphStacks, push::Push, values};

const RECORD_HELP: &str = "

Child processes are recorded too. The command's output is untouched; warpscope prints its summary
to stderr after the command exits. warpscope exits with the command's exit status, or with 0 if
--kill terminated the command.

With --no-inject, warpscope uses uprobes only. Each kind of launch is an event: see Events below.

With -p, CPU samples begin at once. For GPU activity, warpscope loads its library into the process;
the process must have loaded CUDA. At the end everything is disabled, and the process keeps running.

Events:
  uprobe:LIB:FUNCTION       function entry; a symbol, a C++ or Rust name, or a pattern (* ? [])
  uprobe:LIB:0xOFFSET       instruction at an offset in the file
  uretprobe:LIB:FUNCTION    function return
  tracepoint:GROUP:NAME     kernel tracepoint
  usdt:LIB:[PROVIDER:]NAME  static tracepoint (USDT) of a library or program
Options follow, separated by commas:
  weight=argN               add up the Nth argument (arg1 is the first). Arguments narrower than
                            64 bits need a type: weight=arg2:u32 (u8 to u64, s8 to s64)
  weight=retval             add up the return value (uretprobe)
  weight=FIELD              add up a field of the tracepoint
  unit=bytes, unit=ns       unit of the sum
  name=LABEL                name of the event
LIB is a path or the start of a file name. Event counts are never mixed with time: use
--events-only -o FILE.svg to draw an event, or record a .wscope file and use
`warpscope export --event NAME`.

Flight recorder (--last):
  A dump is written when warpscope receives SIGUSR1 (kill -USR1 PID), at the end of the command or
  recording, and when --on-error, --on-idle or --on-slow applies. Each dump is an ordinary recording
  of the last TIME. Dumps get the next free number: run.wscope, run-2.wscope, ...
  Dumps for --on-... are at least TIME apart. Limits of --on-slow:
  'LIB:FUNCTION > 200ms'    a function of a library, by path or the start of a file name
  'FUNCTION > 200ms'        a function of the program or of CUDA
  'FUNCTION > 1.5x median'  compared with the median of its last 64 calls, after the first 20
  'nvtx:NAME > 200ms'       an NVTX range (with --nvtx); use this for Python functions, which cannot
                            be measured directly

Examples:
  sudo warpscope record -- python3 train.py
  sudo warpscope record --gpu-only -o run.svg -o run.json -- ./transformer 64
  sudo warpscope record -F 997 -d 10 -o run.wscope -- torchrun --nproc-per-node 2 train.py
  sudo warpscope record -d 10 --kill -- ./server
  sudo warpscope record -p 4711 -d 10
  sudo warpscope record --all --comm 'python*' -d 10
  sudo warpscope record --events-only --event uprobe:libc.so.6:malloc,weight=arg1,unit=bytes \\
      -o malloc.svg -- ./app
  sudo warpscope record --event tracepoint:syscalls:sys_enter_write,weight=count -- python3 train.py
  sudo warpscope record --off-cpu -- python3 train.py
  sudo warpscope record --memory -- python3 train.py
  sudo warpscope record --stalls --as-root -- python3 train.py
  sudo warpscope record --energy --counters -- python3 train.py
  sudo warpscope record --last 30s --on-slow 'cudaDeviceSynchronize > 200ms' -- python3 train.py
  sudo warpscope record --last 1m --on-error --on-idle 5s -p 4711
  sudo warpscope record --push pyroscope=http://localhost:4040 -- python3 train.py
  sudo warpscope record --push otlp=https://collector:4318 --push-ca ca.pem -p 4711 -d 10
  sudo warpscope record --sim -- ./program-linked-to-the-simulated-libcudart";

/// The end of `record -h`.
const SHORT_HELP: &str = "Examples:
  sudo warpscope record -- python3 train.py
  sudo warpscope record -p 4711 -d 10 -o run.html
  sudo warpscope record --off-cpu --memory -- python3 train.py

--help describes each option, the formats, the events and the flight recorder, with more examples.";

/// `record`
#[derive(Args, Debug)]
#[command(after_help = SHORT_HELP, after_long_help = with_formats(RECORD_HELP))]
pub struct Record {
    /// Record a running process; may be repeated.
    ///
    /// Record a running process and its future children, until -d, Ctrl-C or the exit of the process; may be repeated.
    #[arg(short, long, value_name = "PID", value_parser = values::pid, conflicts_with_all = ["command", "kill", "sim", "nvtx", "stalls"])]
    pub pid: Vec<u32>,
    /// Record every running process that has loaded CUDA.
    #[arg(short, long, conflicts_with_all = ["command", "kill", "sim", "nvtx", "stalls", "pid"])]
    pub all: bool,
    /// Record running processes whose name matches PATTERN.
    ///
    /// Record running processes whose name matches PATTERN: globs (* ? []), separated by commas.
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["command", "kill", "sim", "nvtx", "stalls", "pid"])]
    pub comm: Vec<String>,
    /// Record running processes in a control group (v2) and its descendants.
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["command", "kill", "sim", "nvtx", "stalls", "pid"])]
    pub cgroup: Option<String>,
    /// Record running processes of a container, by its id.
    #[arg(long, value_name = "ID", conflicts_with_all = ["command", "kill", "sim", "nvtx", "stalls", "pid"])]
    pub container: Option<String>,
    /// Record only GPU activity; no CPU samples.
    ///
    /// Record only GPU activity, with the stacks that launched it; no CPU samples.
    #[arg(long, conflicts_with = "cpu_only")]
    pub gpu_only: bool,
    /// Record only CPU samples; load nothing into the command.
    #[arg(long)]
    pub cpu_only: bool,
    /// Load nothing into the program: count launches, without GPU times.
    ///
    /// Load nothing into the program: count kernel launches, graph launches, copies and memsets by call stack, without GPU times.
    #[arg(long, conflicts_with_all = ["gpu_only", "cpu_only", "events_only", "graph_level", "nvtx", "max_overhead"])]
    pub no_inject: bool,
    /// Count an event by call stack; may be repeated.
    ///
    /// Count an event by call stack; may be repeated (syntax below).
    #[arg(long, value_name = "EVENT")]
    pub event: Vec<String>,
    /// Record the time that threads spend off the CPU, and why.
    ///
    /// Record the time that threads spend off the CPU, by call stack and reason. Waits shorter than MIN (such as 10us) are
    /// added up without a stack.
    #[arg(long, value_name = "MIN", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub off_cpu: Option<String>,
    /// Record who allocates and frees GPU memory.
    ///
    /// Record who allocates and frees GPU memory: driver allocations, and tensors inside PyTorch's caching allocator.
    #[arg(long, conflicts_with_all = ["cpu_only", "events_only"])]
    pub memory: bool,
    /// Record only events (--event, --off-cpu).
    ///
    /// Record only events (--event, --off-cpu); no CPU samples, no GPU activity.
    #[arg(long, conflicts_with_all = ["gpu_only", "cpu_only"])]
    pub events_only: bool,
    /// Sample every CPU HZ times per second.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = values::hertz)]
    pub frequency: u32,
    /// Limit the cost to PERCENT of the program's time.
    ///
    /// Limit the cost to PERCENT of the program's time: record the stacks of only some launches and, if that is not
    /// enough, GPU work only part of the time, counting the other launches. Totals by kernel and call path stay unbiased.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent, conflicts_with_all = ["cpu_only", "events_only"])]
    pub max_overhead: Option<f64>,
    /// Stop recording after SECS seconds.
    ///
    /// Stop recording after SECS seconds, or a time such as 500ms or 2m; the command keeps running.
    #[arg(short, long, value_name = "SECS", value_parser = values::seconds)]
    pub duration: Option<f64>,
    /// With -d, terminate the command after recording.
    ///
    /// With -d, terminate the command after recording: SIGTERM, then SIGKILL after 5 seconds.
    #[arg(long, requires = "duration")]
    pub kill: bool,
    /// Write to FILE; may be repeated [default: warpscope.html, warpscope.wscope].
    ///
    /// Write to FILE; may be repeated; {host}, {pid}, {rank} and {time} in FILE are replaced [default: warpscope.html and warpscope.wscope, numbered if they exist].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Record each launch of a CUDA graph as one operation.
    ///
    /// Record each launch of a CUDA graph as one operation, without its kernels, copies and memsets; the lowest overhead.
    #[arg(long, conflicts_with_all = ["cpu_only", "events_only"])]
    pub graph_level: bool,
    /// Record NVTX ranges and marks.
    ///
    /// Record NVTX ranges and marks, with the GPU work that was launched in them.
    #[arg(long, conflicts_with_all = ["cpu_only", "events_only"])]
    pub nvtx: bool,
    /// Sample the instructions on the GPU: source lines and stall reasons.
    ///
    /// Sample the instructions that run on the GPU: show the source lines of each kernel, its instructions (with nvdisasm), and
    /// why its warps wait there. MODE is a period (5 to 31: one sample every 2^PERIOD clock cycles on each multiprocessor),
    /// `serialised` (kernels run one at a time, so that samples belong to a single launch), or both: serialised,19. Needs root,
    /// or permission to use the GPU's counters.
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "17",
        conflicts_with_all = ["cpu_only", "events_only"])]
    pub stalls: Option<StallSampling>,
    /// Record GPU energy by kernel and call path.
    ///
    /// Record GPU energy, in joules, by kernel and call path: NVML's counter, divided among kernels by their time.
    /// Needs Volta or later.
    #[arg(long, conflicts_with_all = ["cpu_only", "events_only", "no_inject", "max_overhead"])]
    pub energy: bool,
    /// Sample the counters of the GPUs, and report what limits each kernel.
    ///
    /// Sample the counters of the GPUs every 1 ms (SMs, tensor pipe, memory, PCIe, NVLink), and report what limits each kernel
    /// (its verdict). Needs CUPTI, and root or permission to use the GPU's counters; otherwise NVML (GPM) is sampled every
    /// 100 ms, without verdicts. Cannot be combined with --stalls, which uses the same hardware.
    #[arg(long, conflicts_with_all = ["cpu_only", "events_only", "no_inject", "stalls"])]
    pub counters: bool,
    /// Measure single launches with hardware counters, and report what limits each kernel at each line.
    ///
    /// Measure single launches with hardware counters, and report what limits each kernel at each line of code: which pipe, DRAM,
    /// a cache, latency, occupancy or the grid. Launches run once and are not replayed; of each kernel and size the 1st, 8th,
    /// 64th ... is measured while all else waits. KERNELS is a part of the names of the kernels to measure. Takes 8 % of the
    /// time at most, and 1 second at the start. Needs CUPTI 12.6 or later, and root or permission to use the GPU's counters.
    #[arg(long, value_name = "KERNELS", num_args = 0..=1, require_equals = true, default_missing_value = "",
        conflicts_with_all = ["cpu_only", "events_only", "no_inject", "stalls", "counters"])]
    pub limits: Option<String>,
    /// Show graphs under the code that captured or launched them.
    ///
    /// Show the work of CUDA graphs under the code that captured it (capture) or that launched the graph (launch).
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
    /// Show each thread on its own, not under the code that caused its work.
    ///
    /// Show each thread on its own. By default, the work of PyTorch's autograd appears under the code that called backward(), that of
    /// XLA's thread pools under the code that handed it over, and Python's threads under the code that started them.
    #[arg(long)]
    pub no_handover: bool,
    /// Show the forward code that PyTorch's backward work belongs to.
    ///
    /// Show the forward code that PyTorch's backward work belongs to, as a frame such as `[backward of Linear (model.py:12)]`. Needs
    /// a probe at each node of autograd's graph, in the forward and in the backward pass.
    #[arg(long, conflicts_with_all = ["no_handover", "no_python", "events_only"])]
    pub forward_lines: bool,
    /// Show the interpreter's native frames instead of Python functions.
    #[arg(long)]
    pub no_python: bool,
    /// Draw each level of a recursion in flame graphs.
    ///
    /// Draw each level of a recursion in flame graphs, instead of one frame `f [recursion x40]`.
    #[arg(long)]
    pub unfold_recursion: bool,
    /// Show file and line of native functions (-g).
    ///
    /// Show file and line of native functions, and inlined functions as separate frames; requires debug information (-g).
    #[arg(long)]
    pub lines: bool,
    /// Search DIR for debug files before /usr/lib/debug; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,
    /// Run the command on the simulated GPU.
    #[arg(long)]
    pub sim: bool,
    /// Under sudo, run the command as root instead of as the calling user.
    #[arg(long)]
    pub as_root: bool,
    /// Print launches and GPU work as lines of JSON while recording.
    ///
    /// Print launches and GPU work while recording, as lines of JSON like those of `trace --live=json`. Prints to stdout with -p,
    /// -a and the like and without -o, otherwise to stderr.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "json",
        value_parser = ["json"], conflicts_with_all = ["cpu_only", "events_only", "no_inject", "result", "last"])]
    pub live: Option<String>,
    /// Print only errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print progress details.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Print what was recorded in one line to stdout, for `top`.
    #[arg(long, hide = true, conflicts_with = "command")]
    pub result: bool,
    /// The flight recorder.
    #[command(flatten)]
    pub flight: Flight,
    /// Where to push the recording.
    #[command(flatten)]
    pub push: Push,
    /// The title of the recording; the command's name if not set.
    #[arg(skip)]
    pub title: Option<String>,
    /// The command to run, and its arguments; options of warpscope go before it.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
