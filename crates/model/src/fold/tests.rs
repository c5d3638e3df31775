//! Tests of the profiles of known events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    event::{
        Activity, Captured, Counter, CounterId, CounterPoint, Device, Direction, End, Exit, Failed, Frame, Hits,
        KernelName, Launch, Loss, Mode, NodeCopied, NodeCreated, Note, Origin, PointId, Process, Returned, Sample,
        Session, StackEnd, Start, Work,
    },
    profile::{CpuWeight, GpuKey, GpuWeight, LateCopies, What},
    recording::{Reader, Writer},
};

const IMAGE: ProcessId = ProcessId(3);

fn launch(session: u32, correlation: u32, time: u64, stack: u64) -> Event {
    Event::Launch(Launch {
        session: SessionId(session),
        correlation,
        kind: LaunchKind::Kernel,
        process: IMAGE,
        tid: 9,
        cpu: 0,
        time,
        stack: StackId(stack),
        rate: 0,
    })
}

fn activity(session: u32, correlation: u32, (start, end): (u64, u64), work: Work) -> Event {
    Event::Activity(Activity {
        session: SessionId(session),
        correlation,
        device: 0,
        context: 1,
        stream: 7,
        start,
        end,
        graph: 0,
        graph_node: 0,
        work,
    })
}

fn kernel(name: u32) -> Work {
    Work::Kernel { name, grid: [1; 3], block: [32, 1, 1], registers: 8, shared_memory: 0 }
}

fn copy(bytes: u64) -> Work {
    Work::Copy { direction: Direction::HtoD, bytes, source: 1, destination: 3, peer: None }
}

fn name(session: u32, id: u32, name: &str) -> Event {
    Event::KernelName(KernelName { session: SessionId(session), id, name: name.into() })
}

fn session(id: u32) -> Event {
    Event::Session(Session { id: SessionId(id), process: IMAGE, cupti: 26, driver: 13000 })
}

fn stack(id: u64, end: StackEnd) -> Event {
    Event::Stack(crate::event::Stack { id: StackId(id), process: IMAGE, time: 1, frames: vec![Frame::User(id)], end })
}

fn totals(session: u32, kernels: u64, ended: bool) -> Totals {
    Totals {
        session: SessionId(session),
        launches: kernels,
        kernels,
        kernel_ns: 100 * kernels,
        copies: 1,
        memsets: 0,
        syncs: 0,
        dropped_by_cupti: 2,
        dropped_queue_full: 3,
        invalid: 4,
        nameless: 5,
        buffers_refused: 6,
        dropped_launches: 7,
        ended,
    }
}

fn fold(events: &[Event]) -> Profile {
    let mut fold = Fold::new();
    for event in events {
        fold.push(event);
    }
    fold.finish()
}

fn key(stack: Option<u64>, what: What) -> GpuKey {
    GpuKey { process: IMAGE, stack: stack.map(StackId), capture: None, what, device: 0, stream: 7, range: 0 }
}

