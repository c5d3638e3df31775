//! The command line of `hang`.

use std::path::PathBuf;

use clap::Args;

use super::values;

const HANG_HELP: &str = "Looks at the processes from outside: nothing is loaded into them, no probe is attached, and no
thread is stopped. Ranks are processes that have loaded CUDA or NCCL and whose environment has
RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID; with -p, any processes. A rank waits if it
stays in a collective operation, or in a call that waits for the GPU, all the time.

Exit status: 0 if no rank waits for one that is elsewhere, 3 if some do, or if all wait in different
places; 1 after an error.

Examples:
  sudo warpscope hang --all                           which rank has not arrived, and where is it?
  sudo warpscope hang -p 4711 -p 4712 -d 2s           watch two processes for two seconds
  sudo warpscope hang --cgroup /kubepods/pod42 --stacks
  srun --overlap --ntasks-per-node=1 warpscope hang --all -q -o '{host}.json'
  warpscope hang *.json                               join the files of several hosts
  sudo warpscope hang --all --json | jq -r '.jobs[].text'";

/// `hang`
#[derive(Args, Debug)]
#[command(after_help = HANG_HELP)]
pub struct Hang {
    /// Look at this process; may be repeated.
    #[arg(short, long, value_name = "PID", value_parser = values::pid)]
    pub pid: Vec<u32>,
    /// Look at all ranks on this host.
    #[arg(short, long, conflicts_with = "pid")]
    pub all: bool,
    /// Look at the ranks in a control group (v2) and its descendants.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Watch the processes for SECS seconds.
    #[arg(short, long, value_name = "SECS", value_parser = values::seconds, default_value = "0.5")]
    pub duration: f64,
    /// Write what was seen as JSON to FILE, to be joined with the files of other hosts; {host} and {time} in FILE are replaced.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print the stacks of all ranks, and not only of those that have not arrived.
    #[arg(long, conflicts_with = "json")]
    pub stacks: bool,
    /// Show file and line of native functions (-g).
    #[arg(long)]
    pub lines: bool,
    /// Print only errors.
    #[arg(short, long, conflicts_with_all = ["json", "stacks"])]
    pub quiet: bool,
    /// Files written by -o or --json, one for each host, to be joined.
    #[arg(value_name = "FILE", conflicts_with_all = ["pid", "all", "cgroup", "duration", "lines"])]
    pub files: Vec<PathBuf>,
}
