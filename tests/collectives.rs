//! Communicators: which kernels belong to the same operation, and who made the others wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
};

use fixtures::job::{HostClock, Job, Late};
use model::recording::Writer;
use serde_json::Value;

use crate::support::{
    Ended, Scene,
    jsonl::Events,
    program,
    scene::{lost, number},
};

const RANKS: u64 = 4;
const ROUNDS: u64 = 20;

fn record(scene: &Scene, options: &str, form: &str) -> Value {
    record_with(scene, options, form, "")
}

fn record_with(scene: &Scene, options: &str, form: &str, script: &str) -> Value {
    let outputs = format!("--sim -q {options} -o x.wscope -o x.jsonl");
    let command = format!("{} {RANKS} {ROUNDS} {form}", program("nccl"));
    Ended::of(
        scene
            .record(&outputs, &command)
            .env("WARPSCOPE_SIM", format!("devices={RANKS},kernel_ns=40us,nccl_names=numbered{script}")),
    )
    .exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    report
}

/// Check that the kernels of an operation end together, after the last one has begun: the truth that the other tests rely on.
fn ends_together(events: &Events) {
    let mut all: BTreeMap<&str, Vec<[u64; 2]>> = BTreeMap::new();
    for kernel in events.of("kernel") {
        let (start, length) = (number(kernel, "ts_ns"), number(kernel, "dur_ns"));
        all.entry(kernel["name"].as_str().expect("a name")).or_default().push([start, start + length]);
    }
    for (name, times) in all.iter().filter(|(name, _)| !name.contains("SendRecv")) {
        let latest = times.iter().map(|[start, _]| start).max().expect("one");
        assert!(times.iter().all(|[_, end]| *end == latest + 40_000), "{name}: {times:?}");
    }
}

/// The starts of the kernels of each operation, by rank. Each kernel is named after the communicator and the number of its
/// operation.
fn operations(scene: &Scene) -> BTreeMap<String, BTreeMap<u64, u64>> {
    let events = Events::read(&scene.read("x.jsonl"));
    let rank_of: BTreeMap<u64, u64> = events.of("rank").map(|e| (number(e, "session"), number(e, "rank"))).collect();
    let mut all: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for kernel in events.of("kernel") {
        let name = kernel["name"].as_str().expect("a name").to_owned();
        let before = all.entry(name).or_default().insert(rank_of[&number(kernel, "session")], number(kernel, "ts_ns"));
        assert_eq!(before, None, "each rank has one");
    }
    all
}

/// What each rank waited for each other one: until the last member of an operation has begun, and in a ring of messages until both
/// neighbours have.
fn waits(operations: &BTreeMap<String, BTreeMap<u64, u64>>) -> BTreeMap<(u64, u64), u64> {
    let mut waits = BTreeMap::new();
    for (name, starts) in operations {
        for (own, start) in starts {
            let is_partner = |rank: u64| {
                !name.contains("SendRecv") || rank == (own + 1) % RANKS || rank == (own + RANKS - 1) % RANKS
            };
            let partners = starts.iter().filter(|(rank, _)| is_partner(**rank));
            let (last, latest) = partners.max_by_key(|(rank, start)| (**start, **rank)).expect("a partner");
            if latest > start {
                *waits.entry((*own, *last)).or_default() += latest - start;
            }
        }
    }
    waits
}

fn reported(report: &Value) -> BTreeMap<(u64, u64), u64> {
    let ranks = report["ranks"].as_array().expect("ranks").iter();
    let of = |rank: &Value| {
        let own = number(rank, "rank");
        let waited = rank["waited_for"].as_array().expect("waits").clone();
        waited.into_iter().map(move |waited| ((own, number(&waited, "rank")), number(&waited, "ns")))
    };
    ranks.flat_map(of).collect()
}

/// Check that every kernel is joined with those of the same operation, in sub-groups that communicate unequally often, in groups of
/// several operations and in rings of messages, and that waits are exact.
#[test]
fn operations_are_joined_by_communicator() {
    let scene = Scene::new();
    let report = record(&scene, "--gpu-only", "");
    ends_together(&Events::read(&scene.read("x.jsonl")));
    let operations = operations(&scene);
    let communication = &report["communication"];
    let pairs: u64 = (0..RANKS / 2).map(|pair| pair + 1).sum();
    let expected = ROUNDS * (pairs + 3) + RANKS / 2 * 2;
    assert_eq!(operations.len() as u64, expected, "the program is as planned");
    let counts = ["collectives", "unassigned", "mismatches"].map(|key| number(communication, key));
    assert_eq!((counts, &communication["assumed"]), ([expected, 0, 0], &Value::Bool(false)));
    assert_eq!(reported(&report), waits(&operations));

    let rows: BTreeSet<(String, [u64; 3])> = report["collectives"]
        .as_array()
        .expect("collectives")
        .iter()
        .map(|row| {
            let operation = row["operation"].as_str().expect("a text").to_owned();
            (operation, ["members", "count", "bytes"].map(|key| number(row, key)))
        })
        .collect();
    let row = |operation: &str, members, count, bytes| (operation.to_owned(), [members, count, count * bytes]);
    let expected = [
        row("broadcast", RANKS, ROUNDS, 1 << 12),
        row("other", RANKS, ROUNDS, (1 << 20) + (1 << 10)),
        row("send_receive", RANKS, ROUNDS, 2 << 16),
        row("all_reduce", 2, ROUNDS, 4096),
        row("all_reduce", 2, 2 * ROUNDS, 4096),
        row("reduce", 2, 1, 512),
        row("reduce_scatter", 2, 1, 256),
    ];
    assert_eq!(rows, BTreeSet::from(expected));
    let table = Ended::of(&mut scene.warpscope(&["report", "--by", "collectives", "x.wscope"])).exits(0);
    assert!(["send_receive", "broadcast"].iter().all(|name| table.out().contains(name)), "{}", table.out());
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
    assert!(text.out().contains("broadcast of 4 members, communicator "), "{}", text.out());
}

