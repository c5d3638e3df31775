//! Events to bytes.

use cuda::calls::KernelRef;

use super::{
    bytes::{put, put_bytes, put_distance, put_distance32, put_text, zigzag},
    codec::{self, Lane, Last, Launcher, Numbers, Shape, Waiter},
};
use crate::event::{Activity, Call, Event, Frame, Launch, Sample, Sync, Work};

/// Builds the payload of one chunk after another.
#[derive(Default)]
pub struct Encoder {
    /// The payload so far.
    pub out: Vec<u8>,
    /// A sized record, until its length is known.
    record: Vec<u8>,
    stacks: Numbers<u64>,
    launchers: Numbers<Launcher>,
    /// The last correlation id of each launcher.
    launcher_last: Vec<u32>,
    lanes: Numbers<Lane>,
    lane_last: Vec<Last>,
    shapes: Numbers<Shape>,
    threads: Numbers<(u32, u32)>,
    waiters: Numbers<Waiter>,
    waiter_last: Vec<Last>,
    launch_time: u64,
    sample_time: u64,
    sample_weight: u64,
}

impl Encoder {
    /// Forgets all tables: a chunk begins.
    pub fn begin(&mut self) {
        self.out.clear();
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

    /// Appends a record.
    pub fn push(&mut self, event: &Event) {
        match event {
            Event::Launch(launch) => self.launch(launch),
            Event::Activity(activity) => self.activity(activity),
            Event::Sample(sample) => self.sample(sample),
            Event::Sync(sync) => self.sync(sync),
            other => {
                self.record.clear();
                let tag = sized(other, &mut self.record);
                self.out.push(tag);
                put_bytes(&mut self.out, &self.record);
            }
        }
    }

    fn launch(&mut self, launch: &Launch) {
        let Self { out, launchers, launcher_last, .. } = self;
        out.push(codec::LAUNCH);
        let launcher =
            Launcher { session: launch.session.0, process: launch.process.0, tid: launch.tid, kind: launch.kind as u8 };
        let (number, new) = launchers.number(launcher);
        put(out, number);
        if new {
            put(out, launcher.session);
            put(out, launcher.process);
            put(out, launcher.tid);
            out.push(launcher.kind);
            launcher_last.push(0);
        }
        let last = &mut launcher_last[number as usize];
        put_distance32(out, *last, launch.correlation);
        *last = launch.correlation;
        put(out, launch.cpu);
        put_distance(out, self.launch_time, launch.time);
        self.launch_time = launch.time;
        self.stack(launch.stack.0);
    }

    fn activity(&mut self, activity: &Activity) {
        let Self { out, lanes, lane_last, shapes, .. } = self;
        out.push(codec::ACTIVITY);
        let lane = Lane {
            session: activity.session.0,
            device: activity.device,
            context: activity.context,
            stream: activity.stream,
        };
        let (number, new) = lanes.number(lane);
        put(out, number);
        if new {
            put(out, lane.session);
            put(out, lane.device);
            put(out, lane.context);
            put(out, lane.stream);
            lane_last.push(Last::default());
        }
        let last = &mut lane_last[number as usize];
        let shape = Shape { work: activity.work, graph: activity.graph, graph_node: activity.graph_node };
        let (number, new) = shapes.number(shape);
        put(out, number);
        if new {
            put_shape(out, &shape);
        }
        put_distance32(out, last.correlation, activity.correlation);
        last.correlation = activity.correlation;
        put_interval(out, last, activity.start, activity.end);
    }

    fn sample(&mut self, sample: &Sample) {
        let Self { out, threads, .. } = self;
        out.push(codec::SAMPLE);
        let (number, new) = threads.number((sample.process.0, sample.tid));
        put(out, number);
        if new {
            put(out, sample.process.0);
            put(out, sample.tid);
        }
        put(out, sample.cpu);
        put_distance(out, self.sample_time, sample.time);
        put_distance(out, self.sample_weight, sample.weight);
        self.sample_time = sample.time;
        self.sample_weight = sample.weight;
        self.stack(sample.stack.0);
    }

    fn sync(&mut self, sync: &Sync) {
        let Self { out, waiters, waiter_last, .. } = self;
        out.push(codec::SYNC);
        let waiter = Waiter { session: sync.session.0, kind: sync.kind, context: sync.context, stream: sync.stream };
        let (number, new) = waiters.number(waiter);
        put(out, number);
        if new {
            put(out, waiter.session);
            put(out, waiter.kind);
            put(out, waiter.context);
            put(out, waiter.stream);
            waiter_last.push(Last::default());
        }
        let last = &mut waiter_last[number as usize];
        put_distance32(out, last.correlation, sync.correlation);
        last.correlation = sync.correlation;
        put_interval(out, last, sync.start, sync.end);
    }

    fn stack(&mut self, stack: u64) {
        let (number, new) = self.stacks.number(stack);
        put(&mut self.out, number);
        if new {
            put(&mut self.out, stack);
        }
    }
}

/// Start and end. The next interval is measured from this end, unless it was lost.
fn put_interval(out: &mut Vec<u8>, last: &mut Last, start: u64, end: u64) {
    put_distance(out, last.time, start);
    put_distance(out, start, end);
    if end != 0 {
        last.time = end;
    }
}

fn put_shape(out: &mut Vec<u8>, shape: &Shape) {
    match shape.work {
        Work::Kernel { name, grid, block, registers, shared_memory } => {
            out.push(codec::KERNEL);
            put(out, name);
            for dimension in grid.into_iter().chain(block) {
                put(out, dimension);
            }
            put(out, registers);
            put(out, shared_memory);
        }
        Work::Copy { direction, bytes, source, destination, peer } => {
            out.push(codec::COPY);
            out.push(direction as u8);
            put(out, bytes);
            out.push(source);
            out.push(destination);
            put(out, peer.map_or(0, |peer| u64::from(peer) + 1));
        }
        Work::Memset { bytes, value, memory } => {
            out.push(codec::MEMSET);
            put(out, bytes);
            put(out, value);
            out.push(memory);
        }
    }
    put(out, shape.graph);
    put(out, shape.graph_node);
}

/// Writes the fields of a sized record; returns its tag.
fn sized(event: &Event, out: &mut Vec<u8>) -> u8 {
    match event {
        Event::Start(start) => {
            put(out, start.time);
            put(out, start.wall_clock);
            put_text(out, &start.version);
            put_text(out, &start.host);
            put(out, start.command.len() as u64);
            start.command.iter().for_each(|argument| put_text(out, argument));
            out.push(start.mode as u8);
            put(out, start.frequency);
            codec::START
        }
        Event::Process(process) => {
            put(out, process.id.0);
            put(out, process.parent.0);
            put(out, process.pid);
            put(out, process.time);
            put_text(out, &process.comm);
            out.push(process.origin as u8);
            codec::PROCESS
        }
        Event::Thread(thread) => {
            put(out, thread.process.0);
            put(out, thread.tid);
            put_text(out, &thread.comm);
            codec::THREAD
        }
        Event::Exit(exit) => {
            put(out, exit.process.0);
            put(out, exit.time);
            codec::EXIT
        }
        Event::Mapping(mapping) => {
            put(out, mapping.process.0);
            put(out, mapping.time);
            put(out, mapping.start);
            put_distance(out, mapping.start, mapping.end);
            put(out, mapping.offset);
            put_text(out, &mapping.path);
            put_bytes(out, &mapping.build_id);
            codec::MAPPING
        }
        Event::Stack(stack) => {
            put(out, stack.id.0);
            put(out, stack.process.0);
            put(out, stack.time);
            out.push(stack.end as u8);
            put(out, stack.frames.len() as u64);
            let mut last = 0;
            for frame in &stack.frames {
                last = put_frame(out, last, frame);
            }
            codec::STACK
        }
        Event::Session(session) => {
            put(out, session.id.0);
            put(out, session.process.0);
            put(out, session.cupti);
            put(out, session.driver);
            codec::SESSION
        }
        Event::KernelName(name) => {
            put(out, name.session.0);
            put(out, name.id);
            put_text(out, &name.name);
            codec::KERNEL_NAME
        }
        Event::Device(device) => {
            put(out, device.session.0);
            put(out, device.index);
            put_text(out, &device.name);
            codec::DEVICE
        }
        Event::Failed(failed) => {
            put(out, failed.session.0);
            put(out, failed.correlation);
            put(out, failed.code);
            codec::FAILED
        }
        Event::Captured(captured) => {
            put(out, captured.session.0);
            put(out, captured.correlation);
            codec::CAPTURED
        }
        Event::Empty(empty) => {
            put(out, empty.session.0);
            put(out, empty.correlation);
            codec::EMPTY
        }
        Event::Totals(totals) => {
            put(out, totals.session.0);
            out.push(u8::from(totals.ended));
            for count in [
                totals.launches,
                totals.kernels,
                totals.kernel_ns,
                totals.copies,
                totals.memsets,
                totals.syncs,
                totals.dropped_by_cupti,
                totals.dropped_queue_full,
                totals.invalid,
                totals.nameless,
                totals.buffers_refused,
            ] {
                put(out, count);
            }
            codec::TOTALS
        }
        Event::Loss(loss) => {
            out.push(loss.cause as u8);
            put(out, loss.count);
            codec::LOSS
        }
        Event::Note(note) => {
            put_text(out, &note.text);
            codec::NOTE
        }
        Event::Symbol(symbol) => {
            put(out, symbol.process.0);
            put_frame(out, 0, &symbol.frame);
            put(out, symbol.names.len() as u64);
            for name in &symbol.names {
                out.push(name.kind as u8);
                put_text(out, &name.name);
                put_text(out, &name.module);
            }
            if symbol.since > 0 {
                put(out, symbol.since);
            }
            codec::SYMBOL
        }
        Event::End(end) => {
            put(out, end.time);
            out.push(u8::from(end.status.is_some()));
            if let Some(status) = end.status {
                put(out, zigzag(status.into()));
            }
            codec::END
        }
        Event::Function(function) => {
            put(out, function.id.0);
            out.push(function.layer as u8);
            put_text(out, &function.library);
            put_text(out, &function.name);
            out.push(u8::from(function.shown));
            put(out, function.parameters.len() as u64);
            for parameter in &function.parameters {
                put_text(out, parameter);
            }
            out.push(u8::from(function.void));
            codec::FUNCTION
        }
        Event::Call(call) => {
            put_call(out, call);
            codec::CALL
        }
        Event::Switch(switch) => {
            put(out, switch.process.0);
            put(out, switch.tid);
            put(out, switch.cpu);
            out.push(switch.depth);
            put(out, switch.start);
            put_distance(out, switch.start, switch.end);
            out.push(u8::from(switch.preempted));
            put(out, switch.state);
            put_around(out, switch.start, switch.around);
            codec::SWITCH
        }
        Event::Sum(sum) => {
            put(out, sum.function.0);
            put(out, sum.process.0);
            put(out, sum.class);
            out.push(u8::from(sum.nested));
            for count in [sum.count, sum.errors, sum.ns, sum.max_ns, sum.bytes] {
                put(out, count);
            }
            put_numbers(out, &sum.buckets);
            put(out, sum.self_ns);
            put(out, sum.outer_ns);
            put(out, sum.min_ns);
            codec::SUM
        }
        Event::ErrorSum(sum) => {
            put(out, sum.function.0);
            put(out, sum.code);
            put(out, sum.count);
            out.push(sum.enclosed.into());
            codec::ERROR_SUM
        }
        Event::Counter(counter) => {
            put(out, counter.id.0);
            put_text(out, &counter.name);
            put_text(out, &counter.source);
            put_text(out, &counter.weight);
            out.push(counter.unit as u8);
            codec::COUNTER
        }
        Event::CounterPoint(point) => {
            put(out, point.id.0);
            put(out, point.counter.0);
            put_text(out, &point.function);
            put_text(out, &point.file);
            codec::COUNTER_POINT
        }
        Event::Hits(hits) => {
            put(out, hits.point.0);
            put(out, hits.process.0);
            put(out, hits.stack.0);
            put(out, hits.count);
            put(out, hits.weight);
            put(out, hits.outside);
            codec::HITS
        }
        Event::MemorySum(sum) => {
            put(out, sum.process.0);
            out.push(sum.space);
            let m = &sum.memory;
            let came = [m.allocations, m.bytes, m.failed];
            let went = [m.frees, m.failed_frees, m.unknown_frees, m.missed_frees, m.released, m.untracked];
            for count in came.into_iter().chain(went).chain([m.live, m.live_bytes, m.peak_bytes]) {
                put(out, count);
            }
            codec::MEMORY_SUM
        }
        Event::KernelSum(sum) => {
            let (kind, address) = match sum.kernel {
                None => (0, 0),
                Some(KernelRef::Handle(address)) => (1, address),
                Some(KernelRef::HostStub(address)) => (2, address),
            };
            put(out, sum.process.0);
            out.push(kind);
            put(out, address);
            put(out, sum.count);
            codec::KERNEL_SUM
        }
        Event::Launch(_) | Event::Activity(_) | Event::Sample(_) | Event::Sync(_) => {
            unreachable!("has a record without a length")
        }
    }
}

fn put_call(out: &mut Vec<u8>, call: &Call) {
    let flag = |has, flag| if has { flag } else { 0 };
    put(out, call.function.0);
    put(out, call.process.0);
    put(out, call.tid);
    put(out, call.cpu);
    out.push(call.depth);
    out.push(
        flag(call.nested, codec::CALL_NESTED)
            | flag(call.out.is_some(), codec::CALL_OUT)
            | flag(call.launch.is_some(), codec::CALL_LAUNCH)
            | flag(call.stack.is_some(), codec::CALL_STACK)
            | flag(call.launches, codec::CALL_LAUNCHES)
            | flag(call.enclosed, codec::CALL_ENCLOSED),
    );
    put(out, call.start);
    put_distance(out, call.start, call.end);
    put(out, call.result);
    if let Some(value) = call.out {
        put(out, value);
    }
    if let Some((session, correlation)) = call.launch {
        put(out, session.0);
        put(out, correlation);
    }
    if let Some(stack) = call.stack {
        put(out, stack.0);
    }
    put_numbers(out, &call.words);
    put_bytes(out, &call.payload);
    put_around(out, call.start, call.around);
}

/// The last field of a record, which those that are within no call do not have.
fn put_around(out: &mut Vec<u8>, start: u64, around: u64) {
    if around != 0 {
        put_distance(out, start, around);
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    put(out, numbers.len() as u64);
    for number in numbers {
        put(out, *number);
    }
}

/// A frame's kind and the distance of its address from the frame before; returns the address. A line of Python is a number
/// and has no address.
fn put_frame(out: &mut Vec<u8>, last: u64, frame: &Frame) -> u64 {
    let (kind, address) = match *frame {
        Frame::User(address) => (codec::USER_FRAME, address),
        Frame::Kernel(address) => (codec::KERNEL_FRAME, address),
        Frame::Python(number) => {
            out.push(codec::PYTHON_FRAME);
            put(out, number);
            return last;
        }
    };
    out.push(kind);
    put_distance(out, last, address);
    address
}
