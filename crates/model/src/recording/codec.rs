//! What encoder and decoder agree on: the tags of records and the tables of a chunk.
//!
//! A record is a tag byte and its fields. Four kinds make up nearly all of a recording and have neither a length nor
//! room for change within a major version (tags below [`FIRST_SIZED`]). All others say how long they are: an unknown
//! one is passed over, and a known one may have more fields at its end.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::event::Work;

pub const LAUNCH: u8 = 1;
pub const ACTIVITY: u8 = 2;
pub const SAMPLE: u8 = 3;
pub const SYNC: u8 = 4;

/// From this tag on, a length follows the tag.
pub const FIRST_SIZED: u8 = 16;

pub const START: u8 = 16;
pub const PROCESS: u8 = 17;
pub const THREAD: u8 = 18;
pub const EXIT: u8 = 19;
pub const MAPPING: u8 = 20;
pub const STACK: u8 = 21;
pub const SESSION: u8 = 22;
pub const KERNEL_NAME: u8 = 23;
pub const DEVICE: u8 = 24;
pub const FAILED: u8 = 25;
pub const TOTALS: u8 = 26;
pub const LOSS: u8 = 27;
pub const NOTE: u8 = 28;
pub const SYMBOL: u8 = 29;
pub const END: u8 = 30;
pub const CAPTURED: u8 = 31;
pub const FUNCTION: u8 = 32;
pub const CALL: u8 = 33;
pub const SWITCH: u8 = 34;
pub const SUM: u8 = 35;
pub const ERROR_SUM: u8 = 36;
pub const LIVE_SUM: u8 = 37;
pub const MEMORY_SUM: u8 = 38;
pub const KERNEL_SUM: u8 = 39;
pub const EMPTY: u8 = 40;
pub const COUNTER: u8 = 48;
pub const COUNTER_POINT: u8 = 49;
pub const HITS: u8 = 50;

/// What a call has.
pub const CALL_NESTED: u8 = 1;
pub const CALL_OUT: u8 = 2;
pub const CALL_LAUNCH: u8 = 4;
pub const CALL_STACK: u8 = 8;
pub const CALL_LAUNCHES: u8 = 16;
pub const CALL_ENCLOSED: u8 = 32;

/// Kinds of [`Work`] in a [`Shape`].
pub const KERNEL: u8 = 1;
pub const COPY: u8 = 2;
pub const MEMSET: u8 = 3;

/// Kinds of frame.
pub const USER_FRAME: u8 = 0;
pub const KERNEL_FRAME: u8 = 1;
pub const PYTHON_FRAME: u8 = 2;

/// Who launches what: a thread, for one session, one kind of launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launcher {
    pub session: u32,
    pub process: u32,
    pub tid: u32,
    pub kind: u8,
}

/// Where activities run: a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane {
    pub session: u32,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
}

/// All of an activity that repeats when the same code launches the same thing again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    pub work: Work,
    pub graph: u32,
    pub graph_node: u64,
}

/// Who waits for what.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Waiter {
    pub session: u32,
    pub kind: u32,
    pub context: u32,
    pub stream: u32,
}

/// The last correlation id and time on a lane, an launcher or a waiter: the next is written as the distance from them.
#[derive(Clone, Copy, Default)]
pub struct Last {
    pub correlation: u32,
    pub time: u64,
}

/// A table of the writer: numbers things in the order of their first use.
pub struct Numbers<T> {
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { numbers: FxHashMap::default() }
    }
}

impl<T: Copy + Eq + Hash> Numbers<T> {
    /// The thing's number, and whether it is new.
    #[inline]
    pub fn number(&mut self, thing: T) -> (u32, bool) {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(thing).or_insert(next);
        (number, number == next)
    }

    pub fn clear(&mut self) {
        self.numbers.clear();
    }
}
