//! Steps of a recording, from its events.

use std::io;

use model::{
    event::{
        Activity, Direction, Event, Frame, FrameKind, KernelName, Launch, Mapping, NamedFrame, Origin, PointId,
        Process, ProcessId, Range, RangeName, Sample, Session, SessionId, Stack, StackEnd, StackId, Symbol, Tensor,
        TensorFreed, Wait, Work,
    },
    fold::Fold,
    profile::Profile,
    steps::{Difference, Outlier, StepPart, Steps},
};

use super::super::{Choice, Sequence, explain, find, is_function};
use crate::Events;

const STEPS: u64 = 10;
const LENGTH: u64 = 1_000;
const MAIN: u32 = 7;
const HELPER: u32 = 8;

/// One operation of each step: the stack, the thread, when it is launched, and when it runs.
const OPERATIONS: [(u64, u32, u64, u64, u64); 4] =
    [(1, MAIN, 0, 10, 30), (2, MAIN, 100, 110, 410), (4, HELPER, 500, 510, 560), (3, MAIN, 900, 950, 1_050)];

/// Each step launches a copy, a kernel, another one that runs into the next step, and one in a thread that works for it. GPU work
/// is reported late, the last one first. Another NVTX range is around half of each step. If there is a slow step, the thread waits in
/// it for twice the length of the others before its last launch.
fn events(slow: Option<u64>) -> Vec<Event> {
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
        Event::KernelName(KernelName {
            session: SessionId(1),
            id: 7,
            name: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)".into(),
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
        let begin = step * LENGTH + if slow.is_some_and(|slow| slow < step) { 2 * LENGTH } else { 0 };
        for (stack, tid, launched, from, to) in OPERATIONS {
            correlation += 1;
            let mut begin = begin;
            if slow == Some(step) && launched == 900 {
                let (start, end) = (begin + launched, begin + launched + 2 * LENGTH - 5);
                let (stack, reason) = (StackId(3), PointId(0));
                events.push(Event::Wait(Wait { process, tid, start, end, stack, reason }));
                begin += 2 * LENGTH;
            }
            let (time, start, end) = (begin + launched, begin + from, begin + to);
            let id = StackId(if stack == 2 && step % 3 == 0 { 5 } else { stack });
            let session = SessionId(1);
            events.push(Event::Launch(Launch {
                session,
                correlation,
                process,
                tid,
                time,
                stack: id,
                ..Launch::default()
            }));
            let copy = Work::Copy { direction: Direction::HtoD, bytes: 64, source: 2, destination: 3, peer: None };
            // The helper's kernel communicates.
            let name = if stack == 4 { 7 } else { 0 };
            let kernel = Work::Kernel { name, grid: [1; 3], block: [1; 3], registers: 1, shared_memory: 0 };
            let work = if stack == 1 { copy } else { kernel };
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
        for (tid, weight) in [(MAIN, 10), (HELPER, 5)] {
            let (time, stack) = (begin + 200, StackId(2));
            events.push(Event::Sample(Sample { process, tid, cpu: 0, time, stack, weight }));
        }
        let tensor = |address, at, bytes| {
            let (tid, stack, device) = (MAIN, StackId(2), 0);
            Event::Tensor(Tensor { process, tid, time: begin + at, device, address, bytes, stack })
        };
        match step {
            3 => {
                let freed = TensorFreed { process, tid: MAIN, time: begin + 300, address: 4096 };
                events.extend([tensor(4096, 50, 1024), tensor(8192, 100, 512), Event::TensorFreed(freed)]);
            }
            5 => events.push(tensor(16384, 900, 4096)),
            _ => {}
        }
        let (start, end) = (begin, begin + LENGTH / 2);
        events.push(Event::Range(Range { session: SessionId(1), path: 1, tid: MAIN, start, end, mark: false }));
    }
    events
}

fn steps(choice: &Choice<'_>) -> Steps {
    steps_with(choice, None)
}

fn steps_with(choice: &Choice<'_>, slow: Option<u64>) -> Steps {
    let (mut fold, mut sequence) = (Fold::new(), Sequence::default());
    for event in events(slow) {
        fold.push(&event);
        if let Event::Launch(launch) = event {
            sequence.push(&launch);
        }
    }
    let profile: Profile = fold.finish();
    let mut events = || -> io::Result<Events<'_>> { Ok(Box::new(events(slow).into_iter())) };
    let mut found = find(&profile, sequence, choice, &mut events).expect("events can be read");
    explain(&profile, &mut found, &mut events).expect("events can be read");
    found
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
        let launching = if number == 1 { 20 } else { 10 } + 10 + 50;
        assert_eq!((step.launching_ns, step.waiting_ns), (launching, 0), "step {number}");
        assert_eq!((work.communication_ns, step.cpu_ns), (50, 10));
        let memory = match number {
            1 | 2 => 0,
            3 => 1536,
            4 => 512,
            _ => 4608,
        };
        assert_eq!(step.memory_bytes, memory, "step {number}");
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

/// Check that a slow step is compared with others, that what took longer is known, and that steps of equal length have no outlier.
#[test]
fn a_slow_step_is_explained() {
    assert_eq!(steps(&Choice::Loop).outliers, []);
    let place = Some("train".to_owned());
    let (cause, reason) = ("waiting", Some("[waiting]".to_owned()));
    let part = StepPart::Idle { cause, reason, place, garbage_collection: false };
    for choice in [Choice::Loop, Choice::Function(&|frame| is_function(frame, "train"))] {
        let found = steps_with(&choice, Some(6));
        let expected = Outlier {
            series: 0,
            number: 6,
            compared: vec![1, 2, 3, 4, 5, 7, 8],
            gpu: "0".into(),
            differences: vec![Difference { part: part.clone(), more_ns: 2 * LENGTH - 5, samples: 0 }],
        };
        assert_eq!(found.outliers, [expected]);
        let waiting: Vec<u64> = found.series[0].steps.iter().map(|step| step.waiting_ns).collect();
        assert_eq!((waiting[5], waiting.iter().sum()), (2 * LENGTH - 5, 2 * LENGTH - 5));
    }
}

/// A program whose launches are made by these functions, one after the other, each called by `main` at the same line; threads beside the
/// main one launch once.
fn events_of_calls(functions: &[&str], helpers: u32) -> Vec<Event> {
    let process = ProcessId(1);
    let exec = (Origin::Exec, ProcessId(0));
    let mut events = vec![
        Event::Process(Process { id: process, parent: exec.1, origin: exec.0, pid: 70, time: 1, comm: "app".into() }),
        Event::Session(Session { id: SessionId(1), process, cupti: 1, driver: 1 }),
    ];
    let python = |name: &str| NamedFrame {
        kind: FrameKind::Python,
        name: format!("{name} (infer.py:77)").into(),
        module: "/home/me/infer.py".into(),
    };
    for (number, name) in (0..).zip(["main"].iter().chain(functions)) {
        let names = vec![python(name)];
        // Those of Python belong to no process.
        events.push(Event::Symbol(Symbol { process: ProcessId(0), frame: Frame::Python(number), since: 0, names }));
        let frames = if number == 0 { vec![] } else { vec![Frame::Python(number), Frame::Python(0)] };
        let id = StackId(u64::from(number) + 1);
        events.push(Event::Stack(Stack { id, process, time: 1, frames, end: StackEnd::Whole }));
    }
    let mut correlation = 0;
    let mut launch = |tid, number: u64| {
        correlation += 1;
        let (session, stack, time) = (SessionId(1), StackId(number + 2), 1_000 + u64::from(correlation));
        Event::Launch(Launch { session, correlation, process, tid, time, stack, ..Launch::default() })
    };
    for _ in 0..STEPS {
        events.extend((0..functions.len() as u64).map(|number| launch(MAIN, number)));
    }
    events.extend((0..helpers).map(|helper| launch(HELPER + helper, 0)));
    events
}

fn steps_of_calls(functions: &[&str], helpers: u32) -> Steps {
    let (mut fold, mut sequence) = (Fold::new(), Sequence::default());
    let events = events_of_calls(functions, helpers);
    for event in &events {
        fold.push(event);
        if let Event::Launch(launch) = event {
            sequence.push(launch);
        }
    }
    find(&fold.finish(), sequence, &Choice::Loop, &mut || Ok(Box::new(events.clone().into_iter()))).expect("events")
}

/// Check that steps are placed where control goes around, if one line calls one function after the other: none of them does.
#[test]
fn steps_are_placed_at_the_loop() {
    let found = steps_of_calls(&["load_pictures", "classify", "read_answers"], 0);
    let [series] = &found.series[..] else { panic!("{found:?}") };
    assert_eq!((&*series.place, series.steps.len() as u64), ("main (infer.py:77)", STEPS));
    assert!(series.steps.iter().all(|step| step.work.launches == 3));
}

/// Check that a thread that launches in the loop's code, but never comes around, has no steps.
#[test]
fn a_thread_with_one_step_is_dropped() {
    let found = steps_of_calls(&["load_pictures", "classify", "read_answers"], 2);
    let tids: Vec<u32> = found.series.iter().map(|series| series.tid).collect();
    assert_eq!(tids, [MAIN]);
}
