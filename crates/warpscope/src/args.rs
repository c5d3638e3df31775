//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

/// Shows what CPUs and NVIDIA GPUs do, and which line of code made them do it.
#[derive(Debug, Parser)]
#[command(
    name = "warpscope",
    version,
    max_term_width = 100,
    after_help = "Examples:
  warpscope demo                                  the whole tool on a simulated GPU: no CUDA, no GPU needed
  sudo warpscope record -- python3 train.py       a flame graph of CPUs and GPUs: warpscope.svg
  sudo warpscope trace --driver -- ./vectoradd    every CUDA call and every ioctl, and a summary
  sudo warpscope monitor                          who leaks, who launches what: every GPU process, for weeks
  warpscope report warpscope.wscope               the summary again
  warpscope doctor                                what this machine allows, and what to do about the rest"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command and record what it does on CPUs and GPUs.
    Record(Record),
    /// Trace CUDA calls and requests to the driver, as events or as sums.
    Trace(Trace),
    /// Watch every GPU process on this machine: memory and leaks, launches, copies, errors; a table and /metrics.
    Monitor(Monitor),
    /// Look at GPU processes on a terminal, with keys: memory, launches, copies, kernels, who leaks.
    Top(Top),
    /// Summarise a recording or a trace: times, top kernels and call paths, copies, and what was lost.
    Report(Report),
    /// Turn a recording into other formats.
    Export(Export),
    /// Tell what this machine allows, and what to do about the rest.
    Doctor,
    /// Record a bundled workload on a simulated GPU: needs no CUDA and no GPU.
    Demo(Demo),
    /// Write out the simulated GPU's libraries.
    Sim(Sim),
    /// Print shell completions.
    #[command(after_help = "Example:\n  warpscope completions bash > /etc/bash_completion.d/warpscope")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    #[command(after_help = "Example:\n  warpscope man | man -l -")]
    Man,
}

