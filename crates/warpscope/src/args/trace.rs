//! The command line of `trace`.

use std::{ffi::OsString, path::PathBuf};

use super::{phases::Phases, values};
use analysis::CallView;
use clap::Args;

const TRACE_HELP: &str = "The file extension selects the format; -o may be repeated:
  .wscope   recording; can be converted to every other format later
  .html     report for the browser: timeline and tables in one file
  .jsonl    one JSON object per call, request and kernel
  .json     Chrome trace (chrome://tracing, Perfetto)
and every other format of `warpscope record`.

libcuda and libcudart are found automatically: on the library search path, in Python wheels, in
containers, and linked into the program. PATTERN is a shell-style glob (* ? [A-Z]) or a
comma-separated list of globs: 'cuMem*,cuLaunch*'. --uprobe takes one glob, matched against symbols
and demangled names with and without arguments. Functions with an unknown signature show all six
argument registers, whether used or not. docs/hooks.md lists kernel functions worth tracing.

Examples:
  sudo warpscope trace -- ./vectoradd
  sudo warpscope trace --driver -o run.json -o run.jsonl -- python3 infer.py
  sudo warpscope trace --live --match 'cuMem*,cudaMalloc*' -p 1234
  sudo warpscope trace --driver --min-duration 20us -o slow.jsonl -- ./app
  sudo warpscope trace --summary-only -d 10 -a
  sudo warpscope trace --lib libnccl.so.2 --uprobe './app:ns::Model::*' -- ./app
  sudo warpscope trace --fentry 'vfs_read,vfs_write' -- ./app
  warpscope trace --list 'cuMemcpy*'";

/// `trace`
#[derive(Args, Debug)]
#[command(after_help = TRACE_HELP)]
pub struct Trace {
    /// Trace a running process and its future children; may be repeated.
    #[arg(short, long, value_name = "PID", value_parser = values::pid, conflicts_with_all = ["all", "command"])]
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
    /// Record the stack of every call and, with --sched, of every thread that leaves the CPU.
    #[arg(long)]
    pub stacks: bool,
    /// Do not trace GPU activity; load nothing into the command.
    #[arg(long)]
    pub no_gpu: bool,
    /// Observe calls with CUPTI's callbacks, unless an option needs probes (cupti), or always with probes (probes).
    #[arg(long, value_name = "SOURCE", value_enum, default_value_t = CallsFrom::Cupti)]
    pub calls_from: CallsFrom,
    /// Print calls as they return: all, or those matching PATTERN; `json` prints all as lines of JSON. Prints to stdout
    /// with -p or -a and without -o, otherwise to stderr.
    #[arg(long, value_name = "PATTERN|json", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub live: Option<String>,
    /// Aggregate calls in the kernel instead of recording each one; for millions of calls per second.
    #[arg(long, conflicts_with_all = ["live", "stacks", "driver", "sched", "tracepoint"])]
    pub summary_only: bool,
    /// Leave calls that took less than TIME (such as 20us) out of the events of outputs and of --live. They are counted in
    /// the summary and the tables, and the .wscope recording contains them.
    #[arg(long, value_name = "TIME", value_parser = values::seconds, conflicts_with = "summary_only")]
    pub min_duration: Option<f64>,
    /// In lines of JSON, write what took time as one event (complete), or as two (begin-end).
    #[arg(long, value_name = "PHASES", value_enum, default_value_t)]
    pub phases: Phases,
    /// List what can be traced, or what matches PATTERN, and exit.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "")]
    pub list: Option<String>,
    /// Stop tracing after SECS seconds, or a time such as 500ms or 2m; the command keeps running.
    #[arg(short, long, value_name = "SECS", value_parser = values::seconds)]
    pub duration: Option<f64>,
    /// Write to FILE; may be repeated; {host}, {pid}, {rank} and {time} in FILE are replaced [default: trace.wscope, numbered if it exists].
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
    /// The command to run, and its arguments; options of warpscope go before it.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Where `trace` takes calls from: CUPTI's callbacks inside the command, where possible, or probes on the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CallsFrom {
    // Not doc comments: clap would print each option of `trace` in two lines.
    Cupti,
    Probes,
}

impl Trace {
    /// Returns which calls are written one by one, and how.
    pub fn calls(&self) -> CallView {
        self.phases.of_calls(self.min_duration)
    }
}
