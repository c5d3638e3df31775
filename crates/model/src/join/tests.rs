//! Tests of the join against a naive model and against known truth.

use proptest::prelude::*;

use super::*;
use crate::event::{ProcessId, StackId, Work};

fn launch(session: u32, correlation: u32, kind: LaunchKind, time: u64, stack: u64) -> Launch {
    let (session, process, stack) = (SessionId(session), ProcessId(1), StackId(stack));
    Launch { session, correlation, kind, process, tid: 1, cpu: 0, time, stack, rate: 0 }
}

/// `mark` identifies the activity.
fn activity(session: u32, correlation: u32, start: u64, mark: u32) -> Activity {
    Activity {
        session: SessionId(session),
        correlation,
        device: 0,
        context: 1,
        stream: 7,
        start,
        end: start + 1,
        graph: 0,
        graph_node: 0,
        work: Work::Memset { bytes: 0, value: mark, memory: 0 },
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Launch(Launch),
    Activity(Activity),
    Fate(SessionId, u32, Fate),
}

/// An outcome by value; launches are identified by their stack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Joined(StackId, Activity),
    Unmatched(Activity),
    Pending(StackId),
}

impl From<Outcome<'_>> for Seen {
    fn from(outcome: Outcome<'_>) -> Self {
        match outcome {
            Outcome::Joined(launch, activity) => Self::Joined(launch.stack, *activity),
            Outcome::Unmatched(activity) => Self::Unmatched(*activity),
            Outcome::Pending(launch) => Self::Pending(launch.stack),
        }
    }
}

fn push(join: &mut Join, step: &Step, seen: &mut Vec<Seen>) {
    match step {
        Step::Launch(launch) => join.push_launch(launch, |o| seen.push(o.into())),
        Step::Activity(activity) => join.push_activity(activity, |o| seen.push(o.into())),
        Step::Fate(session, correlation, fate) => join.push_fate(*session, *correlation, *fate),
    }
}

fn run(join: &mut Join, steps: &[Step]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for step in steps {
        push(join, step, &mut seen);
    }
    join.finish(|o| seen.push(o.into()));
    seen
}

/// The rules of the join, literally, over plain vectors and without limits. Also counts the fates of launches.
fn naive(steps: &[Step]) -> (Vec<Seen>, Vec<Fate>) {
    let (mut seen, mut met) = (Vec::new(), Vec::new());
    let mut launches: Vec<(Launch, bool)> = Vec::new();
    let mut waiting: Vec<Activity> = Vec::new();
    let mut fates: Vec<((SessionId, u32), Fate)> = Vec::new();
    for step in steps {
        match *step {
            Step::Launch(launch) => {
                let id = (launch.session, launch.correlation);
                if let Some(at) = fates.iter().position(|(of, _)| *of == id) {
                    met.push(fates.remove(at).1);
                    continue;
                }
                let (mine, others) = waiting.into_iter().partition(|a| (a.session, a.correlation) == id);
                waiting = others;
                let mut matched = false;
                for activity in mine {
                    if activity.start == 0 || activity.start + CLOCK_SLACK_NS >= launch.time {
                        matched = true;
                        seen.push(Seen::Joined(launch.stack, activity));
                    } else {
                        seen.push(Seen::Unmatched(activity));
                    }
                }
                launches.push((launch, matched));
            }
            Step::Activity(activity) => {
                let id = (activity.session, activity.correlation);
                let mut same: Vec<&mut (Launch, bool)> =
                    launches.iter_mut().filter(|(l, _)| (l.session, l.correlation) == id).collect();
                let known = activity.start != 0;
                same.retain(|(l, _)| !known || activity.start + CLOCK_SLACK_NS >= l.time);
                if known {
                    // Stable: of two at the same time, the later arrival is the later launch.
                    same.sort_by_key(|(l, _)| l.time);
                    if let Some(last) = same.iter().rposition(|(l, _)| l.time <= activity.start) {
                        same.truncate(last + 1);
                    } else {
                        same.truncate(1);
                    }
                }
                match same.pop() {
                    Some((launch, matched)) => {
                        *matched = true;
                        seen.push(Seen::Joined(launch.stack, activity));
                    }
                    None => waiting.push(activity),
                }
            }
            Step::Fate(session, correlation, fate) => {
                let id = (session, correlation);
                match launches.iter().rposition(|(l, _)| (l.session, l.correlation) == id) {
                    Some(at) if !launches[at].1 => {
                        launches.remove(at);
                        met.push(fate);
                    }
                    Some(_) => {}
                    None if fates.iter().any(|(of, _)| *of == id) => {}
                    None => fates.push((id, fate)),
                }
            }
        }
    }
    seen.extend(waiting.into_iter().map(Seen::Unmatched));
    seen.extend(launches.into_iter().filter(|(_, matched)| !matched).map(|(l, _)| Seen::Pending(l.stack)));
    (seen, met)
}