/// What the endings of files mean.
macro_rules! formats {
    () => {
        "The file's ending picks the format; -o may be repeated:
  .wscope   the recording: every other format can be made from it later
  .svg      flame graph
  .folded   folded stacks, weights in microseconds (flamegraph.pl, speedscope)
  .json     Chrome trace (chrome://tracing, Perfetto)
  .jsonl    every event as a line of JSON
  .cpu.txt  CPU samples one by one: time, comm, pid, tid, cpu, stack"
    };
}

const RECORD_HELP: &str = concat!(
    formats!(),
    "

The exit status is the command's own; with --kill it is 0 if the command was ended by warpscope's
signal. Its children are followed. Its output is untouched; warpscope's summary goes to stderr
after it has ended.

Events:
  uprobe:LIB:FUNCTION       a function is called: by symbol, C++ or Rust name, or pattern (* ? [])
  uprobe:LIB:0xOFFSET       an instruction, by its offset in the file
  uretprobe:LIB:FUNCTION    a function returns
  tracepoint:GROUP:NAME     a tracepoint of the operating system
  usdt:LIB:[PROVIDER:]NAME  a static tracepoint of a library or program
Options follow, separated by commas:
  weight=argN               weigh each hit by an argument; arg1 is the first. Add a type for a
                            narrow one: weight=arg2:u32 (u8 to u64, s8 to s64)
  weight=retval             by what the function returns (uretprobe)
  weight=FIELD              by a field of the tracepoint
  unit=bytes, unit=ns       how to show the sum
  name=LABEL                what to call the event
LIB is a path, or the beginning of a file name. An event has amounts of its own: with
--events-only -o FILE.svg draws it; else record a .wscope file and use export --event NAME.

Examples:
  sudo warpscope record -- python3 train.py
  sudo warpscope record --gpu-only -o run.svg -o run.json -- ./transformer 64
  sudo warpscope record -F 997 -d 10 -o run.wscope -- torchrun --nproc-per-node 2 train.py
  sudo warpscope record -d 10 --kill -- ./server
  sudo warpscope record --events-only --event uprobe:libc.so.6:malloc,weight=arg1,unit=bytes -o malloc.svg -- ./app
  sudo warpscope record --event tracepoint:syscalls:sys_enter_write,weight=count -- python3 train.py
  warpscope record --sim -- ./program-linked-to-the-simulated-libcudart"
);

/// `record`
#[derive(Args, Debug)]
#[command(after_help = RECORD_HELP)]
pub struct Record {
    /// Record GPU activity alone, under the stacks that launched it; no CPU samples.
    #[arg(long, conflicts_with = "cpu_only")]
    pub gpu_only: bool,
    /// Record CPU samples alone; nothing is loaded into the command.
    #[arg(long)]
    pub cpu_only: bool,
    /// Count an event by call stack; may be repeated. See below.
    #[arg(long, value_name = "EVENT")]
    pub event: Vec<String>,
    /// Record the events of --event alone: no CPU samples, no GPU activity.
    #[arg(long, conflicts_with_all = ["gpu_only", "cpu_only"])]
    pub events_only: bool,
    /// Samples per second on every CPU.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99)]
    pub frequency: u32,
    /// Stop recording after this many seconds; the command continues to run.
    #[arg(short, long, value_name = "SECS")]
    pub duration: Option<f64>,
    /// With -d, end the command after the recording: SIGTERM, and SIGKILL if it still runs 5 seconds later.
    #[arg(long, requires = "duration")]
    pub kill: bool,
    /// Write to FILE; may be repeated [default: warpscope.svg and warpscope.wscope, numbered if they exist].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Show the interpreter's own frames, not the Python functions that it runs.
    #[arg(long)]
    pub no_python: bool,
    /// Show file and line of native functions, and inlined functions as frames of their own; wants debug information (-g).
    #[arg(long)]
    pub lines: bool,
    /// Look for debug files here before /usr/lib/debug; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,
    /// Run the command on the simulated GPU.
    #[arg(long)]
    pub sim: bool,
    /// Under sudo, run the command as root too, not as the user who called sudo.
    #[arg(long)]
    pub as_root: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print what is being done.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// What the command is called in titles, if not by its own name.
    #[arg(skip)]
    pub title: Option<String>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const TRACE_HELP: &str = "The file's ending picks the format; -o may be repeated:
  .wscope   the recording: every other format can be made from it later
  .jsonl    every call, request and kernel as a line of JSON
  .json     Chrome trace (chrome://tracing, Perfetto)

libcuda and libcudart are found automatically: on the library search path, in Python wheels, in
containers, and linked into the program. PATTERN is a shell-style glob (* ? [A-Z]) or a
comma-separated list of globs: 'cuMem*,cuLaunch*'. --uprobe takes one glob, matched against symbols
and demangled names with and without arguments. For functions with an unknown signature the six
argument registers are shown, used or not. docs/hooks.md lists kernel functions worth tracing.

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
    /// Also trace CUDA functions that only ask for something, such as cudaGetDevice. Programs call them all the time.
    #[arg(long)]
    pub all_calls: bool,
    /// Also trace this library, given by path or file name; may be repeated.
    #[arg(long, value_name = "LIBRARY")]
    pub lib: Vec<PathBuf>,
    /// Also trace functions of a library or program matching PATTERN; may be repeated.
    #[arg(long, value_name = "LIBRARY:PATTERN")]
    pub uprobe: Vec<String>,
    /// Trace requests to the driver: ioctl, mmap, open and close on /dev/nvidia*, and Xid events.
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
    /// Record the call stack of every call.
    #[arg(long)]
    pub stacks: bool,
    /// Do not load the CUPTI library into the command; GPU activity is not traced.
    #[arg(long)]
    pub no_gpu: bool,
    /// Print calls as they return; all, or those matching PATTERN.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub live: Option<String>,
    /// Aggregate calls in the kernel instead of recording each one; for millions of calls per second.
    #[arg(long, conflicts_with_all = ["live", "stacks", "driver", "sched", "tracepoint"])]
    pub summary_only: bool,
    /// List what can be traced and exit; all, or what matches PATTERN.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "")]
    pub list: Option<String>,
    /// Stop tracing after this many seconds; the command runs on.
    #[arg(short, long, value_name = "SECS")]
    pub duration: Option<f64>,
    /// Write to FILE; may be repeated [default: trace.wscope, numbered if it exists].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Show the interpreter's own frames in stacks, not the Python functions that it runs.
    #[arg(long)]
    pub no_python: bool,
    /// Run the command on the simulated GPU.
    #[arg(long)]
    pub sim: bool,
    /// Under sudo, run the command as root too, not as the user who called sudo.
    #[arg(long)]
    pub as_root: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print what is being done.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const MONITOR_HELP: &str =
    "Without --memleak, --cudatrace, --bandwidth and --errors all four are watched. Calls are summed
up in the kernel, and read when somebody looks; nothing is loaded into any process, and none has
to be restarted. /metrics is for Prometheus (OpenMetrics), /healthz for health checks.

CUDA libraries on the loader's path and in Python packages are watched before a program loads them.
One elsewhere is watched some milliseconds after it is first loaded; --lib FILE watches it earlier.

Examples:
  sudo warpscope monitor                            every GPU process, and metrics on port 9400
  sudo warpscope monitor --memleak -p 1234          who holds memory, and from which line
  warpscope monitor --map 1234                      its live memory by address: size, kind, age, line
  sudo warpscope monitor --display-interval 0 --metrics-addr 0.0.0.0:9400
  sudo warpscope monitor --config monitor.toml      every long option is a key: max-series = 5000";

/// `monitor`
#[derive(Args, Debug)]
#[command(after_help = MONITOR_HELP)]
pub struct Monitor {
    /// Watch memory: what is live, who allocated it, what grows.
    #[arg(long)]
    pub memleak: bool,
    /// Watch launches, by kernel.
    #[arg(long)]
    pub cudatrace: bool,
    /// Watch copies and memsets: bytes, directions, times.
    #[arg(long, alias = "bandwidth-util")]
    pub bandwidth: bool,
    /// Watch failed calls, by function and error. Functions that only ask, such as cudaGetDevice, are not watched.
    #[arg(long)]
    pub errors: bool,
    /// Where to serve metrics; empty for nowhere [default: 127.0.0.1:9400].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_addr: Option<String>,
    /// Seconds between two tables on the console; 0 for none [default: 5].
    #[arg(long, value_name = "SECS")]
    pub display_interval: Option<f64>,
    /// Watch this process only, and what it forks; may be repeated.
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Watch processes of this control group only.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Take options from a file (TOML) where they are not given here.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The most time series of processes; what is beyond is summed up [default: 20000].
    #[arg(long, value_name = "N")]
    pub max_series: Option<usize>,
    /// Kernels per process with time series of their own [default: 30].
    #[arg(long, value_name = "N")]
    pub top_kernels: Option<usize>,
    /// Ask the monitor that runs for the live memory of a process, by address, and print it.
    #[arg(long, value_name = "PID")]
    pub map: Option<u32>,
    /// Serve the last numbers of an ended process for this long [default: 300].
    #[arg(long, value_name = "SECS")]
    pub keep_ended: Option<f64>,
    /// Watch this CUDA library, or program with a CUDA runtime inside, from its first call; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub lib: Vec<PathBuf>,
    /// Do not take the call stacks of allocations.
    #[arg(long)]
    pub no_stacks: bool,
    /// Do not ask NVML about GPUs.
    #[arg(long)]
    pub no_nvml: bool,
    /// No table on the console, and nothing but warnings in the log.
    #[arg(short, long)]
    pub quiet: bool,
    /// Say what is watched.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
}

/// `top`
#[derive(Args, Debug)]
#[command(after_help = "Keys are shown with ?, and q ends it.

Examples:
  sudo warpscope top
  sudo warpscope top --interval 0.5 -p 1234")]
pub struct Top {
    /// Seconds between two looks.
    #[arg(long, value_name = "SECS", default_value_t = 1.0)]
    pub interval: f64,
    /// Watch this process only, and what it forks; may be repeated.
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Watch processes of this control group only.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Do not ask NVML about GPUs.
    #[arg(long)]
    pub no_nvml: bool,
}

/// `report`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  warpscope report warpscope.wscope
  warpscope report --json warpscope.wscope | jq '.top_kernels[0]'")]
pub struct Report {
    /// The recording.
    pub recording: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
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
    /// The recording.
    pub recording: PathBuf,
    /// Where to write; may be repeated.
    #[arg(short, long, value_name = "FILE", required = true)]
    pub output: Vec<PathBuf>,
    /// Leave CPU samples out of flame graphs and folded stacks.
    #[arg(long, conflicts_with = "cpu_only")]
    pub gpu_only: bool,
    /// Leave GPU activity out of flame graphs and folded stacks.
    #[arg(long)]
    pub cpu_only: bool,
    /// Show an event in flame graphs and folded stacks, in place of time: one that `record --event` counted, by its name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["gpu_only", "cpu_only"])]
    pub event: Option<String>,
    /// Show how often the event happened, even if it has a weight.
    #[arg(long, requires = "event")]
    pub count: bool,
}

/// `demo`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sudo warpscope demo")]
pub struct Demo {
    /// Where to write; may be repeated [default: demo.svg and demo.wscope].
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
}

/// `sim`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  warpscope sim --libs /tmp/sim
  cc program.c -L/tmp/sim -lcudart -o program && warpscope record --sim -- ./program

The simulated GPU is scripted by the environment variable WARPSCOPE_SIM, such as
  WARPSCOPE_SIM=devices=2,release=12.8,order=shuffle
docs/simulator.md lists every key.")]
pub struct Sim {
    /// The directory; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub libs: PathBuf,
}
