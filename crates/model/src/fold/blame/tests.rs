//! Idle time with known causes.

use proptest::prelude::*;

use super::{Evidence, MAX_KEPT, MAX_LAUNCHING};
use crate::{
    event::{
        Activity, End, Event, KernelName, Launch, LaunchKind, PointId, ProcessId, Sample, SessionId, StackId, Start,
        Wait, Work,
    },
    fold::{Fold, TimeRange},
    idle::{Cause, Idle, Phase},
    profile::Profile,
};

const IMAGE: ProcessId = ProcessId(3);
const LAUNCHING: Cause = Cause::Launching;
const RUNNING: Cause = Cause::Running;
const UNKNOWN: Cause = Cause::Unknown;
const SLEEPING: Cause = Cause::Waiting(PointId(4));

/// A simulated program: events in any order.
#[derive(Default)]
struct Script {
    events: Vec<Event>,
    launches: u32,
}

impl Script {
    fn start(time: u64) -> Self {
        let start = Start {
            time,
            wall_clock: 0,
            version: String::new(),
            host: String::new(),
            command: Vec::new(),
            mode: crate::event::Mode::Merged,
            frequency: 999,
        };
        Self { events: vec![Event::Start(start)], launches: 0 }
    }

    /// Work of a device from `run.0` to `run.1`, launched by a thread at `time`.
    fn work(&mut self, device: u32, tid: u32, time: u64, run: (u64, u64)) -> &mut Self {
        self.launches += 1;
        let (session, correlation, stack) = (SessionId(0), self.launches, StackId(1000 + u64::from(tid)));
        let kind = LaunchKind::Kernel;
        if tid != 0 {
            let launch = Launch { session, correlation, kind, process: IMAGE, tid, cpu: 0, time, stack, rate: 0 };
            self.events.push(Event::Launch(launch));
        }
        let (start, end) = run;
        self.events.push(Event::Activity(Activity { correlation, device, start, end, ..Activity::default() }));
        self
    }

    /// The same for a kernel.
    fn kernel(&mut self, tid: u32, time: u64, run: (u64, u64)) -> &mut Self {
        self.work(0, tid, time, run);
        if let Some(Event::Activity(activity)) = self.events.last_mut() {
            activity.work = Work::Kernel { name: 1, grid: [1; 3], block: [1; 3], registers: 0, shared_memory: 0 };
        }
        self
    }

    fn sample(&mut self, tid: u32, time: u64, stack: u64, weight: u64) -> &mut Self {
        self.events.push(Event::Sample(Sample { process: IMAGE, tid, cpu: 0, time, stack: StackId(stack), weight }));
        self
    }

    fn wait(&mut self, tid: u32, (start, end): (u64, u64), stack: u64) -> &mut Self {
        let (stack, reason) = (StackId(stack), PointId(4));
        self.events.push(Event::Wait(Wait { process: IMAGE, tid, start, end, stack, reason }));
        self
    }

    fn end(&mut self, time: u64) -> Profile {
        self.events.push(Event::End(End { time, status: None }));
        let mut fold = Fold::new();
        self.events.iter().for_each(|event| fold.push(event));
        fold.finish()
    }
}

/// Check that time ranges which follow one another have together what the whole has, for each reason, and that one in a gap
/// knows the work that ended it.
///
/// ```text
///   time      100      200      300      400      500      600
///   GPU         ########                    ########
///   thread              [== sleeps ==]     L               L at 440, the work at 450
///   ranges  |      |       |       |          |        |
/// ```
#[test]
fn time_ranges_add_up() {
    let mut script = Script::start(100);
    script.work(0, 7, 110, (120, 200)).wait(7, (210, 340), 20).work(0, 7, 440, (450, 540));
    let whole = script.end(600);
    let bounds = [100, 150, 250, 300, 445, 520, 600];
    let ranges: Vec<TimeRange> = bounds.windows(2).map(|range| TimeRange { from: range[0], to: range[1] }).collect();
    let mut at_once = Fold::with_parts(ranges);
    script.events.iter().for_each(|event| at_once.push(event));
    let at_once = at_once.finish().devices.remove(&0).expect("a device");
    assert_eq!((at_once.busy_ns, &at_once.idle), (whole.devices[&0].busy_ns, &whole.devices[&0].idle));
    let mut sums: std::collections::BTreeMap<(Phase, Cause, Option<u64>), u64> = Default::default();
    let mut busy = 0;
    for (range, part) in bounds.windows(2).zip(&at_once.idle_of_parts) {
        let mut fold = Fold::within(TimeRange { from: range[0], to: range[1] });
        script.events.iter().for_each(|event| fold.push(event));
        let device = fold.finish().devices.remove(&0).expect("a device");
        assert_eq!(device.idle.ns.iter().sum::<u64>() + device.busy_ns, range[1] - range[0], "{range:?}");
        assert_eq!(&device.idle, part, "{range:?}");
        busy += device.busy_ns;
        for phase in Phase::ALL {
            for (_, cause, stack, ns) in parts(&device.idle, phase) {
                *sums.entry((phase, cause, stack)).or_default() += ns;
            }
        }
        if range[0] == 250 {
            assert_eq!(parts(&device.idle, Phase::Between), [(7, SLEEPING, Some(20), 50)]);
        }
    }
    let device = &whole.devices[&0];
    assert_eq!(busy, device.busy_ns);
    for phase in Phase::ALL {
        for (_, cause, stack, ns) in parts(&device.idle, phase) {
            assert_eq!(sums.remove(&(phase, cause, stack)), Some(ns), "{phase:?} {cause:?}");
        }
    }
    assert!(sums.is_empty(), "{sums:?}");
}

