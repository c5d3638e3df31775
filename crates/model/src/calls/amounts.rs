//! Counts, times and bytes of calls.

use serde::Serialize;

use crate::{event::Call, histogram::Histogram};

/// Calls of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSum {
    /// Calls that returned.
    pub count: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Of these, nested in calls that do the same.
    pub nested: u64,
    /// Of these, nested in any traced call, whose time includes theirs.
    pub inner: u64,
    /// Total time.
    pub ns: u64,
    /// Of this, outside nested calls.
    pub self_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Bytes of the successful calls that report a size.
    pub bytes: u64,
    /// Distribution of durations.
    pub histogram: Histogram,
}

/// Outermost calls of one thread, so that no moment counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSum {
    /// Number of calls.
    pub count: u64,
    /// Total time.
    pub ns: u64,
}

/// Bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Calls.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time in the calls.
    pub ns: u64,
}

/// Off-CPU intervals, added over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Switches {
    /// Number of intervals.
    pub count: u64,
    /// Total time.
    pub ns: u64,
    /// Of these, preempted.
    pub preempted: u64,
    /// Time preempted.
    pub preempted_ns: u64,
    /// Of these, within a call.
    pub in_calls: u64,
    /// Time off the CPU within a call.
    pub in_calls_ns: u64,
}

impl CallSum {
    /// Adds one call that returned.
    pub(super) fn add_call(&mut self, call: &Call, ns: u64, self_ns: u64, failed: bool) {
        add(&mut self.count, 1);
        add(&mut self.errors, failed.into());
        add(&mut self.nested, call.nested.into());
        add(&mut self.inner, (call.depth > 0).into());
        add(&mut self.ns, ns);
        add(&mut self.self_ns, self_ns);
        self.max_ns = self.max_ns.max(ns);
        self.histogram.add(ns);
    }

    /// Adds another sum.
    pub fn merge(&mut self, part: &Self) {
        add(&mut self.count, part.count);
        add(&mut self.errors, part.errors);
        add(&mut self.nested, part.nested);
        add(&mut self.inner, part.inner);
        add(&mut self.ns, part.ns);
        add(&mut self.self_ns, part.self_ns);
        self.max_ns = self.max_ns.max(part.max_ns);
        add(&mut self.bytes, part.bytes);
        self.histogram.add_all(&part.histogram);
    }
}

impl Moved {
    pub(super) fn add(&mut self, bytes: u64, ns: u64) {
        self.merge(Self { count: 1, bytes, ns });
    }

    pub(super) fn merge(&mut self, other: Self) {
        add(&mut self.count, other.count);
        add(&mut self.bytes, other.bytes);
        add(&mut self.ns, other.ns);
    }
}

/// Sums saturate: a recording may contain any numbers.
pub(super) fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}