/// Check that GPU time appears under the launching stack, that a kernel name used by two sessions is one name, that
/// copies are grouped by size class, and that time without a launch counts without a stack.
#[test]
fn gpu_time_appears_under_the_launching_stack() {
    let profile = fold(&[
        session(0),
        session(1),
        name(0, 1, "matmul"),
        name(1, 5, "softmax"),
        name(1, 6, "matmul"),
        launch(0, 1, 10, 100),
        launch(1, 1, 11, 100),
        activity(0, 1, (20, 30), kernel(1)),
        activity(1, 1, (25, 50), kernel(6)),
        activity(1, 2, (60, 61), kernel(5)),
        launch(1, 2, 40, 101),
        launch(0, 2, 41, 101),
        activity(0, 2, (70, 74), copy(5000)),
        activity(0, 2, (74, 80), copy(4096)),
        activity(0, 3, (90, 95), kernel(77)),
        launch(0, 4, 42, 101),
    ]);
    let texts: Vec<&str> = profile.kernel_names.iter().map(|k| &*k.mangled).collect();
    assert_eq!(texts, ["matmul", "softmax", NAME_LOST]);
    let weight = |count, ns, max_ns, bytes| GpuWeight { count, ns, max_ns, bytes, microjoules: 0 };
    let expected = [
        (key(Some(100), What::Kernel(0)), weight(2, 35, 25, 0)),
        (key(Some(101), What::Kernel(1)), weight(1, 1, 1, 0)),
        (key(Some(101), What::Copy(Direction::HtoD, 4096)), weight(2, 10, 6, 9096)),
        (key(None, What::Kernel(2)), weight(1, 5, 5, 0)),
    ];
    assert_eq!(profile.gpu, expected.into_iter().collect());
    let pending = [((IMAGE, StackId(101), LaunchKind::Kernel), 1)];
    assert_eq!(profile.pending, pending.into_iter().collect());
    // 20-50, 60-61, 70-80, 90-95.
    assert_eq!(profile.devices[&0].busy_ns, 46);
    assert_eq!(profile.devices[&0].streams.len(), 2);
    let ledger = &profile.ledger;
    assert_eq!((ledger.launches, ledger.launches_matched, ledger.launches_pending), (5, 4, 1));
    assert_eq!((ledger.kernels, ledger.copies, ledger.kernel_ns), (4, 2, 41));
    assert_eq!((ledger.activities_matched, ledger.activities_unmatched), (5, 1));
    assert_eq!((ledger.stacks_missing, ledger.sessions_cut_off), (2, 2));
    assert_eq!(profile.last_time, 95);
}

/// Check that each loss is counted: times, stacks, totals that replace earlier ones, causes that add up, sessions that
/// ended early.
#[test]
fn ledger_counts_every_loss() {
    let profile = fold(&[
        session(0),
        session(1),
        activity(0, 1, (0, 0), kernel(1)),
        activity(0, 2, (20, 0), kernel(1)),
        activity(0, 3, (20, 10), Work::Memset { bytes: 7, value: 0, memory: 3 }),
        stack(1, StackEnd::Truncated),
        stack(1, StackEnd::Truncated),
        stack(2, StackEnd::Broken),
        Event::Sample(Sample { process: IMAGE, tid: 1, cpu: 0, time: 5, stack: StackId(1), weight: 1000 }),
        Event::Sample(Sample { process: IMAGE, tid: 2, cpu: 1, time: 6, stack: StackId(1), weight: 1000 }),
        Event::Sample(Sample { process: IMAGE, tid: 2, cpu: 1, time: 6, stack: StackId(8), weight: 1000 }),
        launch(0, 9, 5, 2),
        Event::Failed(Failed { session: SessionId(0), correlation: 9, code: 1 }),
        Event::Captured(Captured { session: SessionId(0), correlation: 10 }),
        launch(0, 10, 5, 2),
        Event::Totals(totals(0, 5, false)),
        Event::Totals(totals(0, 7, true)),
        Event::Totals(totals(1, 10, false)),
        Event::Loss(Loss { cause: LossCause::RingStacks, count: 2 }),
        Event::Loss(Loss { cause: LossCause::RingStacks, count: 3 }),
        Event::Note(Note { text: "read me".into() }),
        Event::Note(Note { text: "read me".into() }),
        Event::Sync(Sync { session: SessionId(0), correlation: 8, kind: 1, context: 1, stream: 7, start: 10, end: 15 }),
    ]);
    let ledger = &profile.ledger;
    assert_eq!((ledger.zero_time, ledger.unfinished, ledger.kernel_ns), (2, 1, 0));
    assert_eq!(ledger.cpu_stack_ends, BTreeMap::from([(StackEnd::Truncated, 2)]));
    assert_eq!((ledger.gpu_stack_ends.len(), ledger.stacks_missing), (0, 1));
    let launches = (ledger.launches, ledger.launches_failed, ledger.launches_captured, ledger.launches_pending);
    assert_eq!(launches, (2, 1, 1, 0));
    assert_eq!((ledger.activities_delivered, ledger.kernel_ns_delivered), (19, 1700));
    let lost = &ledger.lost;
    assert_eq!((lost.cupti_dropped, lost.queue_full, lost.invalid_records), (4, 6, 8));
    assert_eq!((lost.names, lost.buffers_refused, lost.join_evicted), (10, 12, 0));
    assert_eq!(lost.queue_full_launches, 14);
    assert_eq!(lost.causes.len(), LossCause::ALL.len());
    assert_eq!((lost.causes[&LossCause::RingStacks], lost.total()), (5, 59));
    assert_eq!(ledger.sessions_cut_off, 1);
    assert_eq!((ledger.samples, profile.cpu[&(IMAGE, StackId(1))]), (3, CpuWeight { count: 2, ns: 2000 }));
    assert_eq!((ledger.syncs, profile.waits), (1, CpuWeight { count: 1, ns: 5 }));
    assert_eq!(profile.notes, ["read me"]);
    assert_eq!(profile.devices[&0].busy_ns, 0);
}

