//! Bytes to events. Nothing is trusted: whatever the bytes are, the answer is an event, a skip, or `None`.

use std::sync::Arc;

use cuda::calls::KernelRef;

use super::{
    bytes::{Cursor, unzigzag},
    codec::{self, Lane, Last, Launcher, Shape, Waiter},
};
use crate::calls::Memory;
use crate::event::{
    Activity, Call, Captured, Counter, CounterId, CounterPoint, Device, Direction, Empty, End, ErrorSum, Event, Exit,
    Failed, Frame, FrameKind, Function, FunctionId, Hits, KernelName, KernelSum, Launch, LaunchKind, Layer, Loss,
    LossCause, Mapping, MemorySum, Mode, NamedFrame, Note, Origin, PointId, Process, ProcessId, Sample, Session,
    SessionId, Stack, StackEnd, StackId, Start, Sum, Switch, Symbol, Sync, Thread, Totals, Unit, Work,
};
use crate::histogram;

/// One record.
pub enum Record {
    /// An event.
    Event(Event),
    /// A record with a length that this reader does not understand.
    Unknown,
}

/// Reads the records of one chunk after another.
#[derive(Default)]
pub struct Decoder {
    stacks: Vec<u64>,
    launchers: Vec<(Launcher, LaunchKind, u32)>,
    lanes: Vec<(Lane, Last)>,
    shapes: Vec<Shape>,
    threads: Vec<(u32, u32)>,
    waiters: Vec<(Waiter, Last)>,
    launch_time: u64,
    sample_time: u64,
    sample_weight: u64,
}

/// The entry with the next number; `define` reads it if it is new, which must be the first unused number.
fn entry<'t, T>(
    table: &'t mut Vec<T>,
    cursor: &mut Cursor<'_>,
    define: impl FnOnce(&mut Cursor<'_>) -> Option<T>,
) -> Option<&'t mut T> {
    let number: usize = cursor.u64()?.try_into().ok()?;
    if number == table.len() {
        table.push(define(cursor)?);
    }
    table.get_mut(number)
}

impl Decoder {
    /// Forgets all tables: a chunk begins.
    pub fn begin(&mut self) {
        self.stacks.clear();
        self.launchers.clear();
        self.lanes.clear();
        self.shapes.clear();
        self.threads.clear();
        self.waiters.clear();
        (self.launch_time, self.sample_time, self.sample_weight) = (0, 0, 0);
    }

    /// Reads the next record. `None`: the chunk makes no sense from here on.
    pub fn next(&mut self, cursor: &mut Cursor<'_>) -> Option<Record> {
        let event = match cursor.byte()? {
            codec::LAUNCH => Event::Launch(self.launch(cursor)?),
            codec::ACTIVITY => Event::Activity(self.activity(cursor)?),
            codec::SAMPLE => Event::Sample(self.sample(cursor)?),
            codec::SYNC => Event::Sync(self.sync(cursor)?),
            0..codec::FIRST_SIZED => return None,
            tag => {
                let mut fields = Cursor::new(cursor.bytes()?);
                return Some(sized(tag, &mut fields).map_or(Record::Unknown, Record::Event));
            }
        };
        Some(Record::Event(event))
    }

    fn launch(&mut self, cursor: &mut Cursor<'_>) -> Option<Launch> {
        let (launcher, kind, last) = entry(&mut self.launchers, cursor, |c| {
            let launcher = Launcher { session: c.u32()?, process: c.u32()?, tid: c.u32()?, kind: c.byte()? };
            Some((launcher, LaunchKind::from_number(launcher.kind)?, 0))
        })?;
        *last = cursor.distance32(*last)?;
        let (launcher, kind, correlation) = (*launcher, *kind, *last);
        let cpu = cursor.u32()?;
        self.launch_time = cursor.distance(self.launch_time)?;
        Some(Launch {
            session: SessionId(launcher.session),
            correlation,
            kind,
            process: ProcessId(launcher.process),
            tid: launcher.tid,
            cpu,
            time: self.launch_time,
            stack: self.stack(cursor)?,
        })
    }

    fn activity(&mut self, cursor: &mut Cursor<'_>) -> Option<Activity> {
        let (lane, last) = entry(&mut self.lanes, cursor, |c| {
            let lane = Lane { session: c.u32()?, device: c.u32()?, context: c.u32()?, stream: c.u32()? };
            Some((lane, Last::default()))
        })?;
        let shape = *entry(&mut self.shapes, cursor, shape)?;
        last.correlation = cursor.distance32(last.correlation)?;
        let (start, end) = interval(cursor, last)?;
        Some(Activity {
            session: SessionId(lane.session),
            correlation: last.correlation,
            device: lane.device,
            context: lane.context,
            stream: lane.stream,
            start,
            end,
            graph: shape.graph,
            graph_node: shape.graph_node,
            work: shape.work,
        })
    }

