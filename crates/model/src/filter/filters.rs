//! What is selected.

use std::collections::HashSet;

use crate::event::StackId;

/// What selects a part of a recording, as the options of the command line. Those of different kinds must all match; of one
/// that is repeated, any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Pids.
    pub pid: Vec<u32>,
    /// Patterns for the names of processes.
    pub comm: Vec<String>,
    /// A rank.
    pub rank: Option<u32>,
    /// Threads.
    pub tid: Vec<u32>,
    /// GPUs, as they are shown.
    pub device: Vec<String>,
    /// Streams.
    pub stream: Vec<u32>,
    /// Patterns for the names of kernels.
    pub kernel: Vec<String>,
    /// Patterns for frames of stacks.
    pub path: Vec<String>,
    /// Patterns for the names of NVTX ranges.
    pub nvtx: Vec<String>,
    /// Names of phases.
    pub phase: Vec<String>,
    /// What belongs to them.
    pub of_phase: Option<PhaseSelection>,
    /// What was given for the step whose time is selected.
    pub step: Vec<String>,
    /// The time of that step.
    pub step_time: Option<(u64, u64)>,
    /// The time after the start from which on events are selected.
    pub from: Option<String>,
    /// The time after the start until which events are selected.
    pub to: Option<String>,
}

/// What belongs to some phases: GPU work by its stack, unless its kernel communicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseSelection {
    /// Their stacks.
    pub stacks: HashSet<StackId>,
    /// Communication is one of them.
    pub communication: bool,
    /// Names of kernels that communicate.
    pub communicating: HashSet<String>,
}

impl Filters {
    /// Whether any is given.
    pub fn is_used(&self) -> bool {
        *self != Self::default()
    }

    /// Returns those that are given, as on the command line.
    pub fn given(&self) -> Vec<String> {
        let Self { pid, comm, rank, tid, device, stream, kernel, path, nvtx, phase, step, from, to, .. } = self;
        let numbers = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>();
        let all = [
            ("pid", numbers(pid)),
            ("comm", comm.clone()),
            ("rank", numbers(rank.as_slice())),
            ("tid", numbers(tid)),
            ("device", device.clone()),
            ("stream", numbers(stream)),
            ("kernel", kernel.clone()),
            ("path", path.clone()),
            ("nvtx", nvtx.clone()),
            ("phase", phase.clone()),
            ("step", step.clone()),
            ("from", from.iter().cloned().collect()),
            ("to", to.iter().cloned().collect()),
        ];
        let words = all.iter().flat_map(|(name, values)| values.iter().map(move |value| format!("--{name} {value}")));
        words.map(|word| text::names::printable(&word).into_owned()).collect()
    }

    /// Returns the time range alone.
    pub fn range(&self) -> Self {
        let Self { step, step_time, from, to, .. } = self.clone();
        Self { step, step_time, from, to, ..Self::default() }
    }
}
