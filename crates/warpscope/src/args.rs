//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

/// CPU and GPU profiler, CUDA tracer and GPU metrics daemon.
#[derive(Debug, Parser)]
#[command(
    name = "warpscope",
    version,
    max_term_width = 100,
    after_help = "Examples:
  sudo warpscope demo                             try it on a simulated GPU; no CUDA, no GPU needed
  sudo warpscope record -- python3 train.py       write warpscope.svg, a flame graph
  sudo warpscope trace --driver -- ./vectoradd    trace CUDA calls and driver requests
  sudo warpscope monitor                          serve metrics of every GPU process to Prometheus
  warpscope report warpscope.wscope               print the summary of a recording again
  warpscope doctor                                check this machine and suggest fixes"
)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command and profile its CPU and GPU time by call stack.
    Record(Record),
    /// Trace CUDA calls and driver requests, one by one or aggregated.
    Trace(Trace),
    /// Monitor every GPU process on this machine: memory, leaks, launches, copies and errors.
    Monitor(Monitor),
    /// Show GPU processes in an interactive terminal view.
    Top(Top),
    /// Print the summary of a recording or trace.
    Report(Report),
    /// Convert a recording to other formats.
    Export(Export),
    /// Check whether this machine can record, and suggest fixes.
    Doctor,
    /// Record a bundled workload on the simulated GPU; needs no CUDA and no GPU.
    Demo(Demo),
    /// Write the simulated GPU's libraries to a directory.
    Sim(Sim),
    /// Print shell completions.
    #[command(after_help = "Example:\n  warpscope completions bash > /etc/bash_completion.d/warpscope")]
    Completions {
        /// The shell to generate completions for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    #[command(after_help = "Example:\n  warpscope man | man -l -")]
    Man,
}

/// The output formats, by file extension.
macro_rules! formats {
    () => {
        "The file extension selects the format; -o may be repeated:
  .wscope   recording; can be converted to every other format later
  .svg      flame graph
  .folded   folded stacks, weights in microseconds (flamegraph.pl, speedscope)
  .json     Chrome trace (chrome://tracing, Perfetto)
  .jsonl    one JSON object per event
  .cpu.txt  one line per CPU sample: time, comm, pid, tid, cpu, stack"
    };
}

const RECORD_HELP: &str = concat!(
    formats!(),
    "

Child processes are recorded too. The command's output is untouched; warpscope prints its summary
to stderr after the command exits. warpscope exits with the command's exit status, or with 0 if
--kill terminated the command.

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

Examples:
  sudo warpscope record -- python3 train.py
  sudo warpscope record --gpu-only -o run.svg -o run.json -- ./transformer 64
  sudo warpscope record -F 997 -d 10 -o run.wscope -- torchrun --nproc-per-node 2 train.py
  sudo warpscope record -d 10 --kill -- ./server
  sudo warpscope record --events-only --event uprobe:libc.so.6:malloc,weight=arg1,unit=bytes \\
      -o malloc.svg -- ./app
  sudo warpscope record --event tracepoint:syscalls:sys_enter_write,weight=count -- python3 train.py
  sudo warpscope record --sim -- ./program-linked-to-the-simulated-libcudart"
);

/// Where the work of CUDA graphs is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphStacks {
    /// Under the code that captured or created each node.
    #[default]
    Capture,
    /// Under the code that launched the graph.
    Launch,
}

impl GraphStacks {
    /// Arranges a profile accordingly.
    pub fn apply(self, profile: &mut model::profile::Profile) {
        if self == Self::Launch {
            profile.show_graphs_by_launch();
        }
    }
}