    fn sample(&mut self, cursor: &mut Cursor<'_>) -> Option<Sample> {
        let (process, tid) = *entry(&mut self.threads, cursor, |c| Some((c.u32()?, c.u32()?)))?;
        let cpu = cursor.u32()?;
        self.sample_time = cursor.distance(self.sample_time)?;
        self.sample_weight = cursor.distance(self.sample_weight)?;
        Some(Sample {
            process: ProcessId(process),
            tid,
            cpu,
            time: self.sample_time,
            stack: self.stack(cursor)?,
            weight: self.sample_weight,
        })
    }

    fn sync(&mut self, cursor: &mut Cursor<'_>) -> Option<Sync> {
        let (waiter, last) = entry(&mut self.waiters, cursor, |c| {
            let waiter = Waiter { session: c.u32()?, kind: c.u32()?, context: c.u32()?, stream: c.u32()? };
            Some((waiter, Last::default()))
        })?;
        last.correlation = cursor.distance32(last.correlation)?;
        let (start, end) = interval(cursor, last)?;
        Some(Sync {
            session: SessionId(waiter.session),
            correlation: last.correlation,
            kind: waiter.kind,
            context: waiter.context,
            stream: waiter.stream,
            start,
            end,
        })
    }

    fn stack(&mut self, cursor: &mut Cursor<'_>) -> Option<StackId> {
        entry(&mut self.stacks, cursor, |c| c.u64()).map(|id| StackId(*id))
    }
}

fn interval(cursor: &mut Cursor<'_>, last: &mut Last) -> Option<(u64, u64)> {
    let start = cursor.distance(last.time)?;
    let end = cursor.distance(start)?;
    if end != 0 {
        last.time = end;
    }
    Some((start, end))
}

fn shape(c: &mut Cursor<'_>) -> Option<Shape> {
    let work = match c.byte()? {
        codec::KERNEL => Work::Kernel {
            name: c.u32()?,
            grid: [c.u32()?, c.u32()?, c.u32()?],
            block: [c.u32()?, c.u32()?, c.u32()?],
            registers: c.u16()?,
            shared_memory: c.u32()?,
        },
        codec::COPY => Work::Copy {
            direction: Direction::from_number(c.byte()?),
            bytes: c.u64()?,
            source: c.byte()?,
            destination: c.byte()?,
            peer: match c.u64()? {
                0 => None,
                peer => Some((peer - 1).try_into().ok()?),
            },
        },
        codec::MEMSET => Work::Memset { bytes: c.u64()?, value: c.u32()?, memory: c.byte()? },
        _ => return None,
    };
    Some(Shape { work, graph: c.u32()?, graph_node: c.u64()? })
}