/// The parts of a phase: thread, cause, stack and nanoseconds.
fn parts(idle: &Idle, phase: Phase) -> Vec<(u32, Cause, Option<u64>, u64)> {
    let part = |(charge, weight): &(crate::idle::Charge, crate::idle::IdleWeight)| {
        (charge.tid, charge.cause, charge.stack.map(|stack| stack.0), weight.ns)
    };
    idle.parts_of(phase).map(part).collect()
}

/// What is charged must add up to the idle time of each phase, and busy and idle time to the whole.
#[track_caller]
fn adds_up(profile: &Profile) {
    let whole = profile.wall_ns();
    for device in profile.devices.values() {
        for phase in Phase::ALL {
            let sum: u64 = device.idle.parts_of(phase).map(|(_, weight)| weight.ns).sum();
            assert_eq!(sum, device.idle.of(phase), "{phase:?}");
        }
        assert_eq!(device.idle.ns.iter().sum::<u64>() + device.busy_ns, whole);
    }
}

/// Check a script with every cause, exact to the nanosecond: before the first work, a sleep, computation, a slow launch,
/// work without a launch, and after the last work.
///
/// ```text
///   time      100      200      300      400      500      600      700      800
///   GPU       .    #####    .    .###   .     ##  .    #   .   .    .     #  .
///   thread 7    ^  L    [=== ]  ^ L   ^     ^ L              L            ^
/// ```
#[test]
fn each_cause_is_charged_exactly() {
    let mut script = Script::start(100);
    script.wait(7, (213, 290), 50);
    script.sample(7, 110, 41, 10).work(0, 7, 140, (150, 200));
    script.sample(7, 300, 42, 10).work(0, 7, 310, (317, 350));
    script.sample(7, 360, 43, 10).sample(7, 420, 44, 30).work(0, 7, 430, (450, 460));
    script.work(0, 0, 0, (520, 530));
    script.work(0, 7, 600, (701, 710)).sample(7, 750, 45, 10);
    let profile = script.end(800);
    adds_up(&profile);
    let idle = &profile.devices[&0].idle;
    assert_eq!(idle.ns, [50, 117 + 100 + 60 + 171, 90]);
    let own = |stack, ns| (7, RUNNING, Some(stack), ns);
    assert_eq!(parts(idle, Phase::Before), [(7, LAUNCHING, Some(1007), 10), own(41, 10), (7, UNKNOWN, None, 30)]);
    // The pool of thread 7: 110 + 80 + 70 of its own time, 77 of it asleep; the rest is divided by 10, 10 and 30.
    let expected = [
        (0, UNKNOWN, None, 60),
        (7, LAUNCHING, Some(1007), 7 + 20 + 101),
        (7, SLEEPING, Some(50), 77),
        own(42, 36),
        own(43, 37),
        own(44, 110),
    ];
    assert_eq!(parts(idle, Phase::Between), expected);
    assert_eq!(parts(idle, Phase::After), [own(45, 90)]);
    let exact: u64 = idle.parts.iter().filter(|(charge, _)| charge.cause.is_exact()).map(|(_, w)| w.ns).sum();
    assert_eq!(exact, 10 + 128 + 77);
}

/// Check that a sample stands for no more than its weight where waits were not recorded: the thread may have been off the
/// CPU. If there are more samples than time, they are scaled down.
#[test]
fn without_waits_samples_stand_for_their_weight() {
    let mut script = Script::start(10);
    script.work(0, 7, 10, (10, 100)).sample(7, 150, 41, 10).sample(7, 160, 42, 20).work(0, 7, 200, (200, 300));
    let idle = script.end(300).devices[&0].idle.clone();
    let expected = [(7, RUNNING, Some(41), 10), (7, RUNNING, Some(42), 20), (7, UNKNOWN, None, 70)];
    assert_eq!(parts(&idle, Phase::Between), expected);
    script = Script::start(10);
    script.work(0, 7, 10, (10, 100)).sample(7, 150, 41, 300).sample(7, 160, 42, 100).work(0, 7, 200, (200, 300));
    let idle = script.end(300).devices[&0].idle.clone();
    assert_eq!(parts(&idle, Phase::Between), [(7, RUNNING, Some(41), 75), (7, RUNNING, Some(42), 25)]);
}