/// `record`
#[derive(Args, Debug)]
#[command(after_help = RECORD_HELP)]
pub struct Record {
    /// Record only GPU activity, with the stacks that launched it; no CPU samples.
    #[arg(long, conflicts_with = "cpu_only")]
    pub gpu_only: bool,
    /// Record only CPU samples; load nothing into the command.
    #[arg(long)]
    pub cpu_only: bool,
    /// Count an event by call stack; may be repeated (syntax below).
    #[arg(long, value_name = "EVENT")]
    pub event: Vec<String>,
    /// Record only the events given with --event; no CPU samples, no GPU activity.
    #[arg(long, conflicts_with_all = ["gpu_only", "cpu_only"])]
    pub events_only: bool,
    /// Take this many samples per second on every CPU.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99)]
    pub frequency: u32,
    /// Limit the cost to PERCENT of the program's time: take the stacks of some launches only, then record GPU work
    /// part of the time and count launches otherwise. Totals of kernels and call paths stay unbiased. Only with --sim so far.
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["cpu_only", "events_only"])]
    pub max_overhead: Option<f64>,
    /// Stop recording after SECS seconds; the command keeps running.
    #[arg(short, long, value_name = "SECS")]
    pub duration: Option<f64>,
    /// With -d, terminate the command after recording: SIGTERM, then SIGKILL after 5 seconds.
    #[arg(long, requires = "duration")]
    pub kill: bool,
    /// Write to FILE; may be repeated [default: warpscope.svg and warpscope.wscope, numbered if they exist].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Show the work of CUDA graphs under the code that captured it, or under the code that launched the graph.
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
    /// Show the interpreter's native frames instead of Python functions.
    #[arg(long)]
    pub no_python: bool,
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
    /// Print only errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print progress details.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// The title of the recording; the command's name if not set.
    #[arg(skip)]
    pub title: Option<String>,
    /// The command to run, and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const TRACE_HELP: &str = "The file extension selects the format; -o may be repeated:
  .wscope   recording; can be converted to every other format later
  .jsonl    one JSON object per call, request and kernel
  .json     Chrome trace (chrome://tracing, Perfetto)

libcuda and libcudart are found automatically: on the library search path, in Python wheels, in
containers, and linked into the program. PATTERN is a shell-style glob (* ? [A-Z]) or a
comma-separated list of globs: 'cuMem*,cuLaunch*'. --uprobe takes one glob, matched against symbols
and demangled names with and without arguments. Functions with an unknown signature show all six
argument registers, whether used or not. docs/hooks.md lists kernel functions worth tracing.

Examples:
  sudo warpscope trace -- ./vectoradd
  sudo warpscope trace --driver -o run.json -o run.jsonl -- python3 infer.py
  sudo warpscope trace --live --match 'cuMem*,cudaMalloc*' -p 1234
  sudo warpscope trace --summary-only -d 10 -a
  sudo warpscope trace --lib libnccl.so.2 --uprobe './app:ns::Model::*' -- ./app
  sudo warpscope trace --fentry 'vfs_read,vfs_write' -- ./app
  warpscope trace --list 'cuMemcpy*'";

/// `trace`
#[derive(Args, Debug)]
#[command(after_help = TRACE_HELP)]
pub struct Trace {
    /// Trace a running process and its future children; may be repeated.
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["all", "command"])]
    pub pid: Vec<u32>,
    /// Trace every process that uses CUDA, including those that start later.
    #[arg(short, long, conflicts_with = "command")]
    pub all: bool,
    /// Trace only functions matching PATTERN.
    #[arg(long, value_name = "PATTERN")]
    pub r#match: Vec<String>,
    /// Do not trace functions matching PATTERN.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Also trace query functions such as cudaGetDevice, which programs call constantly.
    #[arg(long)]
    pub all_calls: bool,
    /// Also trace this library, given by path or file name; may be repeated.
    #[arg(long, value_name = "LIBRARY")]
    pub lib: Vec<PathBuf>,
    /// Also trace functions of a library or program matching PATTERN; may be repeated.
    #[arg(long, value_name = "LIBRARY:PATTERN")]
    pub uprobe: Vec<String>,
    /// Trace driver requests: ioctl, mmap, open and close on /dev/nvidia*, and Xid events.
    #[arg(long, alias = "kernel")]
    pub driver: bool,
    /// Trace kernel functions with kprobes.
    #[arg(long, value_name = "PATTERN")]
    pub kprobe: Vec<String>,
    /// Trace kernel functions with fentry (requires BTF).
    #[arg(long, value_name = "PATTERN")]
    pub fentry: Vec<String>,
    /// Trace a tracepoint; may be repeated.
    #[arg(long, value_name = "CATEGORY:NAME")]
    pub tracepoint: Vec<String>,
    /// Record off-CPU intervals.
    #[arg(long)]
    pub sched: bool,
    /// Record the stack of every call.
    #[arg(long)]
    pub stacks: bool,
    /// Do not load the CUPTI library into the command; GPU activity is not traced.
    #[arg(long)]
    pub no_gpu: bool,
    /// Where to take calls from; CUPTI reports those of a command, without --stacks and options for other events.
    #[arg(long, value_name = "SOURCE", value_enum, default_value_t = CallsFrom::Probes)]
    pub calls_from: CallsFrom,
    /// Print calls as they return: all, or those matching PATTERN.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub live: Option<String>,
    /// Aggregate calls in the kernel instead of recording each one; for millions of calls per second.
    #[arg(long, conflicts_with_all = ["live", "stacks", "driver", "sched", "tracepoint"])]
    pub summary_only: bool,
    /// List what can be traced, or what matches PATTERN, and exit.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "")]
    pub list: Option<String>,
    /// Stop tracing after SECS seconds; the command keeps running.
    #[arg(short, long, value_name = "SECS")]
    pub duration: Option<f64>,
    /// Write to FILE; may be repeated [default: trace.wscope, numbered if it exists].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Show the interpreter's native frames instead of Python functions in stacks.
    #[arg(long)]
    pub no_python: bool,
    /// Run the command on the simulated GPU.
    #[arg(long)]
    pub sim: bool,
    /// Under sudo, run the command as root instead of as the calling user.
    #[arg(long)]
    pub as_root: bool,
    /// Print only errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print progress details.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// The command to run, and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const MONITOR_HELP: &str =
    "Without --memleak, --cudatrace, --bandwidth or --errors, all four are on. Calls are aggregated in
