//! User-defined events that are counted by call stack: `record --event`.

use serde::Serialize;

use super::{ProcessId, StackId};

/// A counted event. Ids are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct CounterId(pub u32);

/// A place where a counted event can occur. Ids are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct PointId(pub u32);

/// The name and the source of the event that is the time off the CPU. Its places are the reasons. The specification of
/// other events contains a colon.
pub const OFF_CPU: &str = "off-cpu";

/// The place of waits that are added up without a stack.
pub const SHORT_WAITS: &str = "[short waits]";

/// Declares a counted event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Its id in this recording.
    pub id: CounterId,
    /// The user's name for it; names are unique.
    pub name: String,
    /// The specification as given by the user, such as `uprobe:libc.so.6:malloc,weight=arg1`.
    pub source: String,
    /// The weight of each hit, such as `arg1`; empty if hits are only counted.
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
    /// Returns the unit with this number.
    pub fn from_number(number: u8) -> Self {
        [Self::Number, Self::Bytes, Self::Ns].get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// Declares a place where a counted event can occur, before its first hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterPoint {
    /// Its id in this recording.
    pub id: PointId,
    /// The event.
    pub counter: CounterId,
    /// The function whose entry or return it is; empty for other places, which their stack describes fully.
    pub function: String,
    /// The file that contains it; empty for tracepoints of the operating system.
    pub file: String,
}

/// A wait of a thread that launches GPU work: an interval off the CPU. It is also included in the hits of its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// When it left the CPU.
    pub start: u64,
    /// When it ran again.
    pub end: u64,
    /// The stack that waited.
    pub stack: StackId,
    /// Why.
    pub reason: PointId,
}

/// Further hits of a place from one stack, to be added to the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hits {
    /// The place.
    pub point: PointId,
    /// The image.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// Number of hits.
    pub count: u64,
    /// Their total weight.
    pub weight: u64,
    /// Of the hits, those whose weight was unreadable, negative, or at least 2^56: it is not included in `weight`.
    pub outside: u64,
}