/// Check that the thread which ends a gap is charged, on its own device only, whatever other threads do; and that a gap
/// whose work was queued before it began is charged to the launch.
#[test]
fn only_the_thread_that_ends_a_gap_is_charged() {
    let mut script = Script::start(10);
    script.work(0, 7, 10, (10, 100)).work(1, 8, 10, (10, 300));
    script.sample(8, 120, 51, 500).sample(7, 130, 41, 500).sample(9, 140, 61, 500);
    script.work(0, 7, 190, (200, 300)).work(0, 8, 90, (310, 400)).work(1, 8, 350, (360, 400));
    script.sample(8, 340, 52, 500).sample(7, 345, 42, 500);
    let profile = script.end(400);
    adds_up(&profile);
    let of = |device: u32| parts(&profile.devices[&device].idle, Phase::Between);
    assert_eq!(of(0), [(7, LAUNCHING, Some(1007), 10), (7, RUNNING, Some(41), 90), (8, LAUNCHING, Some(1008), 10)]);
    assert_eq!(of(1), [(8, LAUNCHING, Some(1008), 10), (8, RUNNING, Some(52), 50)]);
}

/// Check that a copy of a thread that prefetches neither ends nor splits a gap of kernels, and that it is charged if the
/// next kernel waited for it.
///
/// ```text
///   kernels   ####          ####        of thread 7, which computes
///   copies         ##                   of thread 8
/// ```
#[test]
fn background_copies_claim_no_gap() {
    let script = |launched| {
        let mut script = Script::start(10);
        script.kernel(7, 10, (10, 100)).sample(7, 120, 41, 500).sample(8, 130, 51, 500);
        script.work(0, 8, 140, (150, 160)).sample(7, 170, 42, 500).kernel(7, launched, (200, 300));
        let profile = script.end(300);
        adds_up(&profile);
        profile.devices[&0].idle.clone()
    };
    let idle = script(190);
    let expected = [(7, LAUNCHING, Some(1007), 10), (7, RUNNING, Some(41), 40), (7, RUNNING, Some(42), 40)];
    assert_eq!(parts(&idle, Phase::Between), expected);
    let idle = script(90);
    let expected = [(7, LAUNCHING, Some(1007), 40), (8, LAUNCHING, Some(1008), 10), (8, RUNNING, Some(51), 40)];
    assert_eq!(parts(&idle, Phase::Between), expected, "the kernel was queued, and waited for the copy");
}

/// Check that a gap between kernels is not short because copies split it.
#[test]
fn copies_do_not_make_gaps_short() {
    let gaps = |copy: bool| {
        let mut script = Script::start(10);
        script.kernel(7, 10, (10, 1_000));
        if copy {
            script.work(0, 8, 10, (31_000, 31_010));
        }
        script.kernel(7, 60_000, (60_000, 61_000)).kernel(7, 60_000, (61_100, 62_000));
        script.end(62_000).devices[&0].idle.short_gaps
    };
    assert_eq!((gaps(false), gaps(true)), ((1, 100), (1, 100)));
}

/// Check that a gap without any evidence about its thread is charged to what other threads of the process ran meanwhile,
/// by their samples, and that own evidence comes first.
#[test]
fn other_threads_explain_what_nothing_else_does() {
    const MS: u64 = 1_000_000;
    let idle = |own: u64| {
        let mut script = Script::start(10);
        script.work(0, 7, 10, (10, MS));
        for ms in 1..21 {
            script.sample(9, ms * MS + 5, 61, MS / 2);
        }
        script.sample(7, 10 * MS, 41, own).work(0, 7, 21 * MS, (21 * MS, 22 * MS));
        let profile = script.end(22 * MS);
        adds_up(&profile);
        parts(&profile.devices[&0].idle, Phase::Between)
    };
    let meanwhile = |ns| (9, Cause::Meanwhile, Some(61), ns);
    assert_eq!(idle(4 * MS), [(7, RUNNING, Some(41), 4 * MS), (7, UNKNOWN, None, 6 * MS), meanwhile(10 * MS)]);
    assert_eq!(idle(12 * MS), [(7, RUNNING, Some(41), 12 * MS), (7, UNKNOWN, None, 8 * MS)]);
}

