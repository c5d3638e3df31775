//! Runs operations and graphs on streams.

use cupti::ids::kind;

use super::call;
use super::client::{self, SWITCHES};
use super::context::Stream;
use super::graph::Graph;
use super::operation::Operation;
use crate::activity::{Activity, Detail};
use crate::nvml::meter;
use crate::sys;
use crate::truth::TRUTH;

/// Runs an operation on a stream, as a node of a graph or (0, 0) without one. Returns when it will start and end.
fn run(operation: &Operation, stream: &Stream, graph: u32, node: u64) -> [u64; 2] {
    let _submitting = SWITCHES.submit();
    let noting = matches!(operation, Operation::Kernel { .. }).then(meter::Noting::begin).flatten();
    let queued = sys::now();
    let slot = stream.timeline.reserve(queued, operation.duration());
    operation.perform();
    if let (Operation::Kernel { function, .. }, Some(noting)) = (operation, noting) {
        noting.note(stream.context.device.hardware.gpu, slot.start, slot.end, function.name());
    }
    if SWITCHES.kind(operation.kind()) && !(graph != 0 && SWITCHES.kind(kind::GRAPH_TRACE)) {
        produce(stream, queued, [slot.start, slot.end], operation.detail(), graph, node);
    }
    if slot.room > queued {
        sys::wait_until(slot.room);
    }
    [slot.start, slot.end]
}

/// Reports an operation or a wait of an enabled kind to libcupti.
fn produce(stream: &Stream, queued: u64, [start, end]: [u64; 2], detail: Detail, graph: u32, node: u64) {
    let Some(hooks) = client::hooks() else { return };
    (hooks.activity)(&Activity {
        correlation: call::correlation(),
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
    let queued = sys::now();
    let mut times: Option<[u64; 2]> = None;
    exec.run(&mut |node, operation| {
        let [start, end] = run(operation, stream, exec.id, node);
        times = Some([times.map_or(start, |[first, _]| first), end]);
    });
    if let Some(times) = times.filter(|_| SWITCHES.kind(kind::GRAPH_TRACE)) {
        produce(stream, queued, times, Detail::Graph, exec.id, 0);
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
        produce(stream, start, [start, sys::now()], Detail::Sync { kind: sync_kind, event }, 0, 0);
    }
}
