//! Ranks that wait for each other, and ranks that call different operations.

use model::{
    communication::{Called, Communication, Member, Members, Mismatch, Missing, Operation, Reasons},
    event::{self, PointId, SessionId},
    profile::{ProcessInfo, SessionInfo},
    ranks::RankInfo,
};

use super::*;

const RANKS: u32 = 4;
const ROUNDS: u64 = 200;
/// From one operation to the next.
const STEP: u64 = 10 * SECOND / ROUNDS;
const MS: u64 = 1_000_000;
const ALL: u64 = 0xa11;

/// 200 operations of four ranks, of which `late` returns how much later than the others a rank comes.
fn ranks(late: impl Fn(u64, u32) -> u64) -> Profile {
    let mut profile = healthy();
    let mut all = Communication::default();
    let sessions = (0..RANKS).map(|rank| (rank, SessionId(rank))).collect();
    all.communicators.insert(ALL, Members { size: RANKS, sessions });
    for number in 0..ROUNDS {
        let starts: Vec<u64> = (0..RANKS).map(|rank| number * STEP + late(number, rank)).collect();
        let (there, last) = starts.iter().copied().zip(0..).max().expect("ranks");
        let first = all.members.len() as u32;
        all.members.extend(starts.iter().zip(0..).map(|(&start, rank)| Member {
            session: SessionId(rank),
            tid: 7,
            launched: start,
            stack: StackId(1),
            start,
            end: there + MS,
            waited: there - start,
            waited_for: last,
            from: 0,
        }));
        let operation = event::Operation::AllReduce;
        all.operations.push(Operation { communicator: ALL, operation, number, bytes: 8, members: (first, RANKS) });
    }
    profile.communication = all;
    for rank in 0..RANKS {
        let process = ProcessId(10 + rank);
        profile.processes.insert(process, ProcessInfo { pid: 100 + rank, ..ProcessInfo::default() });
        profile.sessions.insert(SessionId(rank), SessionInfo { process, cupti: 1, driver: 1, mps: false });
        let info = RankInfo { sessions: [SessionId(rank)].into(), ..RankInfo::default() };
        profile.ranks.all.insert(rank, info);
    }
    profile
}

