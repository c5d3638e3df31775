//! What a finding consists of.

use model::profile::Profile;
use serde::{Serialize, Serializer};
use text::units;

use crate::user_code::Place;

/// Something that costs time and that the user can change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// One line, with the most important numbers.
    pub title: String,
    /// The numbers behind it.
    pub evidence: Vec<Evidence>,
    /// The line that causes it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What to try.
    pub advice: String,
    /// The share of the recorded time that it affects, 0 to 1.
    pub share: f64,
    /// What could be gained; absent if it costs no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
}

/// The most by which the recorded time could become shorter. Findings overlap: their gains do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gain {
    /// The time.
    pub ns: u64,
    /// How much of the recorded time that is.
    pub severity: Severity,
}

impl Gain {
    pub(super) fn of(ns: u64, profile: &Profile) -> Option<Self> {
        let wall_ns = profile.wall_ns();
        let severity = match share(ns, wall_ns) {
            gain if gain >= 0.2 => Severity::High,
            gain if gain >= 0.05 => Severity::Medium,
            _ => Severity::Low,
        };
        Some(Self { ns: ns.min(wall_ns), severity })
    }
}

/// How much of the recorded time could be gained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// 20 % and more.
    High,
    /// 5 % and more.
    Medium,
    /// Less.
    Low,
}

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A GPU is idle, and why.
    GpuIdle,
    /// No GPU does anything for a long time after the start.
    Start,
    /// A GPU waits for launches: its kernels are shorter than the gaps between them.
    LaunchBound,
    /// The program waits for the GPU again and again.
    Synchronization,
    /// Copies run while no kernel does.
    CopiesAlone,
    /// Copies use memory that is not pinned.
    PageableCopies,
    /// Many short kernels are launched one by one from one line.
    TinyKernels,
    /// Some GPUs have much more work than others.
    Imbalance,
    /// A rank makes the others wait in collective operations again and again, or each does in turn.
    LateRank,
    /// Members of a communicator call different operations.
    CollectiveMismatch,
    /// A member does not call what the others have called.
    MissingMember,
    /// Matrix multiplications do not use the tensor cores.
    NoTensorCores,
    /// A kernel leaves multiprocessors partly empty, and waits.
    LowOccupancy,
    /// A kernel has blocks for a part of the multiprocessors only.
    SmallGrid,
    /// The last wave of a kernel leaves much of the device empty.
    Tail,
    /// Warps wait at a line for global memory.
    MemoryLatency,
    /// Warps wait at a line because too many accesses to global memory are under way.
    MemoryQueue,
    /// Warps wait at a line for shared memory or special functions.
    BankConflicts,
    /// Warps wait at a barrier for others.
    Barrier,
    /// The kernel with the most time is limited by the memory's bandwidth.
    MemoryBound,
    /// The kernel with the most time keeps no unit busy.
    LatencyBound,
    /// The kernel with the most time does not fill the device.
    TooSmall,
    /// What limits a kernel with much time at a line.
    KernelLimit,
    /// One line holds much of the GPU memory at its peak, or much of what is held is free.
    MemoryPeak,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 24] = [
        Self::GpuIdle,
        Self::Start,
        Self::LaunchBound,
        Self::Synchronization,
        Self::CopiesAlone,
        Self::PageableCopies,
        Self::TinyKernels,
        Self::Imbalance,
        Self::LateRank,
        Self::CollectiveMismatch,
        Self::MissingMember,
        Self::NoTensorCores,
        Self::LowOccupancy,
        Self::SmallGrid,
        Self::Tail,
        Self::MemoryLatency,
        Self::MemoryQueue,
        Self::BankConflicts,
        Self::Barrier,
        Self::MemoryBound,
        Self::LatencyBound,
        Self::TooSmall,
        Self::KernelLimit,
        Self::MemoryPeak,
    ];

    /// Returns its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::GpuIdle => "gpu-idle",
            Self::Start => "start",
            Self::LaunchBound => "launch-bound",
            Self::Synchronization => "synchronization",
            Self::CopiesAlone => "copies-alone",
            Self::PageableCopies => "pageable-copies",
            Self::TinyKernels => "tiny-kernels",
            Self::Imbalance => "imbalance",
            Self::LateRank => "late-rank",
            Self::CollectiveMismatch => "collective-mismatch",
            Self::MissingMember => "missing-member",
            Self::NoTensorCores => "no-tensor-cores",
            Self::LowOccupancy => "low-occupancy",
            Self::SmallGrid => "small-grid",
            Self::Tail => "tail",
            Self::MemoryLatency => "memory-latency",
            Self::MemoryQueue => "memory-queue",
            Self::BankConflicts => "bank-conflicts",
            Self::Barrier => "barrier",
            Self::MemoryBound => "memory-bound",
            Self::LatencyBound => "latency-bound",
            Self::TooSmall => "too-small",
            Self::KernelLimit => "kernel-limit",
            Self::MemoryPeak => "memory-peak",
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// A number behind a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What was counted or measured.
    pub name: &'static str,
    /// The number.
    pub value: u64,
    /// Its unit.
    pub unit: Unit,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A count.
    Count,
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
}

impl Evidence {
    pub(super) fn count(name: &'static str, value: u64) -> Self {
        Self { name, value, unit: Unit::Count }
    }

    pub(super) fn ns(name: &'static str, value: u64) -> Self {
        Self { name, value, unit: Unit::Ns }
    }

    pub(super) fn bytes(name: &'static str, value: u64) -> Self {
        Self { name, value, unit: Unit::Bytes }
    }

    /// Formats the number with its name: `mean duration 2.10 µs`.
    pub fn text(&self) -> String {
        let value = match self.unit {
            Unit::Count => units::count(self.value),
            Unit::Ns => units::time(self.value),
            Unit::Bytes => units::bytes(self.value),
        };
        format!("{} {value}", self.name)
    }
}

/// Returns a part as a share of the whole, 0 to 1.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}
