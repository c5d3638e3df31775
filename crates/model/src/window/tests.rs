use super::*;
use crate::{
    event::{
        Activity, Call, Captured, Exit, Function, FunctionId, KernelName, Launch, LaunchKind, Mode, NodeCopied,
        NodeCreated, Pause, Process, Sample, Session, SessionId, StackEnd, Totals, Work,
    },
    fold::Fold,
    memory::DeviceMemory,
    profile::Profile,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const SESSION: SessionId = SessionId(0);
const LIMITS: Limits = Limits { ns: 10 * S, bytes: 1 << 20 };

fn start() -> Event {
    let mode = Mode::Merged;
    Event::Start(Start { time: S, wall_clock: 7 * S, command: vec!["app".into()], mode, ..empty_start() })
}

fn stack(id: u64) -> Event {
    let (process, time, end) = (ProcessId(1), 0, StackEnd::Whole);
    Event::Stack(Stack { id: StackId(id), process, time, frames: vec![crate::event::Frame::User(id)], end })
}

fn launch(correlation: u32, time: u64, stack: u64) -> Event {
    let (process, kind) = (ProcessId(1), LaunchKind::Kernel);
    Event::Launch(Launch {
        session: SESSION,
        correlation,
        kind,
        process,
        time,
        stack: StackId(stack),
        ..Launch::default()
    })
}

fn kernel(correlation: u32, start: u64, end: u64) -> Event {
    let work = Work::Kernel { name: 5, grid: [1; 3], block: [1; 3], registers: 0, shared_memory: 0 };
    Event::Activity(Activity { session: SESSION, correlation, start, end, work, ..Activity::default() })
}

fn described() -> Window {
    let mut window = Window::new(LIMITS);
    window.advance(S);
    let process = Process { id: ProcessId(1), time: S, comm: "app".into(), ..process(1) };
    for event in [
        start(),
        Event::Process(process),
        Event::Session(Session { id: SESSION, process: ProcessId(1), cupti: 1, driver: 1 }),
        Event::KernelName(KernelName { session: SESSION, id: 5, name: "step".into() }),
        stack(70),
        stack(71),
    ] {
        window.push(&event);
    }
    window
}

fn process(id: u32) -> Process {
    let origin = crate::event::Origin::Found;
    Process { id: ProcessId(id), parent: ProcessId(0), origin, pid: id, time: 0, comm: String::new() }
}

fn cut(window: &mut Window, time: u64) -> Cut {
    window.advance(time);
    window.cut(Reason { time, kind: DumpReason::Signal, text: "SIGUSR1".into() }, None)
}

fn events(cut: &Cut) -> Vec<Event> {
    let mut all = Vec::new();
    cut.events(|event| all.push(event.clone()));
    all
}

fn fold(cut: &Cut) -> Profile {
    let mut fold = Fold::new();
    cut.events(|event| fold.push(event));
    fold.push(&Event::End(cut.end));
    fold.finish()
}

fn launched(cut: &Cut) -> Vec<u32> {
    let ids = events(cut).into_iter().filter_map(|event| match event {
        Event::Launch(launch) => Some(launch.correlation),
        _ => None,
    });
    ids.collect()
}

/// Check that a dump contains exactly the steps of the window, with their names and stacks, which were announced long
/// before, and that its ledger has no loss.
#[test]
fn a_dump_contains_the_window_and_nothing_older() {
    let mut window = described();
    // One launch per 10 ms for 100 s; each kernel runs 5 ms later, for 2 ms.
    for step in 0..10_000_u32 {
        let time = S + u64::from(step) * 10 * MS;
        window.advance(time);
        window.push(&launch(step, time, 70));
        window.push(&kernel(step, time + 5 * MS, time + 7 * MS));
    }
    let end = S + 100 * S - MS;
    let cut = cut(&mut window, end);
    let from = end - 10 * S;
    let expected: Vec<u32> = (0..10_000).filter(|step| S + u64::from(*step) * 10 * MS + 7 * MS >= from).collect();
    assert_eq!(launched(&cut), expected);
    let profile = fold(&cut);
    let ledger = &profile.ledger;
    assert_eq!((ledger.launches, ledger.launches_matched), (1_000, 1_000));
    assert_eq!((ledger.activities_matched, ledger.activities_unmatched), (1_000, 0));
    assert_eq!((ledger.launches_pending, ledger.stacks_missing, ledger.lost.total()), (0, 0, 0));
    assert_eq!((ledger.sessions_left, ledger.sessions_cut_off), (0, 0));
    assert_eq!(&*profile.kernel_names[0].mangled, "step");
    assert!(profile.stacks.contains(StackId(70)) && !profile.stacks.contains(StackId(71)), "unused");
    let begin = profile.start.expect("starts");
    assert_eq!((begin.time, begin.wall_clock), (from, 7 * S + from - S));
    let dump = profile.dump.expect("says why");
    assert_eq!((dump.reason, dump.text.as_str(), dump.full), (DumpReason::Signal, "SIGUSR1", false));
    assert!(dump.discarded > 17_000 && dump.discarded < 18_000, "{}", dump.discarded);
}

/// Check that work belongs to the window by its own time: a launch before the window with work in it is kept, work of a
/// launch after the window is not, and a launch without work so far is pending.
#[test]
fn work_at_the_edges_is_joined_to_its_launch() {
    let mut window = described();
    window.push(&launch(1, 2 * S, 70));
    window.push(&launch(2, 2 * S, 71));
    window.push(&kernel(2, 3 * S, 4 * S));
    // The chunk with these launches is discarded long before the kernel has run.
    for second in 3..60 {
        window.advance(second * S);
        window.push(&Event::Sample(Sample { time: second * S, stack: StackId(70), ..Sample::default() }));
    }
    assert!(window.discarded() > 40);
    window.push(&launch(3, 58 * S, 70));
    window.push(&kernel(1, 5 * S, 59 * S));
    window.push(&launch(4, 59 * S, 70));
    window.push(&launch(5, 60 * S + 1, 70));
    window.push(&kernel(5, 60 * S + 2, 60 * S + 3));
    window.push(&kernel(4, 60 * S + 5, 60 * S + 6));
    window.advance(61 * S);
    let cut = window.cut(Reason { time: 60 * S, ..Reason::default() }, None);
    assert_eq!(launched(&cut), [1, 3, 4]);
    let profile = fold(&cut);
    assert_eq!((profile.ledger.launches_matched, profile.ledger.launches_pending), (2, 1));
    assert_eq!((profile.ledger.activities_matched, profile.ledger.activities_unmatched), (2, 0));
    assert_eq!(profile.ledger.samples, 10, "of seconds 50 to 59");
}

/// Check that a graph's nodes keep the stacks that created them when the capture is no longer in the window.
#[test]
fn nodes_of_graphs_keep_their_stacks() {
    let mut window = described();
    let node = |graph: u64| graph << 32 | 1;
    window.push(&launch(1, 2 * S, 71));
    window.push(&Event::NodeCreated(NodeCreated { session: SESSION, node: node(1), mark: 1, own: false }));
    window.push(&Event::Captured(Captured { session: SESSION, correlation: 1 }));
    window.push(&Event::NodeCopied(NodeCopied { session: SESSION, node: node(2), original: node(1), time: 2 * S }));
    window.advance(100 * S);
    window.push(&launch(2, 100 * S, 70));
    let Event::Activity(activity) = kernel(2, 100 * S, 101 * S) else { unreachable!() };
    window.push(&Event::Activity(Activity { graph: 2, graph_node: node(2), ..activity }));
    let profile = fold(&cut(&mut window, 102 * S));
    let key = profile.gpu.keys().next().expect("one operation");
    assert_eq!((key.stack, key.capture), (Some(StackId(70)), Some(StackId(71))));
    assert_eq!((profile.ledger.launches, profile.ledger.graph_operations_unknown), (1, 0));
    assert!(profile.stacks.contains(StackId(71)));
}

/// Check that a pause of the recording that began long before the window is in the dump as long as it lasts, and no longer.
#[test]
fn pauses_that_began_before_the_window_are_known() {
    let mut window = described();
    let pause =
        |number, from, to| Event::Pause(Pause { session: SESSION, number, from, to, client: "torch.profiler".into() });
    window.push(&pause(1, 2 * S, u64::MAX));
    window.push(&pause(1, 2 * S, 3 * S));
    window.push(&pause(2, 4 * S, u64::MAX));
    let pauses = |window: &mut Window, time| {
        let all = events(&cut(window, time));
        all.into_iter().filter(|event| matches!(event, Event::Pause(_))).collect::<Vec<_>>()
    };
    assert_eq!(pauses(&mut window, 100 * S), [pause(2, 4 * S, u64::MAX)]);
    window.push(&pause(2, 4 * S, 101 * S));
    assert_eq!(pauses(&mut window, 105 * S), [pause(2, 4 * S, 101 * S)]);
    assert_eq!(pauses(&mut window, 115 * S), []);
    window.advance(200 * S);
    assert_eq!(window.facts.all().events.iter().filter(|event| matches!(event.as_ref(), Event::Pause(_))).count(), 1);
    cut(&mut window, 200 * S);
    assert_eq!(window.facts.all().events.iter().filter(|event| matches!(event.as_ref(), Event::Pause(_))).count(), 0);
}

/// Check that only losses in the window count, although sessions report them since their beginning.
#[test]
fn earlier_losses_do_not_count() {
    let mut window = described();
    let totals = |dropped_queue_full| Totals { dropped_queue_full, kernels: 9, ..zero_totals() };
    window.push(&Event::Totals(totals(100)));
    window.advance(100 * S);
    window.push(&Event::Totals(totals(107)));
    let ledger = fold(&cut(&mut window, 101 * S)).ledger;
    assert_eq!((ledger.lost.queue_full, ledger.activities_delivered), (7, 0));
    window.advance(200 * S);
    let ledger = fold(&cut(&mut window, 200 * S)).ledger;
    assert_eq!(ledger.lost.total(), 0);
}

fn zero_totals() -> Totals {
    Totals {
        session: SESSION,
        launches: 0,
        kernels: 0,
        kernel_ns: 0,
        copies: 0,
        memsets: 0,
        syncs: 0,
        dropped_by_cupti: 0,
        dropped_queue_full: 0,
        invalid: 0,
        nameless: 0,
        buffers_refused: 0,
        dropped_launches: 0,
        ended: false,
    }
}

/// Check that the size of the window is bounded, that a dump then says that it is shorter, and that times from the
/// future, which any process can send, do not keep events.
#[test]
fn a_full_window_is_shorter() {
    let mut window = described();
    for step in 0..400_000_u32 {
        let time = S + u64::from(step) * 10_000;
        window.advance(time);
        window.push(&launch(step, time, 70));
        window.push(&kernel(step, time, u64::MAX - u64::from(step % 7)));
        assert!(window.bytes() <= LIMITS.bytes + 2 * CHUNK_FULL);
    }
    let cut = cut(&mut window, 5 * S);
    assert!(cut.dump.full && cut.dump.from > 2 * S, "{:?}", cut.dump);
    let oldest = events(&cut).into_iter().filter_map(|event| match event {
        Event::Launch(launch) => Some(launch.time),
        _ => None,
    });
    assert!(oldest.min().expect("launches") >= cut.dump.from);
    window.advance(100 * S);
    assert_eq!(window.bytes(), 0);
}

/// Check that descriptions are bounded: ended processes and unused stacks are removed; running processes with the
/// ancestors whose mappings they share, and stacks in use, are kept.
#[test]
fn descriptions_are_bounded() {
    let mut window = described();
    let fork = crate::event::Origin::Fork;
    for id in 2..200_000 {
        window.advance(u64::from(id) * MS);
        let parent = ProcessId(if id == 8 { 7 } else { 1 });
        window.push(&Event::Process(Process { parent, origin: fork, ..process(id) }));
        if id != 8 {
            window.push(&Event::Exit(Exit { process: ProcessId(id), time: u64::from(id) * MS }));
        }
        window.push(&stack(u64::from(id) + 100));
        window.push(&Event::Sample(Sample { time: u64::from(id) * MS, stack: StackId(70), ..Sample::default() }));
        if let Some(gone) = window.forget() {
            assert!(!gone.contains(&(ProcessId(1), StackId(70))));
        }
        if id == 7 {
            window.push(&launch(1, 7 * MS, 71));
        }
    }
    let profile = fold(&cut(&mut window, 200 * S));
    let all = window.facts.all();
    assert!(all.stacks.len() <= 1 << 17 && all.events.len() <= 1 << 17, "{} stacks", all.stacks.len());
    assert!(window.stack(StackId(70)).is_some(), "used all the time");
    assert!(window.stack(StackId(71)).is_some(), "its launch may still run");
    assert_eq!(profile.ledger.stacks_missing, 0);
    assert!(profile.processes.contains_key(&ProcessId(7)), "the parent of one that runs");
    assert!(profile.processes.contains_key(&ProcessId(8)) && !profile.processes.contains_key(&ProcessId(9)));
    // One process each millisecond.
    let most = (LIMITS.ns + SLACK_NS) / MS + 10;
    assert!(profile.processes.len() as u64 <= most, "{}", profile.processes.len());
}

/// Check that a dump says who holds memory, however long ago it was allocated and whatever was removed meanwhile; that it has no
/// allocations; and that what ended before the window holds nothing.
#[test]
fn a_dump_says_who_holds_memory() {
    let mut window = described();
    let malloc = |process, address, time, stack| {
        Event::Call(Call {
            function: FunctionId(3),
            process,
            tid: 1,
            cpu: 0,
            depth: 0,
            nested: false,
            enclosed: false,
            start: time - 1,
            end: time,
            result: 0,
            out: Some(address),
            launch: None,
            launches: false,
            around: 0,
            stack: Some(StackId(stack)),
            words: vec![0, 4096],
            payload: Vec::new(),
        })
    };
    let other = ProcessId(2);
    let function = Function { id: FunctionId(3), name: "cudaMalloc".into(), shown: true, ..Function::default() };
    let before = [
        Event::Process(process(2)),
        Event::Function(function),
        malloc(ProcessId(1), 1 << 20, 2 * S, 70),
        malloc(ProcessId(1), 2 << 20, 3 * S, 71),
        malloc(other, 1 << 20, 3 * S, 71),
    ];
    before.iter().for_each(|event| window.push(event));
    window.push(&Event::Exit(Exit { process: other, time: 95 * S }));
    // Far more stacks than are kept.
    (1_000..150_000).for_each(|id| window.push(&stack(id)));
    window.advance(100 * S);
    assert!(window.forget().is_some_and(|gone| gone.len() > 100_000));
    let memory = |window: &mut Window, time| {
        let cut = cut(window, time).with(window.memory(time));
        assert!(!events(&cut).iter().any(|event| matches!(event, Event::Call(_) | Event::Function(_))));
        fold(&cut)
    };
    let profile = memory(&mut window, 100 * S);
    let ends = |profile: &Profile| -> Vec<_> {
        let of = |(&(process, _), memory): (_, &DeviceMemory)| (process, memory.end.time, memory.end.in_use());
        profile.memory.devices.iter().map(of).collect()
    };
    assert_eq!(ends(&profile), [(ProcessId(1), 100 * S, 8192), (other, 95 * S, 4096)]);
    assert!([70, 71].iter().all(|id| profile.stacks.contains(StackId(*id))));
    let device = &profile.memory.devices[&(ProcessId(1), 0)];
    assert_eq!((device.peak.time, device.most_held_bytes), (3 * S, 8192));
    assert_eq!(ends(&memory(&mut window, 106 * S)), [(ProcessId(1), 106 * S, 8192)]);
}
