//! Ranks of a distributed program: the work of each, and which ones the others waited for.
//!
//! A collective operation (NCCL) runs one kernel on each rank, and ends only after the last rank has joined in. Which kernels
//! belong together is known from the communicators ([`crate::communication`]). Without these, the k-th
//! run of a kernel on one rank and the k-th run of the same kernel on another belong together, if all ranks ran it equally
//! often. The time from the start of a rank's kernel to the start of the last one is spent waiting:
//!
//! ```text
//!   rank 0   --[####====]----[###====]-     # waits for rank 1    = all ranks take part
//!   rank 1   ------[====]-------[====]-
//! ```
//!
//! Kernels that only send and receive are then left out. With several communicators that use the same kernel, ranks of
//! different ones may be compared; the summary states the assumption. A process without CUDA has the rank of the
//! process that started it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use crate::event::{Event, Owner, ProcessId, SessionId};

/// All ranks of a recording.
#[derive(Clone, Debug, Default)]
pub struct Ranks {
    /// By rank.
    pub all: BTreeMap<u32, RankInfo>,
    /// The ranks of the processes that report one.
    pub of_process: BTreeMap<ProcessId, u32>,
    /// Collective operations that all ranks took part in.
    pub collectives: u64,
    /// Kernels of collective operations that could not be assigned: what they execute is not known, a member is not in the
    /// recording, or there were too many.
    pub unassigned: u64,
    /// No communicators are known: operations are assumed to be the k-th runs of a kernel.
    pub assumed: bool,
}

/// A rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankInfo {
    /// Its rank on this machine, if known.
    pub local: Option<u32>,
    /// The environment variable that contains the rank.
    pub variable: String,
    /// Its CUDA processes.
    pub sessions: BTreeSet<SessionId>,
    /// Launches.
    pub launches: u64,
    /// Kernels, copies and memsets.
    pub operations: u64,
    /// Their durations, added up.
    pub gpu_ns: u64,
    /// Time in which at least one of them ran.
    pub busy_ns: u64,
    /// The end of the last of them; 0 if none has one.
    pub end: u64,
    /// Time in which only communication kernels ran.
    pub exposed_ns: u64,
    /// Communication kernels.
    pub communication: u64,
    /// Their durations, added up.
    pub communication_ns: u64,
    /// Time that its communication kernels waited for each other rank.
    pub waited: BTreeMap<u32, u64>,
    /// Collective operations that it started last.
    pub last: u64,
}

impl RankInfo {
    /// Returns the time that its communication kernels waited for other ranks.
    pub fn waited_ns(&self) -> u64 {
        self.waited.values().fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}

/// Whether a kernel belongs to NCCL, by its mangled or demangled name: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`.
pub fn is_communication(kernel: &str) -> bool {
    let name = kernel.strip_prefix("_Z").map_or(kernel, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let name = name.strip_prefix("void ").unwrap_or(name);
    name.starts_with("nccl") && name.split_once('_').is_some_and(|(first, _)| first.ends_with("Kernel"))
}

/// Whether a communication kernel involves all ranks: those that send and receive involve two.
pub fn is_collective(kernel: &str) -> bool {
    is_communication(kernel) && !kernel.contains("SendRecv")
}

impl Ranks {
    /// Returns the rank of a process: its own, or that of the process that started it.
    pub fn of(&self, process: ProcessId, parent: impl Fn(ProcessId) -> Option<ProcessId>) -> Option<u32> {
        let mut image = Some(process);
        // Images refer to earlier ones; a damaged recording may contain a circle.
        for _ in 0..64 {
            let id = image?;
            if let Some(rank) = self.of_process.get(&id) {
                return Some(*rank);
            }
            image = parent(id);
        }
        None
    }
}

/// The events of some processes.
#[derive(Debug, Default)]
pub struct Selection {
    processes: FxHashSet<ProcessId>,
    sessions: FxHashSet<SessionId>,
}

impl Selection {
    /// Selects processes, and the sessions that they have.
    pub fn of_processes(
        processes: impl IntoIterator<Item = ProcessId>,
        sessions: impl IntoIterator<Item = SessionId>,
    ) -> Self {
        Self { processes: processes.into_iter().collect(), sessions: sessions.into_iter().collect() }
    }

    /// Whether a process is one of them.
    pub fn has_process(&self, process: ProcessId) -> bool {
        self.processes.contains(&process)
    }

    /// Whether an event belongs to these processes, or to the recording as a whole.
    pub fn includes(&self, event: &Event) -> bool {
        match (event, event.owner()) {
            // They are used only by other events.
            (Event::Stack(_) | Event::Symbol(_) | Event::Mapping(_), _) => true,
            (_, Some(Owner::Process(id))) => self.processes.contains(&id),
            (_, Some(Owner::Session(id))) => self.sessions.contains(&id),
            // Other processes may use the GPU too.
            (_, Some(Owner::Gpu)) => false,
            (_, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that NCCL's kernels are recognised by their mangled and demangled names, and others are not.
    #[test]
    fn communication_is_recognised_by_name() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            "ncclSymDevKernel_AllGather_ST(ncclSymDevArgs)",
        ] {
            assert!(is_communication(name), "{name}");
        }
        assert!(is_communication("ncclDevKernel_SendRecv()") && !is_collective("ncclDevKernel_SendRecv()"));
        for name in ["my_ncclDevKernel_x", "nccl", "ncclReduce_x", "_Z6kernelv", "void gemm<float>()"] {
            assert!(!is_communication(name), "{name}");
        }
    }

    /// Check that a process without a rank has that of the process that started it.
    #[test]
    fn children_have_the_rank_of_their_parent() {
        let ranks = Ranks { of_process: [(ProcessId(2), 7)].into(), ..Ranks::default() };
        let parent = |id: ProcessId| (id.0 > 1).then(|| ProcessId(id.0 - 1));
        let of = |id: u32| ranks.of(ProcessId(id), parent);
        assert_eq!([of(1), of(2), of(4)], [None, Some(7), Some(7)]);
        assert_eq!(ranks.of(ProcessId(9), Some), None, "a circle");
    }
}
