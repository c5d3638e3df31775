//! Steps of a recording, from its events.

use model::{
    event::{
        Activity, Direction, Event, Frame, FrameKind, Launch, Mapping, NamedFrame, Origin, Process, ProcessId, Range,
        RangeName, Session, SessionId, Stack, StackEnd, StackId, Symbol, Work,
    },
    fold::Fold,
    profile::Profile,
    steps::Steps,
};

use super::super::{Choice, Sequence, find, is_function};

const STEPS: u64 = 10;
const LENGTH: u64 = 1_000;
const MAIN: u32 = 7;
const HELPER: u32 = 8;

/// One operation of each step: the stack, the thread, when it is launched, and when it runs.
const OPERATIONS: [(u64, u32, u64, u64, u64); 4] =
    [(1, MAIN, 0, 10, 30), (2, MAIN, 100, 110, 410), (4, HELPER, 500, 510, 560), (3, MAIN, 900, 950, 1_050)];

/// Each step launches a copy, a kernel, another one that runs into the next step, and one in a thread that works for it. GPU work
/// is reported late, the last one first. Another NVTX range is around half of each step.
fn events() -> Vec<Event> {
    let process = ProcessId(1);
    let mut events = vec![
        Event::Process(Process {
            id: process,
            parent: ProcessId(0),
            origin: Origin::Exec,
            pid: 70,
            time: 1,
            comm: "app".into(),
        }),
        Event::Session(Session { id: SessionId(1), process, cupti: 1, driver: 1 }),
        Event::Mapping(Mapping {
            process,
            time: 1,
            start: 0,
            end: 99,
            offset: 0,
            path: "/bin/app".into(),
            build_id: Vec::new(),
        }),
        Event::RangeName(RangeName {
            session: SessionId(1),
            id: 1,
            parent: 0,
            category: String::new(),
            name: "half".into(),
        }),
    ];
    let names = [(10, "main", "app"), (11, "train", "app"), (12, "train", "app"), (13, "train", "app")];
    let others = [(20, "work", "app"), (30, "cuLaunchKernel", "libcuda.so.1"), (31, "cuLaunchKernel", "libcuda.so.1")];
    for (address, name, module) in names.into_iter().chain(others) {
        let frame = NamedFrame { kind: FrameKind::Native, name: name.into(), module: module.into() };
        events.push(Event::Symbol(Symbol { process, frame: Frame::User(address), since: 0, names: vec![frame] }));
    }
    // The driver launches in different ways.
    for (id, frames) in [(1, [30, 11, 10]), (2, [30, 12, 10]), (3, [31, 13, 10]), (4, [30, 20, 10]), (5, [31, 12, 10])]
    {
        let frames = frames.into_iter().map(Frame::User).collect();
        events.push(Event::Stack(Stack { id: StackId(id), process, time: 1, frames, end: StackEnd::Whole }));
    }
    let mut correlation = 0;
    for step in 1..=STEPS {
        let mut activities = Vec::new();
        for (stack, tid, launched, from, to) in OPERATIONS {
            correlation += 1;
            let (time, start, end) = (step * LENGTH + launched, step * LENGTH + from, step * LENGTH + to);
            let stack = StackId(if stack == 2 && step % 3 == 0 { 5 } else { stack });
            let session = SessionId(1);
            events.push(Event::Launch(Launch { session, correlation, process, tid, time, stack, ..Launch::default() }));
            let copy = Work::Copy { direction: Direction::HtoD, bytes: 64, source: 2, destination: 3, peer: None };
            let kernel = Work::Kernel { name: 0, grid: [1; 3], block: [1; 3], registers: 1, shared_memory: 0 };
            let work = if stack.0 == 1 { copy } else { kernel };
            activities.push(Event::Activity(Activity {
                session,
                correlation,
                start,
                end,
                work,
                ..Activity::default()
            }));
        }
        events.extend(activities.into_iter().rev());
        let (start, end) = (step * LENGTH, step * LENGTH + LENGTH / 2);
        events.push(Event::Range(Range { session: SessionId(1), path: 1, tid: MAIN, start, end, mark: false }));
    }
    events
}

fn steps(choice: &Choice<'_>) -> Steps {
    let (mut fold, mut sequence) = (Fold::new(), Sequence::default());
    for event in events() {
        fold.push(&event);
        if let Event::Launch(launch) = event {
            sequence.push(&launch);
        }
    }
    let profile: Profile = fold.finish();
    find(&profile, sequence, choice, &mut || Ok(Box::new(events().into_iter()))).expect("events can be read")
}

/// Check what steps are made of: the work that they launched, also in another thread, and the time in which any of it ran.
#[test]
fn steps_have_their_work() {
    let found = steps(&Choice::Loop);
    let [series] = &found.series[..] else { panic!("{found:?}") };
    assert_eq!((series.process, series.tid, &*series.place), (ProcessId(1), MAIN, "train"));
    assert_eq!(series.steps.len() as u64, STEPS);
    for (step, number) in series.steps.iter().zip(1..) {
        let is_last = number == STEPS;
        assert_eq!((step.number, step.start, step.is_followed), (number, number * LENGTH, !is_last));
        assert_eq!(step.ns(), if is_last { 1_050 } else { LENGTH });
        let work = &step.work;
        assert_eq!((work.launches, work.kernels, work.kernel_ns), (4, 3, 450), "step {number}");
        assert_eq!((work.copies, work.copy_ns, work.copy_bytes), (1, 20, 64));
        // The end of the step before covers the copy.
        let begin = if number == 1 { 20 } else { 50 };
        let end = if is_last { 100 } else { 50 };
        assert_eq!((step.busy_ns, step.idle_ns()), (begin + 300 + 50 + end, step.ns() - begin - 350 - end));
    }
}

/// Check that steps can be the calls of a function or NVTX ranges, which have the work launched in them.
#[test]
fn functions_and_ranges_are_steps() {
    let of_train = steps(&Choice::Function(&|frame| is_function(frame, "train")));
    assert_eq!(of_train.series, steps(&Choice::Loop).series);
    let ranges = steps(&Choice::Range(&|name| name == "half"));
    let [series] = &ranges.series[..] else { panic!("{ranges:?}") };
    assert_eq!((&*series.place, series.steps.len() as u64), ("[nvtx: half]", STEPS));
    for step in &series.steps {
        assert_eq!((step.ns(), step.work.launches, step.work.kernel_ns), (LENGTH / 2, 2, 300));
    }
    assert!(steps(&Choice::Range(&|name| name == "other")).series.is_empty());
}
