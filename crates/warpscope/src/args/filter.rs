//! The options that select a part of a recording.

use std::path::PathBuf;

use clap::Args;
use model::filter;

use super::values;

/// Selects a part of a recording. Options of different kinds must all match; of one that is repeated, any.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters")]
pub struct Filters {
    /// Include only the process PID; may be repeated.
    #[arg(long, value_name = "PID", value_parser = values::pid)]
    pub pid: Vec<u32>,
    /// Include only processes whose name matches PATTERN: a part of the name, or a glob (* ? []).
    #[arg(long, value_name = "PATTERN")]
    pub comm: Vec<String>,
    /// Include only the processes of one rank of a distributed program.
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Include only the thread TID, and the GPU work that it launched; may be repeated.
    #[arg(long, value_name = "TID")]
    pub tid: Vec<u32>,
    /// Include only work on GPU N; may be repeated.
    #[arg(long, value_name = "N")]
    pub device: Vec<String>,
    /// Include only work on stream N; may be repeated.
    #[arg(long, value_name = "N")]
    pub stream: Vec<u32>,
    /// Include only kernels whose name matches PATTERN.
    #[arg(long, value_name = "PATTERN")]
    pub kernel: Vec<String>,
    /// Include only stacks with a frame that matches PATTERN.
    #[arg(long, value_name = "PATTERN")]
    pub path: Vec<String>,
    /// Include only GPU work launched inside an NVTX range whose name matches PATTERN; requires `record --nvtx`.
    #[arg(long, value_name = "PATTERN")]
    pub nvtx: Vec<String>,
    /// Include only what belongs to a phase, one of those that `report --by phases` lists; may be repeated.
    #[arg(long, value_name = "PHASE")]
    pub phase: Vec<String>,
    /// Read more rules for phases from FILE: in each line PHASE FUNCTION [SOURCE].
    #[arg(long, value_name = "FILE")]
    pub phase_rules: Option<PathBuf>,
    /// Include only what happened in one step of the program's loop: its number, or `slowest`. Otherwise, what steps are: the calls
    /// of a function (`Trainer.training_step`, `step (sgd.py:*)`), or NVTX ranges (`nvtx:iteration`). May be given twice.
    #[arg(long, value_name = "STEP", conflicts_with_all = ["from", "to"])]
    pub step: Vec<String>,
    /// Include only what happened later than TIME (such as 1.5s or 200ms) after the start.
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Include only what happened earlier than TIME after the start.
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
}

impl Filters {
    /// Returns what they select, with the time of the step, if one is selected. Otherwise `--step` only says what steps are. What
    /// belongs to phases is not known here.
    pub fn wanted(&self, step_time: Option<(u64, u64)>) -> filter::Filters {
        let Self { pid, comm, rank, tid, device, stream, kernel, path, nvtx, phase, step, from, to, .. } = self.clone();
        let step = if step_time.is_some() { step } else { Vec::new() };
        let of_phase = None;
        filter::Filters {
            pid,
            comm,
            rank,
            tid,
            device,
            stream,
            kernel,
            path,
            nvtx,
            phase,
            of_phase,
            step,
            step_time,
            from,
            to,
        }
    }
}
