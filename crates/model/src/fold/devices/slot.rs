//! One device: what it is, when it was busy, and what its idle time is charged to.

use std::collections::BTreeSet;

use cuda::occupancy::Limits;

use crate::{
    event::{SessionId, Uuid},
    fold::{
        blame::{Blame, Evidence, Feed},
        busy::{BusyTime, Gap},
    },
    idle::{Idle, Phase},
    profile::DeviceInfo,
};

/// What makes two devices the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Identity {
    /// The UUID.
    Known(Uuid),
    /// The index, if no UUID is known.
    Plain(u32),
}

/// A device.
pub(super) struct Slot {
    pub(super) identity: Identity,
    /// The UUID of its GPU, which is another one if the GPU is partitioned.
    pub(super) gpu: Uuid,
    pub(super) pci: u64,
    pub(super) machine_index: Option<u32>,
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) busy: Option<BusyTime<Feed>>,
    /// The part of it in which kernels ran.
    pub(super) kernels: BusyTime<Feed>,
    /// What its idle time is charged to.
    pub(super) blame: Blame,
    /// The same of parts of the time.
    pub(super) parts: Vec<Blame>,
    pub(super) streams: BTreeSet<(SessionId, u32, u32)>,
    /// A process that sees it used a GPU.
    pub(super) used: bool,
}

impl Slot {
    /// Creates a device without work.
    pub(super) fn new(identity: Identity, gpu: Uuid, pci: u64, machine_index: Option<u32>) -> Self {
        Self {
            identity,
            gpu,
            pci,
            machine_index,
            name: String::new(),
            limits: Limits::default(),
            busy: None,
            kernels: BusyTime::default(),
            blame: Blame::default(),
            parts: Vec::new(),
            streams: BTreeSet::new(),
            used: false,
        }
    }

    /// Returns its UUID, if it is known.
    pub(super) fn uuid(&self) -> Option<Uuid> {
        match self.identity {
            Identity::Known(uuid) => Some(uuid),
            Identity::Plain(_) => None,
        }
    }

    /// Whether it is an instance of a partitioned GPU.
    pub(super) fn is_instance(&self) -> bool {
        self.uuid().is_some_and(|uuid| uuid != self.gpu)
    }

    /// Returns the device as a part of a profile. `whole` is the start of the recording, if it is known, and its end.
    pub(super) fn info(mut self, label: String, whole: (Option<u64>, u64), evidence: &Evidence) -> DeviceInfo {
        let kernel_busy_ns = self.kernels.total();
        let busy = self.busy.as_mut();
        let (busy_ns, gaps) = busy.map_or((0, Vec::new()), |busy| (busy.total(), busy.gaps()));
        let charged = |blame| self.busy.as_ref().map(|busy| idle(busy, &self.kernels, blame, whole, evidence));
        let idle = charged(std::mem::take(&mut self.blame)).unwrap_or_default();
        let idle_of_parts = std::mem::take(&mut self.parts).into_iter().filter_map(charged).collect();
        let prefix = if self.is_instance() { "MIG" } else { "GPU" };
        DeviceInfo {
            label,
            uuid: self.uuid().map(|uuid| format!("{prefix}-{uuid}")).unwrap_or_default(),
            gpu_uuid: if self.is_instance() { format!("GPU-{}", self.gpu) } else { String::new() },
            name: self.name,
            limits: self.limits,
            busy_ns,
            kernel_busy_ns,
            gaps,
            idle,
            idle_of_parts,
            streams: self.streams,
        }
    }
}

/// Charges the remaining gaps of a device.
fn idle(
    busy: &BusyTime<Feed>,
    kernels: &BusyTime<Feed>,
    mut blame: Blame,
    (start, end): (Option<u64>, u64),
    evidence: &Evidence,
) -> Idle {
    for gap in busy.open_gaps() {
        if blame.overlaps(&gap) {
            blame.close(gap, kernels, evidence);
        }
    }
    if let (Some(start), Some(first)) = (start, blame.first) {
        blame.account(Phase::Before, Gap { start, ..first }, evidence);
    }
    if let Some((last, feed)) = busy.last() {
        let gap = Gap { start: last, end, mark: feed.without_launch() };
        blame.account(Phase::After, gap, evidence);
        blame.assign(Phase::After, gap, evidence);
    }
    blame.finish(evidence)
}
