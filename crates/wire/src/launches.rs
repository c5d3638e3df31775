//! Launches whose stacks the thread recognised by itself ([`crate::known`]): memory that warpscope creates and the injected
//! library writes to, so that such a launch needs no probe.
//!
//! ```text
//! [ Header: the next place ] [ Slot, Slot, ... ]
//! ```
//!
//! All threads of the program share the slots. A thread claims the next place by advancing [`Header::next`], writes the slot
//! and then publishes it with its state; warpscope reads it and makes it free again. Neither waits for the other. If the next
//! slot is not free, the launch goes through the probe. What is written here survives the process.
//!
//! A thread may end between the claim and the publication: it is cancelled, or a signal handler does not return to it. warpscope
//! does not wait for it: it marks the slot as abandoned, and threads pass over it. Nobody but that thread writes to it any more, so if
//! the thread was only slow, its launch is read when it is there.
//!
//! Which call handed over the work of a thread is known to the BPF programs only. They publish it in a map of
//! [`HANDED`] words, which the library maps for reading: see [`Handed`].
//!
//! The program may write anything to the slots: the reader checks every number.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The number of slots, a power of two.
pub const SLOTS: usize = 1 << 14;

/// The size of the memory.
pub const BYTES: usize = 4096 + SLOTS * size_of::<Slot>();

/// The words of a launch.
pub const WORDS: usize = 7;

/// The start of the memory; the slots follow after a page.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Header {
    /// Places claimed since the start.
    pub next: AtomicU64,
}

/// The place of one launch.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// [`free`], [`written`] or [`ABANDONED`].
    pub state: AtomicU64,
    /// See [`Launch::encode`].
    pub words: [AtomicU64; WORDS],
}

/// Returns the offset in bytes of the slot of a place.
pub const fn offset(place: u64) -> usize {
    4096 + (place as usize & (SLOTS - 1)) * size_of::<Slot>()
}

/// Returns the state of a slot that is free for a place. All zeros is free for the first ones.
pub const fn free(place: u64) -> u64 {
    place / SLOTS as u64 * 2
}

/// Returns the state of a slot that has the launch of a place.
pub const fn written(place: u64) -> u64 {
    free(place) + 1
}

/// The state of a slot that was claimed, but not written in time. Larger than all others.
pub const ABANDONED: u64 = u64::MAX;

/// A launch-class call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The call's correlation id.
    pub correlation: u32,
    /// The kind of work, as the marker's second argument.
    pub work: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// The call that handed over the work, 0 for none.
    pub cause: u32,
    /// When, CLOCK_MONOTONIC.
    pub time: u64,
    /// The native stack's id.
    pub stack: u64,
    /// The Python stack's id, 0 if there is none.
    pub python: u64,
    /// The last launch of the thread that has returned, 0 for none.
    pub previous: u32,
    /// How long that one took, in nanoseconds.
    pub took: u64,
}

impl Launch {
    /// Converts it to words.
    pub fn encode(self) -> [u64; WORDS] {
        let Self { correlation, work, tid, cpu, cause, time, stack, python, previous, took } = self;
        let pair = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        [pair(correlation, work), pair(tid, cpu), pair(cause, previous), time, stack, python, took]
    }

    /// Converts words back.
    pub const fn decode([work, thread, cause, time, stack, python, took]: [u64; WORDS]) -> Self {
        Self {
            correlation: work as u32,
            work: (work >> 32) as u32,
            tid: thread as u32,
            cpu: (thread >> 32) as u32,
            cause: cause as u32,
            time,
            stack,
            python,
            previous: (cause >> 32) as u32,
            took,
        }
    }
}

/// The number of [`Handed`], a power of two. An image has the one at its number modulo this, if that was free when it began.
pub const HANDED: usize = 4096;

/// The calls in progress of one process that hand work to other threads.
#[derive(Debug)]
#[repr(C)]
pub struct Handed {
    /// Their number in the upper 16 bits, and the sum of their ids below: the id itself if there is only one. Of the first
    /// word, which no image has: not 0 if probes report each piece of work, so that only they know its cause.
    pub calls: AtomicU64,
    /// The process image that this belongs to.
    pub image: AtomicU32,
    /// Not 0 if the process has thread pools: only the probes know the cause of a task.
    pub pools: AtomicU32,
}

/// Returns the cause of work done while these calls are in progress, 0 for none; `None` if only the probes know it.
pub const fn cause(calls: u64, reported: bool) -> Option<u32> {
    match calls >> 48 {
        _ if calls == 0 => Some(0),
        1 if !reported => Some(calls as u32),
        _ => None,
    }
}

const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Handed>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a launch is the same after it was written and read.
    #[test]
    fn launches_survive() {
        let launch = Launch {
            correlation: u32::MAX,
            work: 0x0203,
            tid: 7,
            cpu: u32::MAX - 1,
            cause: 9,
            time: u64::MAX - 2,
            stack: 1 << 63,
            python: 5,
            previous: u32::MAX - 3,
            took: u64::MAX - 4,
        };
        assert_eq!(Launch::decode(launch.encode()), launch);
    }

    /// Check that a slot is free for one place at a time, and that the first places are free in empty memory.
    #[test]
    fn states_follow_the_places() {
        let lap = SLOTS as u64;
        assert_eq!([free(0), free(lap - 1)], [0, 0]);
        assert_eq!([written(3), free(lap + 3), written(lap + 3)], [1, 2, 3]);
        assert_eq!(offset(lap + 3), offset(3));
        assert_eq!(offset(lap - 1) + size_of::<Slot>(), BYTES);
    }

    /// Check that a cause is known without probes if there is none, or only one that can be it.
    #[test]
    fn causes_are_known_or_not() {
        let one = 1 << 48 | 7;
        assert_eq!([cause(0, false), cause(0, true)], [Some(0), Some(0)]);
        assert_eq!([cause(one, false), cause(one, true)], [Some(7), None]);
        assert_eq!(cause(2 << 48 | 15, false), None);
    }
}
