//! The command lines of `monitor` and `top`.

use std::path::PathBuf;

use clap::Args;
use monitor::top::Column;

use super::values;

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
  sudo warpscope monitor --allow-record /run/warpscope-token
  curl -X POST -H \"Authorization: Bearer $(cat /run/warpscope-token)\" \\
      '127.0.0.1:9400/record?pid=1234&seconds=5'
  sudo warpscope monitor --config monitor.toml      every long option is a key: max-series = 5000";

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
    /// Count failed calls by function and error; query functions such as cudaGetDevice are not monitored.
    #[arg(long)]
    pub errors: bool,
    /// Serve metrics on this address; empty to disable [default: 127.0.0.1:9400].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_addr: Option<String>,
    /// Print a table every SECS seconds; 0 to disable [default: 5].
    #[arg(long, value_name = "SECS", value_parser = values::seconds)]
    pub display_interval: Option<f64>,
    /// Monitor only this process and its future children; may be repeated.
    #[arg(short, long, value_name = "PID", value_parser = values::pid)]
    pub pid: Vec<u32>,
    /// Monitor only processes in this control group.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Read options from a TOML file; command-line options take precedence.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Limit the cost to PERCENT of the CPU time of the monitored processes: launches, copies and errors are then counted
    /// only part of the time, memory always.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent)]
    pub max_overhead: Option<f64>,
    /// Limit the number of per-process time series; the rest are summed as "other" [default: 20000].
    #[arg(long, value_name = "N")]
    pub max_series: Option<usize>,
    /// Limit the number of kernels per process with their own time series [default: 30].
    #[arg(long, value_name = "N")]
    pub top_kernels: Option<usize>,
    /// Print the live allocations of a process, queried from the running monitor, and exit.
    #[arg(long, value_name = "PID", value_parser = values::pid)]
    pub map: Option<u32>,
    /// With --map: print JSON, with exact sizes and whole stacks.
    #[arg(long, requires = "map")]
    pub json: bool,
    /// Let clients on this machine record processes with POST /record?pid=PID and the token in FILE, which is created
    /// if missing.
    #[arg(long, value_name = "FILE")]
    pub allow_record: Option<PathBuf>,
    /// Keep serving the metrics of an exited process for SECS seconds [default: 300].
    #[arg(long, value_name = "SECS", value_parser = values::seconds)]
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
#[command(
    after_help = "Press ? for the list of keys and q to quit. r records the selected process for a few seconds, as
`record -p PID` does, and writes warpscope.html and warpscope.wscope to the working directory.

Columns: pid, user, gpus, live, peak, used, launches, htod, dtoh, errors, memory-history,
launch-history, name. pid and name are always shown; columns that do not fit are hidden.

Examples:
  sudo warpscope top
  sudo warpscope top --interval 0.5 -p 1234
  sudo warpscope top --columns gpus,used,launches,memory-history"
)]
pub struct Top {
    /// Refresh every SECS seconds.
    #[arg(long, value_name = "SECS", default_value_t = 1.0, value_parser = values::seconds)]
    pub interval: f64,
    /// Record for SECS seconds when r is pressed.
    #[arg(long, value_name = "SECS", default_value_t = 5.0, value_parser = values::seconds)]
    pub record_seconds: f64,
    /// Show these columns; the key c changes them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Column::parse)]
    pub columns: Vec<Column>,
    /// Monitor only this process and its future children; may be repeated.
    #[arg(short, long, value_name = "PID", value_parser = values::pid)]
    pub pid: Vec<u32>,
    /// Monitor only processes in this control group.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Do not query NVML for GPU metrics.
    #[arg(long)]
    pub no_nvml: bool,
}