/// A record with a length. `None`: not understood, to be passed over.
fn sized(tag: u8, c: &mut Cursor<'_>) -> Option<Event> {
    Some(match tag {
        codec::START => Event::Start(Start {
            time: c.u64()?,
            wall_clock: c.u64()?,
            version: c.text()?,
            host: c.text()?,
            command: c.several(Cursor::text)?,
            mode: mode(c.byte()?),
            frequency: c.u32()?,
        }),
        codec::PROCESS => Event::Process(Process {
            id: ProcessId(c.u32()?),
            parent: ProcessId(c.u32()?),
            pid: c.u32()?,
            time: c.u64()?,
            comm: c.text()?,
            origin: origin(c.byte()?),
        }),
        codec::THREAD => Event::Thread(Thread { process: ProcessId(c.u32()?), tid: c.u32()?, comm: c.text()? }),
        codec::EXIT => Event::Exit(Exit { process: ProcessId(c.u32()?), time: c.u64()? }),
        codec::MAPPING => Event::Mapping(mapping(c)?),
        codec::STACK => Event::Stack(stack(c)?),
        codec::SESSION => Event::Session(Session {
            id: SessionId(c.u32()?),
            process: ProcessId(c.u32()?),
            cupti: c.u32()?,
            driver: c.u32()?,
        }),
        codec::KERNEL_NAME => {
            Event::KernelName(KernelName { session: SessionId(c.u32()?), id: c.u32()?, name: c.text()? })
        }
        codec::DEVICE => Event::Device(Device { session: SessionId(c.u32()?), index: c.u32()?, name: c.text()? }),
        codec::FAILED => Event::Failed(Failed { session: SessionId(c.u32()?), correlation: c.u32()?, code: c.u32()? }),
        codec::EMPTY => Event::Empty(Empty { session: SessionId(c.u32()?), correlation: c.u32()? }),
        codec::CAPTURED => Event::Captured(Captured { session: SessionId(c.u32()?), correlation: c.u32()? }),
        codec::TOTALS => Event::Totals(totals(c)?),
        codec::FUNCTION => Event::Function(Function {
            id: FunctionId(c.u32()?),
            layer: Layer::from_number(c.byte()?),
            library: c.text()?,
            name: c.text()?,
            shown: c.byte()? != 0,
            // Recordings of earlier versions do not tell.
            parameters: c.several(Cursor::text).unwrap_or_default(),
            void: c.byte().is_some_and(|void| void != 0),
        }),
        codec::CALL => Event::Call(call(c)?),
        codec::SWITCH => {
            let (process, tid, cpu) = (ProcessId(c.u32()?), c.u32()?, c.u32()?);
            let (depth, start) = (c.byte()?, c.u64()?);
            let (end, preempted, state) = (c.distance(start)?, c.byte()? != 0, c.u32()?);
            let around = c.distance(start).unwrap_or(0);
            Event::Switch(Switch { process, tid, cpu, depth, start, end, preempted, state, around })
        }
        codec::SUM => {
            let (function, process) = (FunctionId(c.u32()?), ProcessId(c.u32()?));
            let (class, nested) = (c.u32()?, c.byte()? != 0);
            let (count, errors, ns, max_ns, bytes) = (c.u64()?, c.u64()?, c.u64()?, c.u64()?, c.u64()?);
            let buckets = c.several(Cursor::u64)?;
            // Recordings of earlier versions have no more.
            let (self_ns, outer_ns) = (c.u64().unwrap_or(ns), c.u64().unwrap_or(ns));
            let min_ns = c.u64().unwrap_or_else(|| shortest(&buckets, max_ns));
            Event::Sum(Sum {
                function,
                process,
                class,
                nested,
                count,
                errors,
                ns,
                max_ns,
                min_ns,
                bytes,
                self_ns,
                outer_ns,
                buckets,
            })
        }
        codec::ERROR_SUM => {
            let (function, code, count) = (FunctionId(c.u32()?), c.u32()?, c.u64()?);
            // Older writers end here.
            let enclosed = c.byte().is_some_and(|enclosed| enclosed != 0);
            Event::ErrorSum(ErrorSum { function, code, enclosed, count })
        }
        // Of older writers.
        codec::LIVE_SUM => {
            let (process, space) = (ProcessId(c.u32()?), c.byte()?);
            let memory = Memory { live: c.u64()?, live_bytes: c.u64()?, ..Memory::default() };
            Event::MemorySum(MemorySum { process, space, memory })
        }
        codec::MEMORY_SUM => Event::MemorySum(MemorySum {
            process: ProcessId(c.u32()?),
            space: c.byte()?,
            memory: Memory {
                allocations: c.u64()?,
                bytes: c.u64()?,
                failed: c.u64()?,
                frees: c.u64()?,
                failed_frees: c.u64()?,
                unknown_frees: c.u64()?,
                missed_frees: c.u64()?,
                released: c.u64()?,
                untracked: c.u64()?,
                live: c.u64()?,
                live_bytes: c.u64()?,
                peak_bytes: c.u64()?,
            },
        }),
        codec::KERNEL_SUM => {
            let (process, kind, address, count) = (ProcessId(c.u32()?), c.byte()?, c.u64()?, c.u64()?);
            let kernel = match kind {
                0 => None,
                1 => Some(KernelRef::Handle(address)),
                _ => Some(KernelRef::HostStub(address)),
            };
            Event::KernelSum(KernelSum { process, kernel, count })
        }
        codec::COUNTER => Event::Counter(Counter {
            id: CounterId(c.u32()?),
            name: c.text()?,
            source: c.text()?,
            weight: c.text()?,
            unit: Unit::from_number(c.byte()?),
        }),
        codec::COUNTER_POINT => Event::CounterPoint(CounterPoint {
            id: PointId(c.u32()?),
            counter: CounterId(c.u32()?),
            function: c.text()?,
            file: c.text()?,
        }),
        codec::HITS => Event::Hits(Hits {
            point: PointId(c.u32()?),
            process: ProcessId(c.u32()?),
            stack: StackId(c.u64()?),
            count: c.u64()?,
            weight: c.u64()?,
            outside: c.u64()?,
        }),
        codec::LOSS => {
            let number = c.byte()?;
            let cause = LossCause::ALL.into_iter().find(|cause| *cause as u8 == number)?;
            Event::Loss(Loss { cause, count: c.u64()? })
        }
        codec::NOTE => Event::Note(Note { text: c.text()? }),
        codec::SYMBOL => Event::Symbol(symbol(c)?),
        codec::END => {
            let time = c.u64()?;
            let status = match c.byte()? {
                0 => None,
                _ => Some(unzigzag(c.u64()?).try_into().ok()?),
            };
            Event::End(End { time, status })
        }
        _ => return None,
    })
}

