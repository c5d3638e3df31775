//! The ledger: what was seen, what was joined, what was lost, each by name and to the unit.
//!
//! Two equations hold in every recording and are tested:
//! launches = matched launches + failed + captured + empty + pending, and activities = matched activities + unmatched.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{LossCause, StackEnd};

/// Counts that every output carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Launch-class calls seen.
    pub launches: u64,
    /// Of those, calls to which at least one activity was joined.
    pub launches_matched: u64,
    /// Of those, calls that returned an error.
    pub launches_failed: u64,
    /// Of those, calls that became nodes of a graph: their work is the graph's, and counts for its launches.
    pub launches_captured: u64,
    /// Of those, calls that gave the GPU nothing to do, such as copies of 0 bytes.
    pub launches_empty: u64,
    /// Of those, calls whose activity never came.
    pub launches_pending: u64,
    /// Kernels received.
    pub kernels: u64,
    /// Copies received.
    pub copies: u64,
    /// Memsets received.
    pub memsets: u64,
    /// Waits received.
    pub syncs: u64,
    /// Kernels, copies and memsets joined to their launch.
    pub activities_matched: u64,
    /// Kernels, copies and memsets whose launch was not seen.
    pub activities_unmatched: u64,
    /// Time of all kernels received.
    pub kernel_ns: u64,
    /// Time of all kernels as the sessions counted it when CUPTI delivered them.
    pub kernel_ns_delivered: u64,
    /// Kernels, copies and memsets that the sessions say CUPTI delivered.
    pub activities_delivered: u64,
    /// CPU samples.
    pub samples: u64,
    /// Records whose times were lost (start and end 0): counted, of no width.
    pub zero_time: u64,
    /// Records of work that had not finished: counted, of no width.
    pub unfinished: u64,
    /// Stacks that were referred to but never came.
    pub stacks_missing: u64,
    /// How the walks of the stacks ended, by GPU activities under them.
    pub gpu_stack_ends: BTreeMap<StackEnd, u64>,
    /// How the walks of the stacks ended, by CPU samples under them.
    pub cpu_stack_ends: BTreeMap<StackEnd, u64>,
    /// Hits of counted events.
    #[serde(skip_serializing_if = "is_zero")]
    pub hits: u64,
    /// How the walks of the stacks ended, by hits of counted events under them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hit_stack_ends: BTreeMap<StackEnd, u64>,
    /// Sessions whose process exited before it flushed its GPU records, as one that is killed does.
    pub sessions_cut_off: u64,
    /// Sessions whose process was still running when the recording stopped, and that did not finish in time.
    pub sessions_left: u64,
    /// Losses by cause, in a fixed order of names.
    pub lost: Lost,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Losses by cause. A cause that did not occur is 0, never absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Records that CUPTI itself dropped.
    pub cupti_dropped: u64,
    /// Records that found the injected library's queue full.
    pub queue_full: u64,
    /// Records that contradict themselves.
    pub invalid_records: u64,
    /// Kernels whose name found the name table full.
    pub names: u64,
    /// Buffers refused to CUPTI.
    pub buffers_refused: u64,
    /// Launches forgotten before their activity came, because the join keeps a bounded number.
    pub join_evicted: u64,
    /// Everything counted by [`LossCause`].
    #[serde(flatten)]
    pub causes: BTreeMap<LossCause, u64>,
}

impl Lost {
    /// All losses together.
    pub fn total(&self) -> u64 {
        let named = [
            self.cupti_dropped,
            self.queue_full,
            self.invalid_records,
            self.names,
            self.buffers_refused,
            self.join_evicted,
        ];
        named.iter().chain(self.causes.values()).fold(0, |sum, count| sum.saturating_add(*count))
    }
}