/// Check that samples do not stand for the time before a thread's waits were recorded.
#[test]
fn threads_are_not_known_before_their_first_launch() {
    let mut script = Script::start(10);
    script.wait(7, (20, 30), 50).work(0, 7, 10, (10, 100)).work(0, 8, 300, (300, 400));
    script.sample(8, 450, 42, 10).work(0, 8, 500, (500, 600));
    let profile = script.end(600);
    adds_up(&profile);
    let expected = [(8, RUNNING, Some(42), 100), (8, UNKNOWN, None, 200)];
    assert_eq!(parts(&profile.devices[&0].idle, Phase::Between), expected);
}

/// Check that the longest launch is known, and whether its kernel ran for the first time.
#[test]
fn a_slow_launch_is_distinguished() {
    let mut script = Script::start(10);
    script.kernel(7, 10, (10, 100)).kernel(7, 110, (120, 200)).kernel(7, 210, (900, 910)).kernel(7, 920, (925, 930));
    if let Some(Event::Activity(Activity { work: Work::Kernel { name, .. }, .. })) = script.events.get_mut(6) {
        *name = 2;
    }
    let names =
        [1, 2].map(|id| Event::KernelName(KernelName { session: SessionId(0), id, name: format!("kernel{id}") }));
    script.events.splice(1..1, names);
    let idle = script.end(1_000).devices[&0].idle.clone();
    let launching = idle.parts_of(Phase::Between).find(|(charge, _)| charge.cause == LAUNCHING);
    let (_, weight) = launching.expect("it launches");
    assert_eq!((weight.ns, weight.gaps, weight.longest_ns, weight.first_use), (705, 3, 690, true));
}

/// Check that a wait across several gaps is charged to each of them for the part within it, and to none while the device
/// is busy.
#[test]
fn waits_are_charged_within_gaps_only() {
    let mut script = Script::start(10);
    script.wait(7, (50, 350), 50).work(0, 7, 10, (10, 100));
    script.work(0, 8, 150, (200, 300)).work(0, 7, 400, (400, 500));
    let profile = script.end(500);
    adds_up(&profile);
    let expected =
        [(7, SLEEPING, Some(50), 50), (7, UNKNOWN, None, 50), (8, LAUNCHING, Some(1008), 50), (8, UNKNOWN, None, 50)];
    assert_eq!(parts(&profile.devices[&0].idle, Phase::Between), expected);
}

/// Check that memory is bounded: evidence that is dropped was used, also where the gaps were closed in between.
#[test]
fn dropped_evidence_was_used() {
    let rounds = MAX_KEPT as u64 + MAX_KEPT as u64 / 4;
    let mut script = Script::start(10);
    script.sample(7, 12, 40, 1).work(0, 7, 20, (20, 30));
    for round in 1..=rounds {
        let at = 100 * round;
        script.sample(7, at - 30, 41, 80).work(0, 7, at, (at, at + 30));
    }
    let profile = script.end(100 * rounds + 30);
    adds_up(&profile);
    let idle = &profile.devices[&0].idle;
    assert_eq!(parts(idle, Phase::Before), [(7, RUNNING, Some(40), 1), (7, UNKNOWN, None, 9)]);
    assert_eq!(parts(idle, Phase::Between), [(7, RUNNING, Some(41), 70 * rounds)]);
}

proptest! {
    /// Check the sum for any events: threads, devices, orders of arrival, launches after the start of their work.
    #[test]
    fn blame_adds_up_to_the_idle_time(
        work in proptest::collection::vec((0_u32..2, 0_u32..4, 0_u64..1_100, 10_u64..1_000, 1_u64..60), 1..60),
        samples in proptest::collection::vec((1_u32..4, 0_u64..1_100, 0_u64..5, 0_u64..50), 0..60),
        waits in proptest::collection::vec((1_u32..4, 0_u64..1_100, 0_u64..90, 5_u64..9), 0..20),
    ) {
        let mut script = Script::start(1);
        for (tid, start, length, stack) in waits {
            script.wait(tid, (start, start + length), stack);
        }
        for (device, tid, time, start, length) in work {
            script.work(device, tid, time, (start, start + length));
        }
        for (tid, time, stack, weight) in samples {
            script.sample(tid, time, stack, weight);
        }
        adds_up(&script.end(1_100));
    }
}

/// Check that a process which says that ever new threads launch leaves room for others.
#[test]
fn threads_that_launch_are_bounded() {
    let mut evidence = Evidence::default();
    let launch = |process, tid| Launch { process: ProcessId(process), tid, ..Launch::default() };
    (0..100_000).for_each(|tid| evidence.launch(&launch(1, tid)));
    evidence.launch(&launch(2, 7));
    assert_eq!(evidence.launched.times.len() as u64, MAX_LAUNCHING.0 + 1);
}