/// The least that the shortest of these durations can be.
fn shortest(buckets: &[u64], longest: u64) -> u64 {
    let first = buckets.iter().position(|count| *count > 0).unwrap_or(0);
    histogram::lower_bound(first.min(histogram::BUCKETS)).min(longest)
}

fn mapping(c: &mut Cursor<'_>) -> Option<Mapping> {
    let (process, time, start) = (ProcessId(c.u32()?), c.u64()?, c.u64()?);
    Some(Mapping {
        process,
        time,
        start,
        end: c.distance(start)?,
        offset: c.u64()?,
        path: c.text()?,
        build_id: c.bytes()?.to_vec(),
    })
}

fn stack(c: &mut Cursor<'_>) -> Option<Stack> {
    let (id, process, time) = (StackId(c.u64()?), ProcessId(c.u32()?), c.u64()?);
    let end = StackEnd::from_number(c.byte()?);
    let mut last = 0;
    let frames = c.several(|c| frame(c, &mut last))?;
    Some(Stack { id, process, time, frames, end })
}

fn frame(c: &mut Cursor<'_>, last: &mut u64) -> Option<Frame> {
    let kind = c.byte()?;
    if kind == codec::PYTHON_FRAME {
        return Some(Frame::Python(c.u32()?));
    }
    *last = c.distance(*last)?;
    match kind {
        codec::USER_FRAME => Some(Frame::User(*last)),
        codec::KERNEL_FRAME => Some(Frame::Kernel(*last)),
        _ => None,
    }
}

fn totals(c: &mut Cursor<'_>) -> Option<Totals> {
    let (session, ended) = (SessionId(c.u32()?), c.byte()? != 0);
    Some(Totals {
        session,
        ended,
        launches: c.u64()?,
        kernels: c.u64()?,
        kernel_ns: c.u64()?,
        copies: c.u64()?,
        memsets: c.u64()?,
        syncs: c.u64()?,
        dropped_by_cupti: c.u64()?,
        dropped_queue_full: c.u64()?,
        invalid: c.u64()?,
        nameless: c.u64()?,
        buffers_refused: c.u64()?,
    })
}

fn call(c: &mut Cursor<'_>) -> Option<Call> {
    let (function, process) = (FunctionId(c.u32()?), ProcessId(c.u32()?));
    let (tid, cpu, depth, flags, start) = (c.u32()?, c.u32()?, c.byte()?, c.byte()?, c.u64()?);
    let has = |flag| flags & flag != 0;
    Some(Call {
        function,
        process,
        tid,
        cpu,
        depth,
        nested: has(codec::CALL_NESTED),
        enclosed: has(codec::CALL_ENCLOSED),
        start,
        end: c.distance(start)?,
        result: c.u64()?,
        out: if has(codec::CALL_OUT) { Some(c.u64()?) } else { None },
        launch: if has(codec::CALL_LAUNCH) { Some((SessionId(c.u32()?), c.u32()?)) } else { None },
        stack: if has(codec::CALL_STACK) { Some(StackId(c.u64()?)) } else { None },
        launches: has(codec::CALL_LAUNCHES),
        words: c.several(Cursor::u64)?,
        payload: c.bytes()?.to_vec(),
        around: c.distance(start).unwrap_or(0),
    })
}

fn symbol(c: &mut Cursor<'_>) -> Option<Symbol> {
    let process = ProcessId(c.u32()?);
    let frame = frame(c, &mut 0)?;
    let names = c.several(|c| {
        let kind = match c.byte()? {
            1 => FrameKind::Kernel,
            2 => FrameKind::Probe,
            3 => FrameKind::Python,
            _ => FrameKind::Native,
        };
        Some(NamedFrame { kind, name: Arc::from(c.text()?), module: Arc::from(c.text()?) })
    })?;
    // Older writers end here.
    let since = if c.left() > 0 { c.u64()? } else { 0 };
    Some(Symbol { process, frame, since, names })
}

fn origin(number: u8) -> Origin {
    match number {
        1 => Origin::Fork,
        2 => Origin::Exec,
        _ => Origin::Found,
    }
}

fn mode(number: u8) -> Mode {
    match number {
        1 => Mode::GpuOnly,
        2 => Mode::CpuOnly,
        3 => Mode::Trace,
        4 => Mode::TraceSums,
        5 => Mode::EventsOnly,
        _ => Mode::Merged,
    }
}
