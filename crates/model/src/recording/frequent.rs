//! The four records that make up nearly all of a recording. They have no length and cannot change within a major
//! version. Repeated values are numbers in a table of the chunk; increasing values are differences from the previous
//! one.
//!
//! Each record is described once, for both directions: a [`Way`] takes a value and returns it. The writing one puts it
//! into the chunk; the reading one ignores its argument and returns the value from the chunk.

use std::hash::Hash;

use rustc_hash::FxHashMap;

#[cfg(test)]
use super::field::any_of;
use super::{
    bytes::{Cursor, put, put_distance, put_distance32},
    field::{Field, structures},
};
use crate::event::{Activity, Launch, LaunchKind, ProcessId, Sample, SessionId, StackId, Sync, Work};

pub const LAUNCH: u8 = 1;
pub const ACTIVITY: u8 = 2;
pub const SAMPLE: u8 = 3;
pub const SYNC: u8 = 4;

/// One direction of the encoding. `None`: the bytes are invalid.
pub trait Way {
    /// The tables that it keeps.
    type Tables: Tables;

    fn field<T: Field>(&mut self, value: T) -> Option<T>;
    fn distance(&mut self, from: u64, to: u64) -> Option<u64>;
    /// The difference between two correlation ids, which may wrap.
    fn distance32(&mut self, from: u32, to: u32) -> Option<u32>;
    /// A table entry: its number, followed by the value if the entry is new; also returns the number.
    fn entry<T: Key>(&mut self, table: &mut Table<Self, T>, value: T) -> Option<(usize, T)>;
}

type Table<W, T> = <<W as Way>::Tables as Tables>::Of<T>;

/// A value that a table can contain.
pub trait Key: Field + Copy + Eq + Hash {}
impl<T: Field + Copy + Eq + Hash> Key for T {}

/// A kind of table.
pub trait Tables {
    type Of<T: Key>: Default + Clear;
}

pub trait Clear {
    fn clear(&mut self);
}

/// Tables of the writer: the number of each value, in order of first use.
#[derive(Default)]
pub struct Numbers;

impl Tables for Numbers {
    type Of<T: Key> = FxHashMap<T, u32>;
}

impl<T> Clear for FxHashMap<T, u32> {
    #[inline]
    fn clear(&mut self) {
        self.clear();
    }
}

/// Tables of the reader: the values by number.
#[derive(Default)]
pub struct Values;

impl Tables for Values {
    type Of<T: Key> = Vec<T>;
}

impl<T> Clear for Vec<T> {
    #[inline]
    fn clear(&mut self) {
        self.clear();
    }
}

/// The writing direction.
impl Way for Vec<u8> {
    type Tables = Numbers;

    #[inline]
    fn field<T: Field>(&mut self, value: T) -> Option<T> {
        value.put(self);
        Some(value)
    }

    #[inline]
    fn distance(&mut self, from: u64, to: u64) -> Option<u64> {
        put_distance(self, from, to);
        Some(to)
    }

    #[inline]
    fn distance32(&mut self, from: u32, to: u32) -> Option<u32> {
        put_distance32(self, from, to);
        Some(to)
    }

    #[inline]
    fn entry<T: Key>(&mut self, table: &mut FxHashMap<T, u32>, value: T) -> Option<(usize, T)> {
        let next = table.len() as u32;
        let number = *table.entry(value).or_insert(next);
        put(self, number);
        if number == next {
            value.put(self);
        }
        Some((number as usize, value))
    }
}

/// The reading direction.
impl Way for Cursor<'_> {
    type Tables = Values;

    #[inline]
    fn field<T: Field>(&mut self, _: T) -> Option<T> {
        T::get(self)
    }

    #[inline]
    fn distance(&mut self, from: u64, _: u64) -> Option<u64> {
        Cursor::distance(self, from)
    }

    #[inline]
    fn distance32(&mut self, from: u32, _: u32) -> Option<u32> {
        Cursor::distance32(self, from)
    }

    #[inline]
    fn entry<T: Key>(&mut self, table: &mut Vec<T>, _: T) -> Option<(usize, T)> {
        let number: usize = self.u64()?.try_into().ok()?;
        if number == table.len() {
            table.push(T::get(self)?);
        }
        Some((number, *table.get(number)?))
    }
}

/// The source of a launch: thread, session and kind of launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Launcher {
    session: SessionId,
    process: ProcessId,
    tid: u32,
    kind: SampledKind,
}

/// The kind of a launch in the lower four bits, and its sampling rate, usually 0, in the upper ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SampledKind(LaunchKind, u8);

impl Field for SampledKind {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.0 as u8 | self.1 << 4);
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        let byte = c.byte()?;
        Some(Self(LaunchKind::from_number(byte & 15)?, byte >> 4))
    }
}

/// Where an activity runs: a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lane {
    session: SessionId,
    device: u32,
    context: u32,
    stream: u32,
}

/// All fields of an activity that repeat when the same code launches the same thing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    work: Work,
    graph: u32,
    graph_node: u64,
}

/// The source and target of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    session: SessionId,
    kind: u32,
    context: u32,
    stream: u32,
}

