//! The ledger: exact counts of what was seen, joined and lost, each by name.
//!
//! Two equations hold in every recording and are tested:
//! launches = matched launches + failed + captured + empty + pending, and activities = matched activities + unmatched.
//!
//! A third one relates what was received to what CUPTI delivered, as the sessions counted it on the other side of the
//! socket: delivered = received + queue full + what was lost on the way.
//!
//! A new kind of loss needs a counter, a name here, and a sentence in `analysis/src/losses.rs`; a test there fails if the
//! sentence is missing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    energy::EnergyLedger,
    event::{LossCause, StackEnd},
    stalls::StallLedger,
};

/// Counts included in every output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Launch-class calls seen.
    pub launches: u64,
    /// Of those, calls to which at least one activity was joined.
    pub launches_matched: u64,
    /// Of those, calls that returned an error.
    pub launches_failed: u64,
    /// Of those, calls that became nodes of a graph: their work belongs to the graph and counts for its launches.
    pub launches_captured: u64,
    /// Of those, calls that gave the GPU nothing to do, such as copies of 0 bytes.
    pub launches_empty: u64,
    /// Of those, calls whose activity never arrived.
    pub launches_pending: u64,
    /// The recording is a dump of a program that keeps running: pending launches may not have run yet.
    #[serde(skip)]
    pub keeps_running: bool,
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
    /// Kernels, copies and memsets that graphs launched, each a node.
    #[serde(skip_serializing_if = "is_zero")]
    pub graph_operations: u64,
    /// Of those, the ones whose node was created before the recording began, or by other means that were not seen: they
    /// appear under the launch of their graph.
    #[serde(skip_serializing_if = "is_zero")]
    pub graph_operations_unknown: u64,
    /// The number of their nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub graph_nodes_unknown: u64,
    /// Time of all kernels received.
    pub kernel_ns: u64,
    /// Time of all kernels as counted by the sessions when CUPTI delivered them.
    pub kernel_ns_delivered: u64,
    /// Kernels, copies and memsets that CUPTI delivered according to the sessions.
    pub activities_delivered: u64,
    /// CPU samples.
    pub samples: u64,
    /// Records whose times were lost (start and end 0): counted, with no duration.
    pub zero_time: u64,
    /// Records of work that had not finished: counted, with no duration.
    pub unfinished: u64,
    /// Stacks that were referred to but never arrived.
    pub stacks_missing: u64,
    /// How the stack walks ended, weighted by GPU activities.
    pub gpu_stack_ends: BTreeMap<StackEnd, u64>,
    /// How the stack walks ended, weighted by CPU samples.
    pub cpu_stack_ends: BTreeMap<StackEnd, u64>,
    /// Hits of counted events.
    #[serde(skip_serializing_if = "is_zero")]
    pub hits: u64,
    /// How the stack walks ended, weighted by hits of counted events.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hit_stack_ends: BTreeMap<StackEnd, u64>,
    /// Sessions whose process exited before flushing its GPU records, for example because it was killed.
    pub sessions_cut_off: u64,
    /// Sessions whose process was still running when the recording stopped, and which did not finish in time.
    pub sessions_left: u64,
    /// The energy of the GPUs; absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyLedger>,
    /// What was sampled inside kernels; absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls: Option<StallLedger>,
    /// Times without GPU records, because another client used CUPTI.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// Losses by cause, in a fixed order of names.
    pub lost: Lost,
}

/// A time without GPU records of a process, because another client used CUPTI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// The process.
    pub pid: u32,
    /// Nanoseconds from the start of the recording.
    pub start_ns: u64,
    /// How long it lasted.
    pub ns: u64,
    /// The other client, as far as known.
    pub client: String,
    /// The client was still there when the recording ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lasts: bool,
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
    /// Records dropped because the injected library's queue was full.
    pub queue_full: u64,
    /// Launches without a stack, or only counted, dropped because that queue was full.
    pub queue_full_launches: u64,
    /// Inconsistent records.
    pub invalid_records: u64,
    /// Kernels whose name did not fit into the name table.
    pub names: u64,
    /// Buffers refused to CUPTI.
    pub buffers_refused: u64,
    /// Launches dropped before their activity arrived, because the join is bounded.
    pub join_evicted: u64,
    /// Losses counted by [`LossCause`].
    #[serde(flatten)]
    pub causes: BTreeMap<LossCause, u64>,
}

impl Lost {
    /// Returns the sum of all losses.
    pub fn total(&self) -> u64 {
        let named = [
            self.cupti_dropped,
            self.queue_full,
            self.queue_full_launches,
            self.invalid_records,
            self.names,
            self.buffers_refused,
            self.join_evicted,
        ];
        named.iter().chain(self.causes.values()).fold(0, |sum, count| sum.saturating_add(*count))
    }
}
