//! Events that the user named to be counted by call stack: `record --event`.

use serde::Serialize;

use super::{ProcessId, StackId};

/// An event that is counted. Numbers are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct CounterId(pub u32);

/// A place where a counted event can happen. Numbers are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct PointId(pub u32);

/// An event that is counted appears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Its id here.
    pub id: CounterId,
    /// What the user calls it; no two have the same name.
    pub name: String,
    /// What the user asked for, such as `uprobe:libc.so.6:malloc,weight=arg1`.
    pub source: String,
    /// What each of its hits weighs, such as `arg1`; empty if hits are only counted.
    pub weight: String,
    /// The unit of the weight.
    pub unit: Unit,
}

/// The unit of a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A number.
    #[default]
    Number = 0,
    /// Bytes.
    Bytes = 1,
    /// Nanoseconds.
    Ns = 2,
}

impl Unit {
    /// The unit with this number.
    pub fn from_number(number: u8) -> Self {
        [Self::Number, Self::Bytes, Self::Ns].get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// A place where a counted event can happen appears. It comes before its first hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterPoint {
    /// Its id here.
    pub id: PointId,
    /// The event.
    pub counter: CounterId,
    /// The function at whose entry or return it is; empty for other places, whose stack says all.
    pub function: String,
    /// The file that it is in; empty for tracepoints of the operating system.
    pub file: String,
}

/// Further hits of a place from one stack, to be added to those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hits {
    /// Where.
    pub point: PointId,
    /// The image.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// How many.
    pub count: u64,
    /// What they weigh together.
    pub weight: u64,
    /// Of the hits, those whose weight was unreadable, negative or 2^56 and more: it is not in `weight`.
    pub outside: u64,
}