/// Generates steps over few ids, so that ids collide, wrap and arrive in any order; times may contradict each other.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![8 => 1u64..60, 1 => Just(CLOCK_SLACK_NS + 30), 1 => Just(3 * CLOCK_SLACK_NS)];
    let start = prop_oneof![1 => Just(0u64), 8 => time.clone()];
    let step = (0u32..12, 0u32..2, 0u32..6, 1u8..5, time, start);
    proptest::collection::vec(step, 0..120).prop_map(|raw| {
        let step = |(n, (what, session, correlation, kind, time, start))| match what {
            0..4 => {
                let kind = LaunchKind::from_number(kind).unwrap_or(LaunchKind::Kernel);
                Step::Launch(launch(session, correlation, kind, time, n as u64))
            }
            4..9 => Step::Activity(activity(session, correlation, start, n as u32)),
            9 => Step::Fate(SessionId(session), correlation, Fate::Failed),
            10 => Step::Fate(SessionId(session), correlation, Fate::Captured),
            _ => Step::Fate(SessionId(session), correlation, Fate::Empty),
        };
        raw.into_iter().enumerate().map(step).collect()
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (0usize..6, 0usize..6, 0usize..6, 0usize..6, 0usize..3, 1usize..4).prop_map(
        |(in_flight, matched, matched_graphs, waiting, fates, generations)| Limits {
            in_flight,
            matched,
            matched_graphs,
            waiting,
            fates,
            generations,
        },
    )
}

fn assert_conserved(join: &Join) {
    let c = join.counts();
    let fates = c.launches_failed + c.launches_captured + c.launches_empty;
    let settled = c.launches_matched + fates + c.launches_pending;
    assert_eq!(c.launches, settled + join.in_flight() as u64, "{c:?}");
    assert_eq!(c.activities, c.activities_matched + c.activities_unmatched + join.waiting() as u64, "{c:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Check that below its limits the join returns the outcomes of the naive model in the same order, and counts the
    /// same fates.
    #[test]
    fn equals_the_naive_model(steps in steps()) {
        let mut join = Join::new(Limits { generations: 1000, ..Limits::DEFAULT });
        let (seen, (expected, met)) = (run(&mut join, &steps), naive(&steps));
        prop_assert_eq!(seen, expected);
        let of = |fate| met.iter().filter(|met| **met == fate).count() as u64;
        let counts = join.counts();
        prop_assert_eq!((counts.launches_failed, counts.launches_captured), (of(Fate::Failed), of(Fate::Captured)));
        assert_conserved(&join);
    }

    /// Check with any limits that nothing is kept beyond them, nothing disappears, and no activity is reported twice.
    #[test]
    fn limits_and_conservation_hold_at_every_step(steps in steps(), limits in limits()) {
        let mut join = Join::new(limits);
        let mut seen = Vec::new();
        for step in &steps {
            push(&mut join, step, &mut seen);
            assert_conserved(&join);
            prop_assert!(join.lists.in_flight.len() <= limits.in_flight);
            prop_assert!(join.lists.matched.len() <= limits.matched);
            prop_assert!(join.lists.graphs.len() <= limits.matched_graphs);
            prop_assert!(join.waiting.len() <= limits.waiting);
            prop_assert!(join.fates.len() <= limits.fates);
            let kept = join.lists.in_flight.len() + join.lists.matched.len() + join.lists.graphs.len();
            prop_assert!(join.newest.len() <= kept);
        }
        join.finish(|o| seen.push(o.into()));
        assert_conserved(&join);
        prop_assert_eq!((join.in_flight(), join.waiting()), (0, 0));

        let mut reported: Vec<u32> = Vec::new();
        let mut pending = Vec::new();
        for seen in &seen {
            match seen {
                Seen::Joined(stack, activity) => {
                    let Step::Launch(launch) = steps[stack.0 as usize] else { panic!("not a launch") };
                    prop_assert_eq!((launch.session, launch.correlation), (activity.session, activity.correlation));
                    reported.push(mark(activity));
                }
                Seen::Unmatched(activity) => reported.push(mark(activity)),
                Seen::Pending(stack) => pending.push(*stack),
            }
        }
        reported.sort_unstable();
        let all: Vec<u32> = (0..).zip(&steps).filter(|(_, s)| matches!(s, Step::Activity(_))).map(|(n, _)| n).collect();
        prop_assert_eq!(reported, all);
        prop_assert_eq!(pending.len() as u64, join.counts().launches_pending);
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Check with ids that wrap every 256 launches, activities up to 8 launches early and 24 late, and one to three
    /// activities per launch: each is joined to the launch that caused it.
    #[test]
    fn joins_to_the_true_launch_across_wraps(
        delays in proptest::collection::vec(proptest::collection::vec(-8i64..24, 1..4), 600..900),
        sessions in 1u32..4,
    ) {
        const IDS: u32 = 256;
        let mut timed: Vec<(i64, usize, Step)> = Vec::new();
        for (n, delays) in delays.iter().enumerate() {
            let (session, correlation) = (n as u32 % sessions, (n as u32 / sessions) % IDS);
            let time = 1000 + 10 * n as u64;
            timed.push((n as i64, 0, Step::Launch(launch(session, correlation, LaunchKind::Kernel, time, n as u64))));
            for (k, delay) in delays.iter().enumerate() {
                let activity = activity(session, correlation, time + 3 + 5 * k as u64, n as u32);
                timed.push((n as i64 + delay, k + 1, Step::Activity(activity)));
            }
        }
        timed.sort_by_key(|(at, k, _)| (*at, *k));
        let steps: Vec<Step> = timed.into_iter().map(|(_, _, step)| step).collect();
        let mut join = Join::new(Limits { matched: 64, ..Limits::DEFAULT });
        for seen in run(&mut join, &steps) {
            let Seen::Joined(stack, activity) = seen else { panic!("{seen:?}") };
            prop_assert_eq!(stack.0, u64::from(mark(&activity)));
        }
    }
}

fn mark(activity: &Activity) -> u32 {
    let Work::Memset { value, .. } = activity.work else { panic!("not ours") };
    value
}

/// Check with a reused id that each activity is joined to the launch before it, and one from before both to the older.
///
/// ```text
///   launches      7 (100)            7' (200)
///   activities  90    150               250
/// ```
#[test]
fn reused_ids_are_joined_by_time() {
    let mut steps = vec![
        Step::Launch(launch(0, 7, LaunchKind::Kernel, 100, 1)),
        Step::Launch(launch(0, 7, LaunchKind::Kernel, 200, 2)),
    ];
    steps.extend([250, 150, 90, 0].map(|start| Step::Activity(activity(0, 7, start, start as u32))));
    let stacks: Vec<u64> = run(&mut Join::default(), &steps)
        .into_iter()
        .map(|seen| if let Seen::Joined(stack, _) = seen { stack.0 } else { 0 })
        .collect();
    assert_eq!(stacks, [2, 1, 1, 2]);
}

/// Check that an activity left over from an earlier use of an id is not joined to the launch that uses it next.
#[test]
fn old_activities_are_not_joined_to_a_reused_id() {
    let old = activity(0, 7, 100, 0);
    let steps = [Step::Activity(old), Step::Launch(launch(0, 7, LaunchKind::Kernel, 101 + CLOCK_SLACK_NS, 1))];
    assert_eq!(run(&mut Join::default(), &steps), [Seen::Unmatched(old), Seen::Pending(StackId(1))]);
}

/// Check that a failure or a capture removes its launch, whether it arrives before or after the launch.
#[test]
fn fates_may_arrive_before_or_after_the_launch() {
    let launch = Step::Launch(launch(0, 7, LaunchKind::Kernel, 100, 1));
    let failed = Counts { launches: 1, launches_failed: 1, ..Counts::default() };
    let captured = Counts { launches: 1, launches_captured: 1, ..Counts::default() };
    let empty = Counts { launches: 1, launches_empty: 1, ..Counts::default() };
    for (fate, counts) in [(Fate::Failed, failed), (Fate::Captured, captured), (Fate::Empty, empty)] {
        let fate = Step::Fate(SessionId(0), 7, fate);
        for steps in [[launch, fate], [fate, launch]] {
            let mut join = Join::default();
            assert_eq!(run(&mut join, &steps), []);
            assert_eq!(join.counts(), counts);
        }
    }
}

/// Check that a launch that has an activity anyway stays matched.
#[test]
fn fates_do_not_undo_a_match() {
    let launch = Step::Launch(launch(0, 7, LaunchKind::Kernel, 100, 1));
    let activity = activity(0, 7, 110, 0);
    let steps = [launch, Step::Activity(activity), Step::Fate(SessionId(0), 7, Fate::Captured)];
    let mut join = Join::default();
    assert_eq!(run(&mut join, &steps), [Seen::Joined(StackId(1), activity)]);
    assert_eq!((join.counts().launches_matched, join.counts().launches_captured), (1, 0));
}

/// Check that a single id used for everything does not make the join slow: the number of launches kept for it is
/// bounded.
#[test]
fn launches_of_one_id_are_bounded() {
    let mut join = Join::default();
    for n in 0..200_000 {
        join.push_launch(&launch(0, 0, LaunchKind::Kernel, n, n), |_| {});
    }
    assert_eq!(join.in_flight(), Limits::DEFAULT.generations);
    assert_eq!(join.counts().launches_evicted, 200_000 - Limits::DEFAULT.generations as u64);
    assert_conserved(&join);
}
