//! Tests of recordings that are read as one.

use super::*;
use crate::{
    event::{
        Activity, Counter, CounterId, CounterPoint, Device, DeviceIdentity, Frame, FrameKind, Hits, KernelName, Launch,
        LaunchKind, NamedFrame, Origin, PointId, Process, ProcessId, ProgramCost, Sample, Session, SessionId, Stack,
        StackEnd, StackId, Symbol, Unit, Uuid, Work,
    },
    event::{CostProgram, Note},
    fold::Fold,
    profile::Profile,
};

const SECOND: u64 = 1_000_000_000;

/// A recording of one process with one kernel, sample and event, on a machine that has been up for `uptime`.
fn recording(host: &str, uptime: u64, wall_clock: u64, gpu: u128, kernel: &str) -> Vec<Event> {
    let (process, session, stack) = (ProcessId(1), SessionId(0), StackId(77));
    let time = uptime;
    let command = vec!["train.py".to_owned()];
    let start =
        Start { time, wall_clock, version: "1".into(), host: host.into(), command, mode: Mode::Merged, frequency: 99 };
    let identity = DeviceIdentity {
        uuid: Uuid(gpu),
        gpu: Uuid(gpu),
        pci: 16,
        machine_index: Some(0),
        ..DeviceIdentity::default()
    };
    let named = NamedFrame { kind: FrameKind::Python, name: format!("{kernel}_caller").into(), module: "".into() };
    let work = Work::Kernel { name: 3, grid: [1; 3], block: [1; 3], registers: 0, shared_memory: 0 };
    let (weight, unit) = (String::new(), Unit::Number);
    vec![
        Event::Start(start),
        Event::Process(Process {
            id: process,
            parent: ProcessId(0),
            origin: Origin::Found,
            pid: 42,
            time,
            comm: "p".into(),
        }),
        Event::Session(Session { id: session, process, cupti: 1, driver: 1 }),
        Event::Device(Device { session, index: 0, name: "GPU".into(), identity }),
        Event::KernelName(KernelName { session, id: 3, name: kernel.into() }),
        Event::Stack(Stack { id: stack, process, time, frames: vec![Frame::Python(5)], end: StackEnd::Whole }),
        Event::Counter(Counter { id: CounterId(9), name: "malloc".into(), source: "s".into(), weight, unit }),
        Event::CounterPoint(CounterPoint {
            id: PointId(1),
            counter: CounterId(9),
            function: "f".into(),
            file: "g".into(),
        }),
        Event::Launch(Launch {
            session,
            correlation: 7,
            kind: LaunchKind::Kernel,
            process,
            tid: 42,
            cpu: 0,
            time: time + 10,
            stack,
            rate: 0,
        }),
        Event::Activity(Activity {
            session,
            correlation: 7,
            device: 0,
            context: 1,
            stream: 7,
            start: time + 20,
            end: time + 120,
            graph: 0,
            graph_node: 0,
            work,
        }),
        Event::Sample(Sample { process, tid: 42, cpu: 0, time: time + 50, stack, weight: 10 }),
        Event::Hits(Hits { point: PointId(1), process, stack, count: 4, weight: 0, outside: 0 }),
        Event::OwnCost(OwnCost { collector_ns: 5, program_ns: 50 }),
        Event::ProgramCost(ProgramCost { program: CostProgram::Launch, runs: 1, ns: 2 }),
        Event::Note(Note { text: "a note".into() }),
        Event::Symbol(Symbol { process: ProcessId(0), frame: Frame::Python(5), since: 0, names: vec![named] }),
        Event::End(End { time: time + 2 * SECOND, status: Some(0) }),
    ]
}

fn merge(recordings: Vec<Vec<Event>>) -> Vec<Event> {
    Merged::new(recordings.into_iter().map(Vec::into_iter).collect()).expect("they can be combined").collect()
}

fn fold(events: &[Event]) -> Profile {
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.push(event));
    fold.finish()
}

/// Check that a single recording is read as it is.
#[test]
fn one_recording_is_unchanged() {
    let one = recording("a", 100 * SECOND, 5_000 * SECOND, 1, "k");
    assert_eq!(merge(vec![one.clone()]), one);
}

/// Check that equal numbers of two machines stay apart, that all work is matched and named, and that times are aligned by
/// the wall clock although the machines were started at different times.
#[test]
fn machines_stay_apart_and_are_aligned() {
    let (a, b) =
        (recording("a", 100 * SECOND, 5_000 * SECOND, 1, "k"), recording("b", 9 * SECOND, 5_001 * SECOND, 2, "m"));
    let merged = merge(vec![b, a]);
    let starts: Vec<u64> =
        merged.iter().filter_map(|event| if let Event::Activity(a) = event { Some(a.start) } else { None }).collect();
    assert_eq!(starts, [100 * SECOND + 20, 101 * SECOND + 20]);
    let profile = fold(&merged);
    assert_eq!((profile.ledger.launches, profile.ledger.activities_matched, profile.ledger.samples), (2, 2, 2));
    assert_eq!((profile.processes.len(), profile.sessions.len(), profile.stacks.len()), (2, 2, 2));
    let mut paths: Vec<String> =
        profile.stacks.iter().map(|stack| profile.frames(stack.id)[0].name.to_string()).collect();
    paths.sort();
    assert_eq!(paths, ["k_caller", "m_caller"]);
    let start = profile.start.as_ref().expect("a start");
    assert_eq!((start.host.as_str(), start.time, start.wall_clock), ("b, a", 100 * SECOND, 5_000 * SECOND));
    assert_eq!(profile.end, Some(End { time: 103 * SECOND, status: Some(0) }));
    // Both machines have a GPU 0.
    let devices: Vec<_> = profile.devices.values().map(|info| (info.label.as_str(), info.name.as_str())).collect();
    assert_eq!(devices, [("0", "GPU on b"), ("1", "GPU on a")]);
    assert_eq!(profile.notes, ["b: a note", "a: a note"].map(String::from).iter().rev().cloned().collect::<Vec<_>>());
    // The pids are equal, but neither process ended the other.
    assert!(profile.processes.values().all(|info| info.pid == 42 && info.end == 0));
}

/// Check that recordings of one machine share its GPU, and that events, costs and losses are added up.
#[test]
fn recordings_of_one_machine_are_added_up() {
    let one = || recording("a", 100 * SECOND, 5_000 * SECOND, 1, "k");
    let profile = fold(&merge(vec![one(), one(), one()]));
    assert_eq!((profile.devices.len(), profile.ledger.activities_matched), (1, 3));
    assert_eq!((profile.counters.all.len(), profile.ledger.hits), (1, 12));
    assert_eq!(profile.cost.own, Some(OwnCost { collector_ns: 15, program_ns: 150 }));
    assert_eq!(profile.cost.programs[&CostProgram::Launch], (3, 6));
    assert_eq!(profile.notes, ["a note"]);
    assert_eq!(profile.gpu.values().map(|weight| weight.ns).sum::<u64>(), 300);
}

/// Check that a recording without an end makes the whole incomplete, and that traces cannot be combined with recordings.
#[test]
fn incomplete_and_mixed_recordings() {
    let one = || recording("a", 100 * SECOND, 5_000 * SECOND, 1, "k");
    let cut = one()[..12].to_vec();
    assert_eq!(fold(&merge(vec![one(), cut])).end, None);
    let mut trace = one();
    if let Event::Start(start) = &mut trace[0] {
        start.mode = Mode::Trace;
    }
    let mixed = Merged::new(vec![one().into_iter(), trace.into_iter()]).err();
    assert_eq!(mixed, Some(MergeError::Mixed));
}
