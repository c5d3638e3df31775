//! A distributed program on several hosts: each operation has exactly its members, waits are right within the bound of the clocks, and
//! whoever is late is found.

use analysis::{
    Diff, Flames, Summary, collectives,
    diff::{Run, Subject},
    findings::Kind,
};
use fixtures::{
    job::{HostClock, Job, Late, PER_HOST},
    joined::check,
};
use model::{
    clocks::Clocks,
    communication::clocks::estimate,
    event::{Event, SessionId},
    fold::Fold,
    merge::Merged,
    profile::Profile,
};

const MS: u64 = 1_000_000;
/// Offsets of up to a second, and drifts of up to 100 ppm.
const WRONG: [(i64, f64); 8] = [
    (0, 0.0),
    (1_000_000_000, 100.0),
    (-1_000_000_000, -100.0),
    (300_000, 12.0),
    (-250_000_000, 40.0),
    (7_000_000, -3.0),
    (999_000_000, -100.0),
    (0, 55.0),
];

fn job(hosts: usize, steps: u64, late: Late) -> Job {
    let hosts = WRONG[..hosts].iter().map(|&(offset, ppm)| HostClock { offset, ppm }).collect();
    Job { hosts, steps, late, late_ns: 12 * MS, seed: 5 }
}

fn merged<'a>(all: &'a [Vec<Event>], clocks: &Clocks) -> impl Iterator<Item = Event> + use<'a> {
    let streams = all.iter().map(|events| events.iter().cloned()).collect();
    Merged::with_clocks(streams, clocks).expect("they can be combined")
}