/// Numbers without a pattern.
fn random(number: u64, rank: u32) -> u64 {
    let mut state = (number << 8 | u64::from(rank)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for shift in [30, 27, 31] {
        state = (state ^ (state >> shift)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    state
}

fn late(profile: &Profile) -> Option<Finding> {
    found(profile).into_iter().find(|finding| finding.kind == Kind::LateRank)
}

/// Check that the rank that is late again and again is named, how late, and what it did, from 5 % of the time on.
#[test]
fn a_late_rank_is_named() {
    let by = |ns: u64| ranks(move |number, rank| if rank == 2 && number % 2 == 1 { ns } else { 0 });
    let mut profile = by(20 * MS);
    let finding = late(&profile).expect("a finding");
    let title =
        "rank 2 is late in 100 of 199 all_reduce operations of communicator 0000000000000a11, by 20.0 ms on average";
    assert_eq!((finding.title.as_str(), &finding.place), (title, &None));
    assert_eq!(finding.gain.map(|gain| gain.ns), Some(2 * SECOND));
    assert!(finding.advice.contains("--off-cpu"), "{}", finding.advice);
    let numbers: Vec<String> = finding.evidence.iter().map(crate::findings::Evidence::text).collect();
    assert_eq!(numbers, ["late 2.00 s", "others waited 6.00 s"]);

    let mut reasons = Reasons { host_ns: 1900 * MS, gpu_ns: 100 * MS, ..Reasons::default() };
    reasons.ran.insert(StackId(2), (1800 * MS, 180));
    reasons.waited.insert((StackId(1), PointId(1)), 100 * MS);
    profile.communication.reasons.insert(SessionId(2), reasons);
    let finding = late(&profile).expect("a finding");
    assert_eq!(finding.title, format!("{title}: 90.0 % load (data.py:88)"));
    assert_eq!(finding.place.as_ref().map(|place| place.frame.as_str()), Some("load (data.py:88)"));
    assert!(finding.advice.contains("ahead of time"), "{}", finding.advice);

    assert_eq!(late(&by(4_900_000)), None);
    assert!(late(&by(5_100_000)).is_some());
}

/// Check that a GPU that takes longer is named with the kernel that does, if it explains the delay.
#[test]
fn a_slow_gpu_is_named_with_its_kernel() {
    let mut profile = ranks(|_, rank| if rank == 1 { 10 * MS } else { 0 });
    profile.communication.reasons.insert(SessionId(1), Reasons { gpu_ns: 1990 * MS, ..Reasons::default() });
    for rank in 0..RANKS {
        let (stack, what) = (Some(StackId(1)), What::Kernel(0));
        let key = GpuKey { process: ProcessId(10 + rank), stack, capture: None, what, device: 0, stream: 7, range: 0 };
        let ns = if rank == 1 { 5 * SECOND } else { 3 * SECOND };
        profile.gpu.insert(key, GpuWeight { count: 1000, ns, max_ns: 6 * MS, ..GpuWeight::default() });
    }
    let finding = late(&profile).expect("a finding");
    let end = ": 100.0 % with a busy GPU, where work takes 5.00 ms, and 3.00 ms on the others";
    assert!(finding.title.starts_with("rank 1 is late in 199 of 199") && finding.title.ends_with(end), "{finding:?}");
    assert_eq!(finding.place, None);
}

/// Check that nobody is named if all are alike, or if each is late in turn; and that this is said if it costs 10 % of the time.
#[test]
fn ranks_that_are_late_in_turn_are_not_named() {
    assert_eq!(late(&ranks(|_, _| 0)), None);
    assert_eq!(late(&ranks(|number, rank| random(number, rank) % MS)), None);
    let finding = late(&ranks(|number, rank| random(number, rank) % (20 * MS))).expect("a finding");
    assert!(finding.title.starts_with("ranks are late in turn: the last one comes "), "{}", finding.title);
    assert!(!finding.title.contains("rank 1") && finding.place.is_none(), "{finding:?}");
    // One that is twice as late as the others, in all operations, is no different from them; three times is.
    let biased =
        |times: u64| ranks(move |number, rank| random(number, rank) % (20 * MS) * if rank == 3 { times } else { 1 });
    assert!(late(&biased(1)).is_some_and(|finding| finding.title.starts_with("ranks are late in turn")));
    assert!(late(&biased(4)).is_some_and(|finding| finding.title.starts_with("rank 3 is late")));
    // A single long delay is no pattern.
    assert_eq!(late(&ranks(|number, rank| if (number, rank) == (150, 0) { 40 * MS } else { 0 })), None);
}

/// Check that calls that do not fit, and calls that a member did not make, come first, with who made which.
#[test]
fn members_that_do_not_agree_come_first() {
    let mut profile = ranks(|_, rank| if rank == 2 { 20 * MS } else { 0 });
    let called = (0..RANKS).map(|rank| Called {
        session: SessionId(rank),
        operation: event::Operation::AllReduce,
        bytes: if rank == 1 { 4096 } else { 8192 },
        stack: Some(StackId(2)),
    });
    profile.communication.mismatches = vec![Mismatch { communicator: ALL, number: 3, called: called.collect() }];
    let missing = Missing {
        communicator: ALL,
        number: 9,
        operation: event::Operation::Broadcast,
        time: 1,
        present: vec![SessionId(0), SessionId(1), SessionId(2)],
        absent: vec![SessionId(3)],
        last: Some((8, Some(StackId(1)))),
    };
    profile.communication.missing = vec![missing];
    // The others called 9.99 s before the end; the missing one has not ended.
    profile.communication.missing[0].time = SECOND / 100;
    assert_eq!(kinds(&profile), [Kind::CollectiveMismatch, Kind::LateRank]);
    profile.communication.missing[0].time = 0;
    assert_eq!(kinds(&profile), [Kind::MissingMember, Kind::CollectiveMismatch, Kind::LateRank]);
    let titles: Vec<String> = found(&profile).into_iter().map(|finding| finding.title).collect();
    let expected = [
        "rank 3 called nothing after call 8 at step (train.py:42) on communicator 0000000000000a11, where rank 0 and 2 more \
         called broadcast (call 9) 10.0 s before the end",
        "rank 1 calls all_reduce of 4.00 KiB at load (data.py:88) where rank 0 and 2 more call all_reduce of 8.00 KiB: call 3 \
         of communicator 0000000000000a11",
    ];
    assert_eq!(titles[..2], expected);

    // A process that has ended calls nothing any more, if all of its calls have arrived.
    profile.communication.missing[0].time = 9 * SECOND;
    profile.processes.get_mut(&ProcessId(13)).expect("rank 3").end = 9 * SECOND;
    assert_eq!(kinds(&profile)[0], Kind::MissingMember);
    profile.ledger.sessions_cut_off = 1;
    assert_eq!(kinds(&profile)[0], Kind::CollectiveMismatch);

    // Nothing is concluded from a part, and nobody is missing in a time range: it may have called after it.
    profile.communication.missing[0].time = 0;
    let range = profile.clone().range_of(profile.clone(), vec!["--to 9s".into()], profile.devices.clone());
    assert_eq!(kinds(&range)[0], Kind::CollectiveMismatch);
    assert!(kinds(&profile.clone().part_of(profile, vec!["--tid 7".into()])).is_empty());
}
