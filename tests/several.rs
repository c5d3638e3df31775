//! Several recordings, such as those of the ranks of a program, that are read as one.

use serde_json::Value;

use crate::support::{
    Ended, Scene, folded,
    oracle::Walk,
    program,
    scene::{lost, number},
};

/// Records one rank of a program on its own; the output is named after the rank.
fn record(scene: &Scene, rank: &str, rounds: u64) {
    let command = format!("{} {}", program("truth"), Walk::of(rounds).arguments());
    let mut command = scene.record("--sim -q -F 999 -o rank-{rank}.wscope -o {pid}-{time}.folded", &command);
    Ended::of(command.env("RANK", rank).env("WARPSCOPE_SIM", "devices=2,kernel_ns=2us")).exits(0);
}

fn report(scene: &Scene, recordings: &[&str]) -> Value {
    let run = Ended::of(&mut scene.warpscope(&[&["report", "--json"], recordings].concat())).exits(0);
    serde_json::from_str(run.out()).expect("the report is JSON")
}

/// Check that two recordings add up to one: all work is matched and keeps its stacks, in the report, in exports and in the
/// combined recording; and that the placeholders of output names are replaced.
#[test]
fn recordings_of_ranks_are_read_as_one() {
    let scene = Scene::new();
    record(&scene, "0", 40);
    record(&scene, "1", 60);
    let files = scene.files();
    assert_eq!(files.iter().filter(|name| name.ends_with(".folded")).count(), 2, "{files:?}");
    let names = ["rank-0.wscope", "rank-1.wscope"];
    let parts = names.map(|name| scene.report(name));
    let whole = report(&scene, &names);
    for key in
        ["launches", "matched", "kernels", "copies", "memsets", "gpu_time_ns", "cpu_samples", "cpu_time_ns", "threads"]
    {
        assert_eq!(number(&whole, key), parts.iter().map(|part| number(part, key)).sum::<u64>(), "{key}");
    }
    assert_eq!((lost(&whole), number(&whole, "unmatched_activities"), number(&whole, "stacks_missing")), (0, 0, 0));
    assert_eq!(whole["ranks"].as_array().map(Vec::len), Some(2));
    // One after the other: the time of both is longer than each, and no gap is negative.
    assert!(number(&whole, "wall_ns") > parts.iter().map(|part| number(part, "wall_ns")).sum::<u64>());

    let outputs = ["-o", "all.folded", "-o", "all.wscope", "-o", "all.html"];
    Ended::of(&mut scene.warpscope(&[&["export"], &names[..], &outputs].concat())).exits(0);
    let combined = scene.report("all.wscope");
    for key in ["launches", "matched", "gpu_time_ns", "cpu_samples", "wall_ns", "stacks", "ranks", "devices"] {
        assert_eq!(combined[key], whole[key], "{key}");
    }
    let weight = |name: &str| folded::read(&scene.read(name)).iter().map(|line| line.weight).sum::<u64>();
    let singly: u64 = files.iter().filter(|name| name.ends_with(".folded")).map(|name| weight(name)).sum();
    // Each line is rounded to a microsecond.
    assert!(weight("all.folded").abs_diff(singly) <= 200, "{} and {singly}", weight("all.folded"));
    assert!(scene.read("all.html").len() > 10_000);
}

/// Check that the same file twice, a trace beside a recording, and a rank that is not known are rejected.
#[test]
fn unsuitable_recordings_are_rejected() {
    let scene = Scene::new();
    record(&scene, "0", 1);
    let behave = format!("{} status", program("behave"));
    Ended::of(&mut scene.trace("--sim -q -o trace.wscope", &behave)).exits(42);
    Ended::of(&mut scene.warpscope(&["report", "rank-0.wscope", "./rank-0.wscope"])).exits(1).says(&["the same file"]);
    let run = Ended::of(&mut scene.warpscope(&["report", "rank-0.wscope", "trace.wscope"])).exits(1);
    run.says(&["traces and recordings cannot be combined"]);
    let run = Ended::of(&mut scene.record("--sim -q -o x-{rank}.wscope", &behave)).exits(1);
    run.says(&["there is no rank", "RANK"]);
}