/// Check that the work of a graph is summed under the stack that created its node, that both stacks are kept, and that
/// nodes whose creation was not seen are counted.
#[test]
fn graph_work_has_the_stacks_that_created_it() {
    let session = SessionId(0);
    let node = |graph: u64| graph << 32;
    let ran = |correlation, graph| match activity(0, correlation, (100, 110), kernel(1)) {
        Event::Activity(activity) => Event::Activity(Activity { graph: 2, graph_node: node(graph), ..activity }),
        other => other,
    };
    let events = [
        launch(0, 1, 5, 71),
        Event::NodeCreated(NodeCreated { session, node: node(1), mark: 1, own: false }),
        Event::Captured(Captured { session, correlation: 1 }),
        Event::NodeCopied(NodeCopied { session, node: node(2), original: node(1), time: 6 }),
        Event::NodeCopied(NodeCopied { session, node: node(3), original: node(9), time: 6 }),
        launch(0, 2, 10, 72),
        ran(2, 2),
        ran(2, 3),
        launch(0, 3, 20, 73),
        ran(3, 2),
    ];
    let mut profile = fold(&events);
    let of = |profile: &Profile, stack, capture: Option<u64>| {
        let key = GpuKey { capture: capture.map(StackId), ..key(Some(stack), What::Kernel(0)) };
        profile.gpu.get(&key).map(|weight| (weight.count, weight.ns))
    };
    assert_eq!(profile.gpu.len(), 3, "{:?}", profile.gpu);
    assert_eq!((of(&profile, 72, Some(71)), of(&profile, 73, Some(71))), (Some((1, 10)), Some((1, 10))));
    assert_eq!(of(&profile, 72, None), Some((1, 10)));
    let ledger = &profile.ledger;
    assert_eq!((ledger.graph_operations, ledger.graph_operations_unknown, ledger.graph_nodes_unknown), (3, 1, 1));
    assert_eq!((ledger.launches_captured, ledger.activities_matched), (1, 3));
    profile.show_graphs_by_launch();
    assert_eq!((of(&profile, 72, None), of(&profile, 73, None)), (Some((2, 20)), Some((1, 10))));
    assert_eq!(profile.gpu.len(), 2);
}

/// Check that an exec ends the previous image, also where its exit was not seen.
///
/// ```text
///   pid 50   1 (bash) ----------|   2 (python) -----------|  3 (python, exec'ed again) ----
///                          exit 20  30               lost    40
/// ```
#[test]
fn exec_ends_the_previous_image() {
    let image = |id, parent, origin, time, comm: &str| {
        let (id, parent, comm) = (ProcessId(id), ProcessId(parent), comm.into());
        Event::Process(Process { id, parent, origin, pid: 50, time, comm })
    };
    let profile = fold(&[
        image(1, 0, Origin::Found, 10, "bash"),
        Event::Exit(Exit { process: ProcessId(1), time: 20 }),
        image(2, 1, Origin::Exec, 30, "python"),
        image(3, 2, Origin::Exec, 40, "python"),
    ]);
    let images: Vec<_> = profile.processes.values().map(|p| (p.parent.map(|p| p.0), p.start, p.end)).collect();
    assert_eq!(images, [(None, 10, 20), (Some(1), 30, 40), (Some(2), 40, 0)]);
    assert_eq!(profile.processes[&ProcessId(3)].origin, Origin::Exec);
}

