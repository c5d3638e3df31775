//! Why a GPU was idle: each gap is charged to what the thread that feeds the GPU did in it.
//!
//! The thread that feeds a GPU is the one that launched the work that ends the gap. The join identifies it exactly. Until
//! its launch began, the thread did something else; from then on it was launching:
//!
//! ```text
//!   GPU      ####                          ####
//!   thread       ^^^^ ^ ^^^^^  [== wait ==] L          ^ a sample   L the launch of the work that ends the gap
//!   gap          |---- its own time -------|-|
//!                                           launching
//! ```
//!
//! A copy or a memset that another thread makes in the background ends no gap: the GPU waits for the next kernel. If that
//! kernel had not been launched when the gap began, the thread that launched it is charged, before and after the copy. If
//! it had been launched, it waited for the copy, and the copy's launch is charged.
//!
//! ```text
//!   kernels  ####                          ####
//!   copies            cc                               of a thread that prefetches
//!   gap          |---|  |-----------------|            both parts are charged to the thread that launched the kernel
//! ```
//!
//! | part | charged to | basis |
//! | --- | --- | --- |
//! | from the launch to the start of the work | the launching stack: the call, the driver, the GPU's queue | intervals |
//! | the thread's own time, while it waited | the stack that waited (`record --off-cpu`) | intervals |
//! | the rest of its own time | the stacks of its samples | samples |
//! | what neither covers, in a long gap | what other threads of its process ran meanwhile | their samples |
//! | what nothing covers | unknown | - |
//!
//! A gap is often shorter than the sampling period. So samples are not counted gap by gap: all gaps of a device that one
//! thread ended form one pool, and the pool's time is divided among the samples that fell into any of them. Without waits, a sample stands for at
//! most its period: a thread that is off the CPU has no samples, and this time stays unknown. If waits were recorded, which
//! begins with the first launch of a thread, the rest of the time is known to be CPU time, and the samples stand for all of
//! it.
//!
//! Divisions are of integers and keep the sums: what is charged adds up to the idle time, to the nanosecond.
//!
//! The length of a launch call says little: the driver may submit the work during the call or later. So launching is
//! one cause. The times before the first work and after the last are the start and the end of the program: they are
//! charged in the same way, and reported separately. Synchronising calls have no interval here: their events have no
//! thread. While the GPU is idle they hardly wait, and the time they spin is in the samples.

use serde::Serialize;

use crate::event::{PointId, ProcessId, StackId};

/// A loop that only launches leaves gaps shorter than this: a launch takes the CPU and the GPU several microseconds each.
/// A longer gap has another cause.
pub const SHORT_GAP_NS: u64 = 50_000;

/// The idle time of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Idle time, by [`Phase`].
    pub ns: [u64; Phase::ALL.len()],
    /// The gaps between its first work and its last that are shorter than [`SHORT_GAP_NS`], and parts of gaps between kernels
    /// that are: number and time.
    pub short_gaps: (u64, u64),
    /// What it is charged to, sorted. The parts of a phase add up to its idle time.
    pub parts: Vec<(Charge, IdleWeight)>,
}

/// When a device was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// From the start of the recording to its first work.
    Before,
    /// Between its first work and its last.
    Between,
    /// From its last work to the end of the recording.
    After,
}

impl Phase {
    /// All phases, by number.
    pub const ALL: [Self; 3] = [Self::Before, Self::Between, Self::After];
}

/// What idle time is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Charge {
    /// When.
    pub phase: Phase,
    /// The image of the thread that feeds the device; 0 if it is not known.
    pub process: ProcessId,
    /// The thread; for [`Cause::Meanwhile`], the one that ran.
    pub tid: u32,
    /// What it did.
    pub cause: Cause,
    /// Where; absent if that is not known.
    pub stack: Option<StackId>,
}

/// What the thread that feeds a device did while the device was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// It launched the work that ended the gap: from the call to the start of the work.
    Launching,
    /// It waited, for this reason.
    Waiting(PointId),
    /// It ran, as samples show.
    Running,
    /// Nothing is known about it, but another thread of its process ran meanwhile, as samples show.
    Meanwhile,
    /// There is no evidence.
    Unknown,
}

impl Cause {
    /// Whether its time comes from intervals, and not from samples.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Launching | Self::Waiting(_))
    }
}

/// Idle time that is charged to one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleWeight {
    /// Nanoseconds.
    pub ns: u64,
    /// The samples that it is based on.
    pub samples: u64,
    /// For [`Cause::Launching`]: the gaps.
    pub gaps: u64,
    /// The longest of these parts of gaps.
    pub longest_ns: u64,
    /// The work that ended the longest was the first run of its kernel.
    pub first_use: bool,
}

impl IdleWeight {
    /// Adds another weight.
    pub fn add(&mut self, other: &Self) {
        if other.longest_ns > self.longest_ns {
            (self.longest_ns, self.first_use) = (other.longest_ns, other.first_use);
        }
        self.ns = self.ns.saturating_add(other.ns);
        self.samples = self.samples.saturating_add(other.samples);
        self.gaps = self.gaps.saturating_add(other.gaps);
    }
}

impl Idle {
    /// Returns the idle time of a phase.
    pub fn of(&self, phase: Phase) -> u64 {
        self.ns[phase as usize]
    }

    /// Returns the parts of a phase.
    pub fn parts_of(&self, phase: Phase) -> impl Iterator<Item = &(Charge, IdleWeight)> {
        self.parts.iter().filter(move |(charge, _)| charge.phase == phase)
    }
}
