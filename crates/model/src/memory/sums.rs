//! Sums of memory by use and stack, now and at the peak.
//!
//! A new peak costs one increment. No state is copied: each sum saves its value at the last peak when it first changes
//! afterwards.

use rustc_hash::FxHashMap;

use super::moment::{Amount, DeviceMemory, Moment, Use};
use crate::event::StackId;

/// The memory of one process on one device.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    holders: FxHashMap<(Use, StackId), Entry>,
    now: [u64; Use::ALL.len()],
    peak: [u64; Use::ALL.len()],
    peak_time: u64,
    /// The number of peaks so far. The amount of an entry at the last one is `at_peak` if the entry changed since.
    peaks: u64,
    most_tensor_bytes: u64,
    most_held_bytes: u64,
    /// Most in use since this was last taken.
    most: u64,
    /// When it last changed.
    time: u64,
    grown: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    now: Amount,
    at_peak: Amount,
    /// The number of peaks when `at_peak` was saved.
    saved: u64,
}

impl Sums {
    /// Adds an allocation.
    pub fn add(&mut self, what: Use, stack: StackId, bytes: u64, time: u64) {
        self.change(what, stack, time, |amount| Amount {
            bytes: amount.bytes.saturating_add(bytes),
            count: amount.count.saturating_add(1),
        });
        self.grown = true;
    }

    /// Removes an allocation.
    pub fn remove(&mut self, what: Use, stack: StackId, bytes: u64, time: u64) {
        self.change(what, stack, time, |amount| Amount {
            bytes: amount.bytes.saturating_sub(bytes),
            count: amount.count.saturating_sub(1),
        });
    }

    fn change(&mut self, what: Use, stack: StackId, time: u64, change: impl FnOnce(Amount) -> Amount) {
        let entry = self.holders.entry((what, stack)).or_default();
        if entry.saved != self.peaks + 1 {
            (entry.at_peak, entry.saved) = (entry.now, self.peaks + 1);
        }
        let before = entry.now.bytes;
        entry.now = change(entry.now);
        let total = &mut self.now[what as usize];
        *total = total.saturating_sub(before).saturating_add(entry.now.bytes);
        self.time = self.time.max(time);
    }

    /// Returns the most bytes that were in use since the last call, and now.
    pub fn take_most(&mut self) -> u64 {
        let now = in_use(&self.now);
        std::mem::replace(&mut self.most, now).max(now)
    }

    /// Compares the current state with the peak, after everything that is known about it was taken into account.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.grown) {
            return;
        }
        self.most = self.most.max(in_use(&self.now));
        let held = in_use(&self.now).saturating_add(self.now[Use::Cached as usize]);
        self.most_tensor_bytes = self.most_tensor_bytes.max(self.now[Use::Tensor as usize]);
        self.most_held_bytes = self.most_held_bytes.max(held);
        if in_use(&self.now) > in_use(&self.peak) {
            (self.peak, self.peak_time) = (self.now, self.time);
            self.peaks += 1;
        }
    }

    /// Forgets the peak if it was at this time or later.
    pub fn forget_peak(&mut self, since: u64) {
        if self.peak_time >= since {
            (self.peak, self.peak_time, self.grown) = (Default::default(), 0, true);
            self.most_held_bytes = 0;
        }
    }

    /// Forgets holders of nothing, now and at the peak.
    pub fn forget_unused(&mut self) {
        let peaks = self.peaks;
        let at_peak = |entry: &Entry| if entry.saved == peaks + 1 { entry.at_peak } else { entry.now };
        self.holders.retain(|_, entry| entry.now.bytes > 0 || at_peak(entry).bytes > 0);
    }

    /// Returns the stacks of all holders.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        self.holders.keys().map(|(_, stack)| *stack)
    }

    /// Returns the peak and the current state.
    pub fn finish(mut self, end: u64) -> DeviceMemory {
        self.settle();
        let moment = |time, bytes, amount: &dyn Fn(&Entry) -> Amount| {
            let all = self.holders.iter().map(|(&(what, stack), entry)| (what, stack, amount(entry)));
            let mut moment = Moment { time, bytes, holders: all.filter(|(_, _, amount)| amount.bytes > 0).collect() };
            moment.sort();
            moment
        };
        let peaks = self.peaks;
        let at_peak = |entry: &Entry| if entry.saved == peaks + 1 { entry.at_peak } else { entry.now };
        let nothing = |_: &Entry| Amount::default();
        DeviceMemory {
            peak: moment(self.peak_time, self.peak, if peaks > 0 { &at_peak } else { &nothing }),
            end: moment(end.max(self.time), self.now, &|entry| entry.now),
            most_tensor_bytes: self.most_tensor_bytes,
            most_held_bytes: self.most_held_bytes,
        }
    }
}

fn in_use(bytes: &[u64; Use::ALL.len()]) -> u64 {
    bytes[Use::Tensor as usize].saturating_add(bytes[Use::Other as usize])
}