/// Check the start, the end and the GPUs of a recording.
#[test]
fn profile_has_start_end_and_gpus() {
    let start = Start {
        time: 100,
        wall_clock: 5,
        version: "0.1".into(),
        host: "box".into(),
        command: vec!["a".into()],
        mode: Mode::GpuOnly,
        frequency: 99,
    };
    let device = |session, name: &str| {
        Event::Device(Device { session: SessionId(session), index: 1, name: name.into(), ..Device::default() })
    };
    let profile = fold(&[
        Event::Start(start.clone()),
        device(0, "NVIDIA H200"),
        device(1, "NVIDIA H200"),
        Event::End(End { time: 400, status: Some(256) }),
    ]);
    assert_eq!((profile.wall_ns(), profile.start), (300, Some(start)));
    assert_eq!(profile.end, Some(End { time: 400, status: Some(256) }));
    assert_eq!(profile.devices[&1].name, "NVIDIA H200");
}

/// Check that size classes are powers of two.
#[test]
fn size_classes_are_powers_of_two() {
    let classes = [0, 1, 2, 3, 4, 4095, 4096, u64::MAX].map(size_class);
    assert_eq!(classes, [0, 1, 2, 2, 4, 2048, 4096, 1 << 63]);
}

proptest! {
    /// Check with launches, fates and activities in any order and with any of them lost: the ledger balances after each
    /// event, no GPU time appears or disappears, every activity is reported once, and the recording folds to the same
    /// profile.
    #[test]
    fn ledger_balances_for_any_events(
        raw in proptest::collection::vec((0u32..8, 0u32..3, 0u32..20, 0u64..1000, 0u64..50), 0..200),
        small in any::<bool>(),
    ) {
        let events: Vec<Event> = raw
            .iter()
            .map(|&(what, session, correlation, time, length)| match what {
                0 | 1 => launch(session, correlation, time, u64::from(correlation % 5)),
                2 => Event::Failed(Failed { session: SessionId(session), correlation, code: 1 }),
                3 => Event::Captured(Captured { session: SessionId(session), correlation }),
                4 | 5 => activity(session, correlation, (time, time + length), kernel(correlation % 3)),
                _ => activity(session, correlation, (time, time + length), copy(length)),
            })
            .collect();
        let limits = Limits { in_flight: 3, matched: 2, matched_graphs: 2, waiting: 3, fates: 1, generations: 2 };
        let new = || if small { Fold::with_limits(limits) } else { Fold::new() };

        let (mut direct, mut reported) = (new(), 0);
        let mut writer = Writer::new(Vec::new()).unwrap();
        for event in &events {
            direct.push_with(event, |_| reported += 1);
            writer.push(event).unwrap();
            let l = direct.ledger();
            let settled = l.launches_matched + l.launches_failed + l.launches_captured + l.launches_empty;
            prop_assert_eq!(l.launches, settled + l.launches_pending);
            let activities = l.kernels + l.copies + l.memsets;
            prop_assert_eq!(activities, l.activities_matched + l.activities_unmatched);
        }
        let profile = direct.finish_with(|_| reported += 1);
        let ledger = &profile.ledger;
        prop_assert_eq!(reported, ledger.kernels + ledger.copies);
        let kernels = profile.gpu.iter().filter(|(key, _)| matches!(key.what, What::Kernel(_)));
        let (count, ns) = kernels.fold((0, 0), |(count, ns), (_, w)| (count + w.count, ns + w.ns));
        prop_assert_eq!((count, ns), (ledger.kernels, ledger.kernel_ns));
        prop_assert_eq!(profile.pending.values().sum::<u64>(), ledger.launches_pending);
        let without_stack: u64 = profile.gpu.iter().filter(|(k, _)| k.stack.is_none()).map(|(_, w)| w.count).sum();
        prop_assert_eq!(without_stack, ledger.activities_unmatched);

        let mut read = new();
        Reader::new(&writer.finish().unwrap()[..]).unwrap().for_each(|event| read.push(&event));
        let read = read.finish();
        prop_assert_eq!(&read.gpu, &profile.gpu);
        prop_assert_eq!(&read.pending, &profile.pending);
        prop_assert_eq!(&read.devices, &profile.devices);
        prop_assert_eq!(&read.ledger, &profile.ledger);
    }
}