the kernel and read at each scrape or table; nothing is loaded into any process, and no process has
to be restarted. /metrics serves Prometheus (OpenMetrics), /healthz serves health checks.

CUDA libraries on the loader's search path and in Python packages are monitored before a program
loads them. Libraries elsewhere are monitored some milliseconds after they are first loaded; use
--lib FILE to monitor one from its first call.

Examples:
  sudo warpscope monitor                            monitor every GPU process; metrics on port 9400
  sudo warpscope monitor --memleak -p 1234          show which lines hold memory
  warpscope monitor --map 1234                      list its live allocations by address
  sudo warpscope monitor --display-interval 0 --metrics-addr 0.0.0.0:9400
  sudo warpscope monitor --config monitor.toml      every long option is a key: max-series = 5000";

/// Where `trace` takes calls from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CallsFrom {
    /// Probes on the functions.
    Probes,
    /// CUPTI's callbacks inside the command, where possible.
    Cupti,
}

/// `monitor`
#[derive(Args, Debug)]
#[command(after_help = MONITOR_HELP)]
pub struct Monitor {
    /// Track memory: live allocations, the code that made them, and leak suspects.
    #[arg(long)]
    pub memleak: bool,
    /// Count launches by kernel.
    #[arg(long)]
    pub cudatrace: bool,
    /// Measure copies and memsets: bytes, direction, time.
    #[arg(long, alias = "bandwidth-util")]
    pub bandwidth: bool,
    /// Count failed calls by function and error; queries such as cudaGetDevice are not monitored.
    #[arg(long)]
    pub errors: bool,
    /// Serve metrics on this address; empty to disable [default: 127.0.0.1:9400].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_addr: Option<String>,
    /// Print a table every SECS seconds; 0 to disable [default: 5].
    #[arg(long, value_name = "SECS")]
    pub display_interval: Option<f64>,
    /// Monitor only this process and its future children; may be repeated.
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Monitor only processes in this control group.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Read options from a TOML file; command-line options take precedence.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Limit the number of per-process time series; the rest are summed as "other" [default: 20000].
    #[arg(long, value_name = "N")]
    pub max_series: Option<usize>,
    /// Limit the number of kernels per process with their own time series [default: 30].
    #[arg(long, value_name = "N")]
    pub top_kernels: Option<usize>,
    /// Print the live allocations of a process, queried from the running monitor, and exit.
    #[arg(long, value_name = "PID")]
    pub map: Option<u32>,
    /// Keep serving the metrics of an exited process for SECS seconds [default: 300].
    #[arg(long, value_name = "SECS")]
    pub keep_ended: Option<f64>,
    /// Monitor this CUDA library, or program with a static CUDA runtime, from its first call; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub lib: Vec<PathBuf>,
    /// Do not record the call stacks of allocations.
    #[arg(long)]
    pub no_stacks: bool,
    /// Do not query NVML for GPU metrics.
    #[arg(long)]
    pub no_nvml: bool,
    /// Print no table, and log only warnings.
    #[arg(short, long)]
    pub quiet: bool,
    /// Log what is probed, and how long attaching took.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
}