/// Reads recordings as `report` does.
fn read(all: &[Vec<Event>]) -> Profile {
    let fold = |clocks: &Clocks| {
        let mut fold = Fold::new();
        fold.keep_communication();
        fold.set_clocks(clocks.clone());
        merged(all, clocks).for_each(|event| fold.push(&event));
        fold.finish()
    };
    let streams: Vec<_> = all.iter().map(|events| events.iter().cloned()).collect();
    let unknown = Merged::new(streams).expect("they can be combined").clocks().clone();
    let clocks =
        if unknown.are_several() { estimate(unknown, &fold(&Clocks::default()).communication) } else { unknown };
    let mut profile = fold(&clocks);
    let mut events = || Ok(Box::new(merged(all, &clocks)) as analysis::Events<'_>);
    profile.communication.reasons = collectives::reasons(&profile, &mut events).expect("they can be read");
    profile
}

/// Returns the title of the finding about late ranks, with its line.
fn late(profile: &Profile) -> Option<(String, String)> {
    let summary = Summary::of(&Flames::new(profile));
    let finding = summary.findings.into_iter().find(|finding| finding.kind == Kind::LateRank)?;
    Some((finding.title, finding.place.map(|place| place.frame).unwrap_or_default()))
}

/// Check that on one host everything is exact, and that nothing is estimated.
#[test]
fn one_host_is_exact() {
    for (scenario, expected) in [(Late::Nobody, None), (Late::Rank(6), Some("rank 6 is late in 26 of "))] {
        let job = job(1, 40, scenario);
        let (events, truth) = job.events();
        let profile = read(&events);
        assert_eq!(check(&job, &profile.communication, &truth), 0);
        let waits = profile.communication.operations.iter().zip(&truth);
        for (operation, truth) in waits {
            let last = truth.starts.iter().map(|(_, start)| *start).max().expect("members");
            let exact = truth.starts.iter().map(|(_, start)| last - start);
            assert!(profile.communication.members_of(operation).iter().map(|member| member.waited).eq(exact));
        }
        let found = late(&profile);
        match expected {
            None => assert_eq!(found, None),
            Some(start) => {
                let (title, line) = found.expect("a finding");
                assert!(title.starts_with(start) && line == "preprocess (data.py:88)", "{title}: {line}");
            }
        }
        assert!(Summary::of(&Flames::new(&profile)).clocks.is_empty());
    }
}

/// Check that clocks of hosts are corrected, that waits are right within the bound, and that the one who is late is found: a rank of the
/// first and of the second stage, a host, or nobody.
#[test]
fn culprits_are_found_on_several_hosts() {
    for (hosts, scenario, expected) in [
        (2, Late::Nobody, ""),
        (2, Late::Rank(3), "rank 3 is late in "),
        (4, Late::Nobody, ""),
        (4, Late::Rank(13), "rank 13 is late in "),
        (4, Late::Rank(17), "rank 17 is late in "),
        (4, Late::Host(2), "the ranks of host node2 are late in "),
        (4, Late::InTurn, "ranks are late in turn"),
        (8, Late::Rank(63), "rank 63 is late in "),
    ] {
        let job = job(hosts, 40, scenario);
        let (events, truth) = job.events();
        let profile = read(&events);
        let bound = check(&job, &profile.communication, &truth);
        assert!(bound < MS / 4, "{bound}");
        let found = late(&profile);
        assert_eq!(found.is_some(), !expected.is_empty(), "{scenario:?}: {found:?}");
        if let Some((title, line)) = found {
            assert!(title.starts_with(expected), "{scenario:?}: {title}");
            let is_of_a_line = !matches!(scenario, Late::InTurn);
            assert_eq!(line, if is_of_a_line { "preprocess (data.py:88)" } else { "" }, "{title}");
        }
    }
}

/// Check that nobody is said to have waited for a host whose clock is not known: none of its operations is joined with others.
#[test]
fn unknown_clocks_are_not_trusted() {
    let job = job(4, 12, Late::Rank(1));
    let (mut events, _) = job.events();
    // Only messages between the hosts of a pair are known, and those in one direction.
    for (host, events) in (0..).zip(&mut events) {
        let is_of_pair = |size: u32| size == 2 || size == PER_HOST;
        events.retain(|event| match event {
            Event::Communicator(known) => is_of_pair(known.size) && (known.size != 2 || known.rank == host % 2),
            _ => true,
        });
    }
    let profile = read(&events);
    let clocks = Summary::of(&Flames::new(&profile)).clocks;
    let known: Vec<bool> = clocks.iter().map(|clock| clock.bound_ns.is_some()).collect();
    assert_eq!(known, [true, true, false, false]);
    let all = &profile.communication;
    let other = |session: SessionId| session.recording() > 1;
    let between = all.operations.iter().map(|operation| all.members_of(operation));
    let between = between.filter(|members| members.iter().any(|m| other(m.session)));
    let hosts =
        |members: &&[model::communication::Member]| members[0].session.recording() != members[1].session.recording();
    let waits: Vec<u64> = between.filter(hosts).flatten().map(|member| member.waited).collect();
    assert!(!waits.is_empty() && waits.iter().all(|waited| *waited == 0));
    assert!(all.within_bound > 0 && late(&profile).is_some_and(|(title, _)| title.starts_with("rank 1 is late")));
}

/// Check that a comparison says how much longer ranks waited in which operations, and that transfers have not changed.
#[test]
fn waits_are_compared() {
    let run = |scenario| {
        let (events, _) = job(1, 10, scenario).events();
        Run::of(&read(&events))
    };
    let diff = Diff::of(&[run(Late::Nobody)], &[run(Late::Rank(2))]);
    let rows = &diff.changes[&Subject::Communication];
    let row = |name: &str| rows.iter().find(|row| row.name == name).expect("a row");
    let waited = row("all_reduce of 8 members: waited");
    // In six of ten steps, seven ranks wait for 12 ms more.
    assert!((waited.after - waited.before).abs_diff(6 * 7 * 12 * MS) < 10 * MS, "{waited:?}");
    assert!(diff.is_beyond_noise(Subject::Communication, waited));
    let transfer = row("all_reduce of 8 members: transfer");
    assert_eq!((transfer.before, transfer.before_count), (transfer.after, 50));
    assert!(!diff.is_beyond_noise(Subject::Communication, transfer));
}