/// Check that the same holds beside NVTX ranges, which are recorded then.
#[test]
fn ranges_do_not_hide_communicators() {
    let scene = Scene::new();
    let report = record(&scene, "--gpu-only --nvtx", "");
    assert_eq!(reported(&report), waits(&operations(&scene)));
    assert_eq!(number(&report["communication"], "unassigned"), 0);
}

/// Check that members that call different operations are reported, and that nothing after that is joined.
#[test]
fn mismatches_are_reported() {
    let scene = Scene::new();
    // In round 3, rank 1 says that it gathers instead of reducing.
    let report = record_with(&scene, "--gpu-only", "", ",nccl_mismatch=1:13");
    let communication = &report["communication"];
    assert_eq!(number(communication, "mismatches"), 1);
    let of_all = |name: &str| {
        let rows = report["collectives"].as_array().expect("collectives").iter();
        rows.filter(|row| row["operation"] == name).map(|row| number(row, "count")).sum::<u64>()
    };
    assert_eq!((of_all("broadcast"), of_all("other"), of_all("all_reduce")), (3, 3, 3 * ROUNDS));
}

/// Check that a rank whose call the script makes late is the one that others wait for.
#[test]
fn scripted_delays_are_found() {
    let scene = Scene::new();
    let report = record_with(&scene, "--gpu-only", "", ",nccl_late=2:9:1s");
    let reported = reported(&report);
    assert_eq!(reported, waits(&operations(&scene)));
    let waited = |rank: u64| reported.get(&(rank, 2)).copied().unwrap_or(0);
    assert!([0, 1, 3].iter().all(|rank| waited(*rank) > 500_000_000), "{reported:?}");
}

/// Check that an operation that a rank did not call is counted, and nobody is said to have waited in it.
#[test]
fn missing_members_are_counted() {
    let scene = Scene::new();
    let report = record(&scene, "--gpu-only", "missing");
    let mut operations = operations(&scene);
    let whole = operations.len();
    operations.retain(|name, starts| !name.contains("Broadcast") || starts.len() as u64 == RANKS);
    assert_eq!((whole - operations.len(), number(&report["communication"], "unassigned")), (1, RANKS - 1));
    assert_eq!(reported(&report), waits(&operations));
}

/// Check that without NVTX the assumption is stated.
#[test]
fn unknown_communicators_are_assumed() {
    let scene = Scene::new();
    let report = record(&scene, "--gpu-only", "silent");
    assert_eq!(report["communication"]["assumed"], Value::Bool(true));
    assert!(report.get("collectives").is_none());
}

/// Check that recordings of hosts whose clocks differ by a second are aligned, and that the error that is left and the late rank are
/// named, in each form of the report.
#[test]
fn clocks_of_hosts_are_corrected() {
    let scene = Scene::new();
    let hosts = vec![HostClock::default(), HostClock { offset: -1_000_000_000, ppm: 80.0 }];
    let job = Job { hosts, steps: 40, late: Late::Rank(12), late_ns: 10_000_000, seed: 3 };
    for (host, events) in job.events().0.iter().enumerate() {
        let file = File::create(scene.path(&format!("node{host}.wscope"))).expect("it can be created");
        let mut writer = Writer::new(file).expect("it can be written");
        events.iter().for_each(|event| writer.push(event).expect("it can be written"));
        writer.finish().expect("it can be written");
    }
    let files = ["node0.wscope", "node1.wscope"];
    let run = |options: &[&str]| {
        Ended::of(&mut scene.warpscope(&[&["report"], options, &files[..]].concat())).exits(0).out().to_owned()
    };
    let report: Value = serde_json::from_str(&run(&["--json"])).expect("JSON");
    let clock = &report["clocks"][1];
    let (bound, offset) = (number(clock, "bound_ns"), clock["offset_ns"].as_i64().expect("an offset"));
    assert!((1_000..200_000).contains(&bound) && (offset - 1_000_000_000).abs() < 100_000, "{clock}");
    assert!((clock["drift_ppm"].as_f64().expect("a drift") + 80.0).abs() < 80.0, "{clock}");
    let late = |finding: &&Value| finding["kind"] == "late-rank";
    let finding = report["findings"].as_array().expect("findings").iter().find(late).expect("a late rank");
    assert_eq!(finding["place"]["frame"], "preprocess (data.py:88)");
    let text = run(&[]);
    assert!(text.contains("rank 12 is late in") && text.contains("clock of node1: +1.00 s"), "{text}");
    // A single host has nothing to correct.
    let one = Ended::of(&mut scene.warpscope(&["report", "--json", "node0.wscope"])).exits(0).out().to_owned();
    assert!(serde_json::from_str::<Value>(&one).expect("JSON").get("clocks").is_none());
}
