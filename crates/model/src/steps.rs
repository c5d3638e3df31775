//! Steps: the iterations of a program's loop, as intervals of its threads.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::event::ProcessId;

/// The steps of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Those of each thread that has any, most steps first.
    pub series: Vec<Series>,
    /// Other loops that could be steps, outer ones first, by their place and their number of iterations.
    pub levels: Vec<Level>,
    /// Steps that took much longer than others, slowest first, and what was different in them.
    pub outliers: Vec<Outlier>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Where its iterations begin: the line of user code, or the function.
    pub place: String,
    /// Iterations.
    pub iterations: u64,
}

/// The steps of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The process.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// What they are steps of: `train (train.py:31)`.
    pub place: String,
    /// In order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Its number in its thread, from 1.
    pub number: u64,
    /// Its first launch.
    pub start: u64,
    /// Where the next one began. Of the last one, when its GPU work had ended.
    pub end: u64,
    /// The next one followed: all of it was recorded.
    pub is_followed: bool,
    /// What it launched.
    pub work: StepWork,
    /// Time in which a GPU worked for the process.
    pub busy_ns: u64,
    /// Of the rest, time from the launch of the work that ended it.
    pub launching_ns: u64,
    /// Of the rest, time in which the thread that launched this work waited before, as far as waits were recorded.
    pub waiting_ns: u64,
    /// CPU time of its thread, by samples.
    pub cpu_ns: u64,
    /// The most GPU memory that the process used on one GPU, if allocations were recorded, and no other thread has steps.
    pub memory_bytes: u64,
}

/// The GPU work that a step launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    /// Launches.
    pub launches: u64,
    /// Kernels.
    pub kernels: u64,
    /// Their time.
    pub kernel_ns: u64,
    /// Of this, that of kernels that communicate.
    pub communication_ns: u64,
    /// Copies.
    pub copies: u64,
    /// Their time.
    pub copy_ns: u64,
    /// Bytes copied.
    pub copy_bytes: u64,
}

/// A step that took much longer than others of its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlier {
    /// The index of its series.
    pub series: usize,
    /// Its number.
    pub number: u64,
    /// The numbers of the steps of median length that it was compared with.
    pub compared: Vec<u64>,
    /// The GPU that was compared.
    pub gpu: String,
    /// What took longer in it than in each of these, the largest difference first.
    pub differences: Vec<Difference>,
}

/// What took longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is.
    #[serde(flatten)]
    pub part: StepPart,
    /// By how much longer than usual.
    pub more_ns: u64,
    /// The samples that it is based on; 0 if it is based on intervals.
    #[serde(skip_serializing_if = "is_zero")]
    pub samples: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A part of what happened in a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StepPart {
    /// The GPU was idle.
    Idle {
        /// What the thread that feeds it did.
        cause: &'static str,
        /// Why it waited, if it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Where: the innermost line of user code.
        #[serde(skip_serializing_if = "Option::is_none")]
        place: Option<String>,
        /// Python collected garbage there.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        garbage_collection: bool,
    },
    /// A kernel ran.
    Kernel {
        /// Its name.
        name: String,
        /// What launched it.
        place: String,
    },
    /// Memory was copied or set.
    Copy {
        /// The direction, or that it was set.
        name: String,
        /// What launched it.
        place: String,
    },
}

/// What a GPU did in a step, and what it waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepParts {
    /// Time in which it did something.
    pub busy_ns: u64,
    /// Time of each part, and its samples. Work is counted as far as it ran in the step.
    pub parts: BTreeMap<StepPart, (u64, u64)>,
}

/// Which step something belongs to: that of its thread. Threads without steps work for the one with most of their process.
#[derive(Clone, Debug, Default)]
pub struct StepIndex {
    of_thread: FxHashMap<(ProcessId, u32), usize>,
    of_process: FxHashMap<ProcessId, Vec<usize>>,
}

impl StepIndex {
    /// Learns which threads have steps. `series` has the longest first.
    pub fn new(series: &[Series]) -> Self {
        let mut found = Self::default();
        for (index, Series { process, tid, .. }) in series.iter().enumerate() {
            found.of_thread.insert((*process, *tid), index);
            found.of_process.entry(*process).or_default().push(index);
        }
        found
    }

    /// Returns the series of a process, longest first.
    pub fn of_process(&self, process: ProcessId) -> Option<&[usize]> {
        self.of_process.get(&process).map(Vec::as_slice)
    }

    /// Returns all processes with steps, and their series.
    pub fn processes(&self) -> impl Iterator<Item = (ProcessId, &[usize])> {
        self.of_process.iter().map(|(process, series)| (*process, series.as_slice()))
    }

    /// Whether a thread has steps of its own.
    pub fn has_thread(&self, process: ProcessId, tid: u32) -> bool {
        self.of_thread.contains_key(&(process, tid))
    }

    /// Returns the step of a thread at a time, as the index of its series and its own.
    pub fn find(&self, series: &[Series], process: ProcessId, tid: u32, time: u64) -> Option<(usize, usize)> {
        let own = self.of_thread.get(&(process, tid));
        let of = *own.or_else(|| self.of_process.get(&process)?.first())?;
        let steps = &series[of].steps;
        let index = steps.partition_point(|step| step.start <= time).checked_sub(1)?;
        let step = &steps[index];
        (time < step.end || (!step.is_followed && time == step.end)).then_some((of, index))
    }
}

impl Step {
    /// Returns its duration.
    pub fn ns(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns the time in which no GPU worked for the process.
    pub fn idle_ns(&self) -> u64 {
        self.ns().saturating_sub(self.busy_ns)
    }
}
