//! Recordings that stop before the program does, and programs that are killed: what is in them, and what they say is not.

use std::collections::HashSet;

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    calls::Trace,
    folded,
    jsonl::Events,
    program,
    scene::{lost, number},
};

/// A program that launches kernels of 1 us without end.
fn endless() -> String {
    format!("{} 1 2 1 1 1000000000", program("truth"))
}

fn key(event: &Value) -> (u64, u64) {
    (number(event, "session"), number(event, "correlation"))
}

/// When -d ends the recording, the injected library sends what it has and finishes: every launch has its GPU work, the
/// process does not count as killed, and the summary says that warpscope stopped and that the process ran on.
#[test]
fn after_a_duration_nothing_is_missing() {
    let scene = Scene::new();
    let command = endless();
    let mut run = Running::start(
        scene.record("--sim --gpu-only -d 0.5 -o x.wscope", &command).env("WARPSCOPE_SIM", "kernel_ns=1us"),
    );
    run.stderr_until("warpscope stopped recording after 0.5 s while process");
    run.stderr_until("the command runs on");
    let report = scene.report("x.wscope");
    assert!(number(&report, "launches") > 1_000, "{}", report["launches"]);
    let numbers = ["sessions_cut_off", "sessions_left", "pending_launches", "unmatched_activities"];
    assert_eq!(numbers.map(|key| number(&report, key)), [0; 4], "{}", report["ledger"]);
    assert_eq!((number(&report, "matched"), lost(&report)), (number(&report, "launches"), 0), "{}", report["ledger"]);
    assert!(report["notes"].to_string().contains("(truth) was running"), "{}", report["notes"]);
    run.signal(libc::SIGTERM);
    run.wait().dies_of(libc::SIGTERM);
}

/// A process that does not answer, because it is stopped, is left alone after a moment, and is not called killed.
#[test]
fn a_stopped_process_is_left() {
    let scene = Scene::new();
    // The shell stops its parent's command: itself, once the program has launched.
    let script = format!("{} & sleep 0.5; kill -STOP $!; sleep 1; kill -KILL $!", endless());
    let options = "--sim --gpu-only -d 1 -o x.wscope";
    let mut run =
        Running::start(scene.record_words(options, &["sh", "-c", &script]).env("WARPSCOPE_SIM", "kernel_ns=1us"));
    run.stderr_until("the command runs on");
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "sessions_cut_off"), number(&report, "sessions_left")), (0, 1), "{}", report["ledger"]);
    assert!(report["ledger"].to_string().contains("1 CUDA process was still running when the recording stopped"));
    run.wait();
}

/// A program that dies of Ctrl-C, without any handler, loses at most the GPU work of its last 100 ms.
#[test]
fn an_interrupted_program_loses_little() {
    let scene = Scene::new();
    let command = format!("timeout -s INT 1.5 {}", endless());
    let options = "--sim -q --gpu-only -o x.wscope -o x.jsonl";
    // The status of a command that `timeout` has ended.
    Ended::of(scene.record(options, &command).env("WARPSCOPE_SIM", "kernel_ns=1us")).exits(124);
    let events = Events::read(&scene.read("x.jsonl"));
    let done: HashSet<_> = ["kernel", "copy", "memset"].iter().flat_map(|kind| events.of(kind)).map(key).collect();
    let time = |launch: &Value| number(launch, "ts_ns");
    let last = events.of("launch").map(time).max().expect("launches");
    let missing = || events.of("launch").filter(|launch| !done.contains(&key(launch))).map(time);
    let old = missing().filter(|time| *time + 100_000_000 < last).count();
    println!("{} launches, {} without GPU work", events.of("launch").count(), missing().count());
    assert_eq!(old, 0, "{} of {} are missing", missing().count(), events.of("launch").count());
    assert!(events.of("launch").count() > 1_000);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "sessions_cut_off"), 1, "{}", report["ledger"]);
    let distinct: HashSet<_> =
        events.of("launch").filter(|l| done.contains(&key(l))).map(|l| number(l, "stack")).collect();
    assert_eq!(number(&report, "stacks"), distinct.len() as u64);
    assert!(distinct.len() >= 64, "one for each path");
}

/// A trace without --stacks draws GPU work by kernel, and says so, in place of stacks that were never taken; with --stacks the
/// calls are there.
#[test]
fn a_trace_without_stacks_draws_kernels() {
    let command = format!("{} 1 2 1 1 500", program("truth"));
    for (option, stacks) in [("", false), ("--stacks", true)] {
        let scene = Scene::new();
        let options = format!("--sim {option} -o t.folded -o t.svg -o t.jsonl");
        let run = Ended::of(scene.trace(&options, &command).env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
        let text = scene.read("t.folded");
        assert!(!text.contains("[stack lost]") && !scene.read("t.svg").contains("[stack lost]"), "{text}");
        let kernels: Vec<_> = folded::read(&text).into_iter().filter(|line| line.on_gpu().is_some()).collect();
        assert!(kernels.len() >= 64, "{text}");
        assert!(kernels.iter().all(|line| line.frames[0] == "truth" && line.launcher().is_empty() != stacks), "{text}");
        assert_eq!(run.err().contains("call stacks were not requested"), !stacks, "{}", run.err());
        let note = Trace::read(&scene.read("t.jsonl")).notes;
        assert_eq!(note.iter().any(|note| note.contains("--stacks")), !stacks, "{note:?}");
    }
}