/// Check that hits of a counted event are summed by place and stack over any number of records, and that events do not
/// mix.
#[test]
fn counted_events_are_summed_by_place_and_stack() {
    let hits = |point: u32, stack: u64, count, weight, outside| {
        Event::Hits(Hits { point: PointId(point), process: IMAGE, stack: StackId(stack), count, weight, outside })
    };
    let point = |id: u32, counter: u32| {
        Event::CounterPoint(CounterPoint { id: PointId(id), counter: CounterId(counter), ..CounterPoint::default() })
    };
    let counter =
        |id: u32, name: &str| Event::Counter(Counter { id: CounterId(id), name: name.into(), ..Counter::default() });
    let mut fold = Fold::new();
    for event in [
        counter(0, "malloc"),
        counter(1, "free"),
        point(0, 0),
        point(1, 0),
        point(2, 1),
        stack(77, StackEnd::Whole),
        stack(78, StackEnd::NoRule),
        hits(0, 77, 3, 300, 1),
        hits(2, 77, 5, 0, 0),
        hits(0, 77, 1, 50, 0),
        hits(1, 78, 2, 2, 0),
        hits(1, 79, u64::MAX, u64::MAX, 0),
        hits(1, 79, 1, 1, 0),
    ] {
        fold.push(&event);
    }
    let profile = fold.finish();
    let counters = &profile.counters;
    let mut malloc: Vec<_> =
        counters.of(CounterId(0)).map(|(p, _, s, w)| (p.id.0, s.0, w.count, w.weight, w.outside)).collect();
    malloc.sort_unstable();
    assert_eq!(malloc, [(0, 77, 4, 350, 1), (1, 78, 2, 2, 0), (1, 79, u64::MAX, u64::MAX, 0)]);
    assert_eq!(counters.of(CounterId(1)).count(), 1);
    assert_eq!(counters.named("free").map(|counter| counter.id), Some(CounterId(1)));
    assert_eq!(profile.ledger.hits, u64::MAX);
    assert_eq!(profile.ledger.stacks_missing, 1);
    assert_eq!(profile.ledger.hit_stack_ends, BTreeMap::from([(StackEnd::Whole, 9), (StackEnd::NoRule, 2)]));
}

/// Check that sums beyond the limit are still counted together, and that another process keeps its own.
#[test]
fn sums_beyond_the_limit_are_counted_together() {
    let mut fold = Fold::new();
    let other = ProcessId(4);
    fold.push(&session(0));
    fold.push(&Event::Session(Session { id: SessionId(1), process: other, cupti: 26, driver: 13000 }));
    for stream in 0..230_000 {
        if let Event::Activity(activity) = activity(0, stream, (1_000, 1_002), kernel(0)) {
            fold.push(&Event::Activity(Activity { stream, ..activity }));
        }
    }
    fold.push(&activity(1, 1, (2_000, 2_005), copy(8)));
    let profile = fold.finish();
    assert_eq!(profile.gpu.len(), 225_000 + 1 + 1);
    assert_eq!(profile.ledger.lost.causes[&LossCause::GpuSums], 5_000);
    let ns = |process| profile.gpu.iter().filter(|(key, _)| key.process == process).map(|(_, w)| w.ns).sum::<u64>();
    assert_eq!((ns(IMAGE), ns(other)), (460_000, 5));
}