structures! {
    Launcher { session, process, tid, kind }
    Lane { session, device, context, stream }
    Shape { work, graph, graph_node }
    Waiter { session, kind, context, stream }
}

/// The last correlation id and time of an entry: the next ones are written as differences from them.
#[derive(Clone, Copy, Default)]
struct Last {
    correlation: u32,
    time: u64,
}

/// The state of the current chunk.
#[derive(Default)]
pub struct Chunk<T: Tables> {
    stacks: T::Of<StackId>,
    launchers: T::Of<Launcher>,
    launcher_last: Vec<Last>,
    lanes: T::Of<Lane>,
    lane_last: Vec<Last>,
    shapes: T::Of<Shape>,
    threads: T::Of<(ProcessId, u32)>,
    waiters: T::Of<Waiter>,
    waiter_last: Vec<Last>,
    launch_time: u64,
    sample_time: u64,
    sample_weight: u64,
}

/// Returns the last state of the entry with this number.
#[inline]
fn last_of(all: &mut Vec<Last>, number: usize) -> &mut Last {
    if number == all.len() {
        all.push(Last::default());
    }
    &mut all[number]
}

impl<T: Tables> Chunk<T> {
    /// Clears everything at the start of a chunk.
    #[inline]
    pub fn begin(&mut self) {
        self.stacks.clear();
        self.launchers.clear();
        self.launcher_last.clear();
        self.lanes.clear();
        self.lane_last.clear();
        self.shapes.clear();
        self.threads.clear();
        self.waiters.clear();
        self.waiter_last.clear();
        (self.launch_time, self.sample_time, self.sample_weight) = (0, 0, 0);
    }

    #[inline]
    pub fn launch(&mut self, way: &mut impl Way<Tables = T>, launch: Launch) -> Option<Launch> {
        let Launch { session, process, tid, kind, rate, .. } = launch;
        let kind = SampledKind(kind, rate);
        let (number, launcher) = way.entry(&mut self.launchers, Launcher { session, process, tid, kind })?;
        let Launcher { session, process, tid, kind: SampledKind(kind, rate) } = launcher;
        let last = last_of(&mut self.launcher_last, number);
        last.correlation = way.distance32(last.correlation, launch.correlation)?;
        let cpu = way.field(launch.cpu)?;
        self.launch_time = way.distance(self.launch_time, launch.time)?;
        let (_, stack) = way.entry(&mut self.stacks, launch.stack)?;
        Some(Launch {
            session,
            correlation: last.correlation,
            kind,
            process,
            tid,
            cpu,
            time: self.launch_time,
            stack,
            rate,
        })
    }

    #[inline]
    pub fn activity(&mut self, way: &mut impl Way<Tables = T>, activity: Activity) -> Option<Activity> {
        let Activity { session, device, context, stream, graph, graph_node, work, .. } = activity;
        let (number, lane) = way.entry(&mut self.lanes, Lane { session, device, context, stream })?;
        let Lane { session, device, context, stream } = lane;
        let (_, shape) = way.entry(&mut self.shapes, Shape { work, graph, graph_node })?;
        let Shape { work, graph, graph_node } = shape;
        let last = last_of(&mut self.lane_last, number);
        let (correlation, start, end) = interval(way, last, activity.correlation, activity.start, activity.end)?;
        Some(Activity { session, correlation, device, context, stream, start, end, graph, graph_node, work })
    }

    #[inline]
    pub fn sample(&mut self, way: &mut impl Way<Tables = T>, sample: Sample) -> Option<Sample> {
        let (_, (process, tid)) = way.entry(&mut self.threads, (sample.process, sample.tid))?;
        let cpu = way.field(sample.cpu)?;
        self.sample_time = way.distance(self.sample_time, sample.time)?;
        self.sample_weight = way.distance(self.sample_weight, sample.weight)?;
        let (_, stack) = way.entry(&mut self.stacks, sample.stack)?;
        Some(Sample { process, tid, cpu, time: self.sample_time, stack, weight: self.sample_weight })
    }

    #[inline]
    pub fn sync(&mut self, way: &mut impl Way<Tables = T>, sync: Sync) -> Option<Sync> {
        let Sync { session, kind, context, stream, .. } = sync;
        let (number, waiter) = way.entry(&mut self.waiters, Waiter { session, kind, context, stream })?;
        let Waiter { session, kind, context, stream } = waiter;
        let last = last_of(&mut self.waiter_last, number);
        let (correlation, start, end) = interval(way, last, sync.correlation, sync.start, sync.end)?;
        Some(Sync { session, correlation, kind, context, stream, start, end })
    }
}

/// Correlation id, start and end. The next interval is relative to this end, unless it was lost.
#[inline]
fn interval(way: &mut impl Way, last: &mut Last, id: u32, start: u64, end: u64) -> Option<(u32, u64, u64)> {
    last.correlation = way.distance32(last.correlation, id)?;
    let start = way.distance(last.time, start)?;
    let end = way.distance(start, end)?;
    if end != 0 {
        last.time = end;
    }
    Some((last.correlation, start, end))
}
