//! Runs operations and graphs on streams.

use cupti::ids::kind;

use super::call;
use super::client::{self, SWITCHES};
use super::context::Stream;
use super::graph::Graph;
use super::meeting;
use super::operation::Operation;
use super::timeline::{Slot, Timeline};
use crate::activity::{Activity, Detail};
use crate::nvml::meter;
use crate::sys;
use crate::truth::TRUTH;

/// Runs an operation on a stream, as a node of a graph or (0, 0) without one. Returns when it will start and end; 0 for a kernel that
/// is a meeting or behind one.
fn run(operation: &Operation, stream: &'static Stream, graph: u32, node: u64) -> [u64; 2] {
    let _submitting = SWITCHES.submit();
    let is_kernel = matches!(operation, Operation::Kernel { .. });
    let meet = is_kernel.then(meeting::take_next).flatten();
    let submitted =
        Submitted { operation: *operation, stream, graph, node, correlation: call::correlation(), queued: sys::now() };
    if is_kernel && (meet.is_some() || stream.meetings.busy()) {
        stream.meetings.add(Box::new(move || {
            submitted.run(|timeline| match meet {
                Some(meet) => {
                    let start = submitted.queued.max(timeline.free_at());
                    timeline.occupy(start, meet(start))
                }
                None => timeline.reserve(submitted.queued, submitted.operation.duration()),
            });
        }));
        return [0, 0];
    }
    stream.meetings.settle();
    let slot = submitted.run(|timeline| timeline.reserve(submitted.queued, operation.duration()));
    operation.perform();
    if slot.room > submitted.queued {
        sys::wait_until(slot.room);
    }
    [slot.start, slot.end]
}

/// An operation that was submitted.
#[derive(Clone, Copy)]
struct Submitted {
    operation: Operation,
    stream: &'static Stream,
    graph: u32,
    node: u64,
    correlation: u32,
    queued: u64,
}

impl Submitted {
    /// Gives it its times, and reports it.
    fn run(&self, reserve: impl FnOnce(&Timeline) -> Slot) -> Slot {
        let Self { operation, stream, graph, node, correlation, queued } = self;
        let noting = matches!(operation, Operation::Kernel { .. }).then(meter::Noting::begin).flatten();
        let slot = reserve(&stream.timeline);
        if let (Operation::Kernel { function, .. }, Some(noting)) = (operation, noting) {
            noting.note(stream.context.device.hardware.gpu, slot.start, slot.end, function.name());
        }
        if SWITCHES.kind(operation.kind()) && !(*graph != 0 && SWITCHES.kind(kind::GRAPH_TRACE)) {
            produce(stream, *correlation, *queued, [slot.start, slot.end], operation.detail(), *graph, *node);
        }
        slot
    }
}

/// Reports an operation or a wait of an enabled kind to libcupti.
fn produce(
    stream: &Stream,
    correlation: u32,
    queued: u64,
    [start, end]: [u64; 2],
    detail: Detail,
    graph: u32,
    node: u64,
) {
    let Some(hooks) = client::hooks() else { return };
    (hooks.activity)(&Activity {
        correlation,
        device: stream.context.device.index,
        context: stream.context.id,
        stream: stream.id(),
        graph,
        node,
        queued,
        start,
        end,
        detail,
    });
}

/// Handles a launch-class call: runs the operation, or adds it to the graph being captured. Returns when it will end.
pub fn launch(stream: &'static Stream, operation: Operation) -> u64 {
    if stream.capturing() && stream.with_capture(|graph| graph.add(operation)).is_some() {
        TRUTH.captured.add(1);
        return 0;
    }
    if operation.is_empty() {
        return 0;
    }
    let [_, end] = run(&operation, stream, 0, 0);
    let launched = match operation {
        Operation::Kernel { .. } => &TRUTH.kernels,
        Operation::Copy { .. } => &TRUTH.copies,
        Operation::Memset { .. } => &TRUTH.memsets,
    };
    launched.add(1);
    end
}

/// Runs every node of a graph, one after the other. Reports the nodes or, if the client requested that, the whole.
pub fn launch_graph(exec: &Graph, stream: &'static Stream) {
    stream.meetings.settle();
    let queued = sys::now();
    let mut times: Option<[u64; 2]> = None;
    exec.run(&mut |node, operation| {
        let [start, end] = run(operation, stream, exec.id, node);
        times = Some([times.map_or(start, |[first, _]| first), end]);
    });
    if let Some(times) = times.filter(|_| SWITCHES.kind(kind::GRAPH_TRACE)) {
        produce(stream, call::correlation(), queued, times, Detail::Graph, exec.id, 0);
    }
    TRUTH.graphs.add(1);
}

/// Waits until `time` on behalf of an API call, and reports the wait ([`cupti::ids::sync_kind`], event id).
pub fn wait(stream: &Stream, time: u64, sync_kind: u32, event: u32) {
    let start = sys::now();
    sys::wait_until(time);
    if sync_kind != cupti::ids::sync_kind::STREAM_WAIT_EVENT {
        TRUTH.waits.add(1);
    }
    if SWITCHES.kind(kind::SYNCHRONIZATION) {
        let detail = Detail::Sync { kind: sync_kind, event };
        produce(stream, call::correlation(), start, [start, sys::now()], detail, 0, 0);
    }
}