/// Check that the work that launches stand for, the work of graphs and copies from memory that is not pinned share the limit of all
/// sums, whatever rates a process claims.
#[test]
fn all_sums_share_one_limit() {
    let mut fold = Fold::new();
    fold.push(&session(0));
    for (correlation, kind) in [(1, LaunchKind::Kernel), (2, LaunchKind::Graph)] {
        if let Event::Launch(launch) = launch(0, correlation, 500, 9) {
            fold.push(&Event::Launch(Launch { kind, rate: 15, ..launch }));
        }
    }
    for stream in 0..300_000 {
        if let Event::Activity(activity) = activity(0, 1 + stream % 2, (1_000, 1_002), kernel(0)) {
            fold.push(&Event::Activity(Activity { stream, ..activity }));
        }
    }
    let sums = |fold: &Fold| [&fold.gpu.weights, &fold.gpu.stands_for, &fold.gpu.graphs].map(FxHashMap::len);
    assert!(sums(&fold).iter().sum::<usize>() < 225_000 + 10, "{:?}", sums(&fold));
    let profile = fold.finish();
    assert_eq!(profile.gpu.values().map(|weight| weight.count).sum::<u64>(), 300_000);
    assert!(profile.ledger.lost.causes[&LossCause::GpuSums] > 200_000);
}

/// Check that a launch after the end counts if its work was reported and is omitted otherwise; one before the end is
/// pending.
#[test]
fn launches_after_the_end_need_reported_work() {
    let mut fold = Fold::new();
    for (correlation, time) in [(1, 50), (2, 60), (3, 150), (4, 160)] {
        fold.push(&launch(0, correlation, time, 9));
    }
    for correlation in [1, 3] {
        fold.push(&activity(0, correlation, (200, 210), kernel(0)));
    }
    fold.push(&Event::End(End { time: 100, status: None }));
    let ledger = fold.finish().ledger;
    assert_eq!((ledger.launches, ledger.launches_matched, ledger.launches_pending), (3, 2, 1));
}

/// Check that copies whose call returns after them are known, and that others are launches, in any order of the events.
#[test]
fn copies_that_block_are_waits() {
    let copying = |correlation, time| {
        let Event::Launch(launch) = launch(0, correlation, time, 100) else { panic!("a launch") };
        Event::Launch(Launch { kind: LaunchKind::Copy, ..launch })
    };
    let returned = |correlation, took| Event::Returned(Returned { session: SessionId(0), correlation, took });
    let profile = fold(&[
        session(0),
        // It blocks: the wait lasts until its copy ends.
        copying(1, 10_000),
        returned(1, 7_000_000),
        activity(0, 1, (20_000, 6_010_000), copy(1 << 20)),
        // It returns before its copy.
        copying(2, 8_000_000),
        activity(0, 2, (8_100_000, 8_200_000), copy(1 << 20)),
        returned(2, 6_000),
        // Its copy is over, but it took no longer than a launch.
        activity(0, 3, (9_000_100, 9_000_200), copy(16)),
        copying(3, 9_000_000),
        returned(3, 1_000),
        launch(0, 4, 9_500_000, 100),
        returned(4, 500),
        activity(0, 4, (9_600_000, 9_700_000), kernel(1)),
    ]);
    let late =
        LateCopies { waited: CpuWeight { count: 1, ns: 6_000_000 }, calls: CpuWeight { count: 1, ns: 7_000_000 } };
    assert_eq!(profile.late_copies.into_iter().collect::<Vec<_>>(), [((IMAGE, 9, StackId(100)), late)]);
    assert_eq!(profile.waits, CpuWeight::default());
    assert_eq!(profile.launching, CpuWeight { count: 3, ns: 7_500 });
}
