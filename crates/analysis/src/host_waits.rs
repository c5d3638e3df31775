//! How long host threads waited for GPUs, and how long they took to launch.

use std::collections::{BTreeSet, HashSet};

use cuda::calls::Role;
use model::{
    event::{NamedFrame, ProcessId},
    profile::{CpuWeight, Profile},
};
use text::short::split_place;

/// Waits for GPUs, and launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostWaits {
    /// All waits: synchronising calls, and copies that block.
    pub all: CpuWeight,
    /// Of these, copies that block.
    pub copies: CpuWeight,
    /// Launch-class calls that did not wait, as far as their length is known.
    pub launching: CpuWeight,
}

impl HostWaits {
    /// Sums up a profile.
    pub fn of(profile: &Profile) -> Self {
        let mut waits = Self { all: profile.waits, copies: CpuWeight::default(), launching: profile.launching };
        for (&(_, _, stack), late) in &profile.late_copies {
            if is_asynchronous(&profile.frames(stack)) {
                add(&mut waits.launching, late.calls);
            } else {
                add(&mut waits.all, late.waited);
                add(&mut waits.copies, late.waited);
            }
        }
        waits
    }

    /// Sums up the waits that may keep a GPU waiting: for a stream without kernels, a thread waits beside those that feed the
    /// GPU; and so does one in a copy that blocks, unless it is one of the `feeders`.
    pub fn of_feeders(profile: &Profile, feeders: &BTreeSet<(ProcessId, u32)>) -> CpuWeight {
        let process = |session| profile.sessions.get(&session).map(|info| info.process);
        let of_kernels = profile.gpu.keys().filter(|key| key.what.kernel().is_some());
        let streams: HashSet<(ProcessId, u32)> = of_kernels.map(|key| (key.process, key.stream)).collect();
        let mut sum = profile.waits;
        for (&(session, stream), waited) in &profile.stream_waits {
            if process(session).is_some_and(|process| !streams.contains(&(process, stream))) {
                sum.count = sum.count.saturating_sub(waited.count);
                sum.ns = sum.ns.saturating_sub(waited.ns);
            }
        }
        for (&(process, tid, stack), late) in &profile.late_copies {
            if feeders.contains(&(process, tid)) && !is_asynchronous(&profile.frames(stack)) {
                add(&mut sum, late.waited);
            }
        }
        sum
    }

    /// Returns the mean time of a launch, if it is known.
    pub fn launch_each_ns(&self) -> Option<u64> {
        self.launching.ns.checked_div(self.launching.count)
    }
}

/// Whether a call only launches a copy, by its name: it returned after the copy because the copy was short.
fn is_asynchronous(stack: &[NamedFrame]) -> bool {
    let copies = |name: &str| cuda::call(name).is_some_and(|call| call.role == Role::Copy);
    stack.iter().map(|frame| split_place(&frame.name).0).any(|name| name.contains("Async") && copies(name))
}

fn add(sum: &mut CpuWeight, other: CpuWeight) {
    sum.count = sum.count.saturating_add(other.count);
    sum.ns = sum.ns.saturating_add(other.ns);
}