/// `top`
#[derive(Args, Debug)]
#[command(after_help = "Press ? for the list of keys and q to quit.

Examples:
  sudo warpscope top
  sudo warpscope top --interval 0.5 -p 1234")]
pub struct Top {
    /// Refresh every SECS seconds.
    #[arg(long, value_name = "SECS", default_value_t = 1.0)]
    pub interval: f64,
    /// Monitor only this process and its future children; may be repeated.
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Monitor only processes in this control group.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Do not query NVML for GPU metrics.
    #[arg(long)]
    pub no_nvml: bool,
}

/// `report`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  warpscope report warpscope.wscope
  warpscope report --json warpscope.wscope | jq '.top_kernels[0]'")]
pub struct Report {
    /// The recording to read (.wscope).
    pub recording: PathBuf,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show the work of CUDA graphs under the code that captured it, or under the code that launched the graph.
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
}

/// `export`
#[derive(Args, Debug)]
#[command(after_help = concat!(
    formats!(),
    "

Examples:
  warpscope export warpscope.wscope -o run.svg -o run.json
  warpscope export warpscope.wscope --event malloc -o malloc.svg"
))]
pub struct Export {
    /// The recording to read (.wscope).
    pub recording: PathBuf,
    /// Write to FILE; may be repeated.
    #[arg(short, long, value_name = "FILE", required = true)]
    pub output: Vec<PathBuf>,
    /// Omit CPU samples from flame graphs and folded stacks.
    #[arg(long, conflicts_with = "cpu_only")]
    pub gpu_only: bool,
    /// Omit GPU activity from flame graphs and folded stacks.
    #[arg(long)]
    pub cpu_only: bool,
    /// Show an event recorded with `record --event`, instead of time, in flame graphs and folded stacks.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["gpu_only", "cpu_only"])]
    pub event: Option<String>,
    /// Show the work of CUDA graphs under the code that captured it, or under the code that launched the graph.
    #[arg(long, value_name = "STACKS", value_enum, default_value_t)]
    pub graph_stacks: GraphStacks,
    /// With --event, show the number of hits even if the event has a weight.
    #[arg(long, requires = "event")]
    pub count: bool,
}

/// `demo`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sudo warpscope demo")]
pub struct Demo {
    /// Write to FILE; may be repeated [default: demo.svg and demo.wscope].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
}

/// `sim`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  warpscope sim --libs /tmp/sim
  cc program.c -L/tmp/sim -lcudart -o program
  sudo warpscope record --sim -- ./program

The environment variable WARPSCOPE_SIM configures the simulated GPU, for example
  WARPSCOPE_SIM=devices=2,release=12.8,order=shuffle
docs/simulator.md lists every key.")]
pub struct Sim {
    /// Write the libraries to DIR, creating it if needed.
    #[arg(long, value_name = "DIR")]
    pub libs: PathBuf,
}
