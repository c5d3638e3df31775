//! `record --off-cpu`: time off the CPU, by stack and reason.

use std::collections::HashMap;

use crate::support::{
    Ended, Running, Scene, folded,
    natives::native,
    program,
    pythons::installed,
    scene::{lost, number},
};

/// The reason for the waits of each function of `programs/waits`.
const REASONS: [(&str, &str); 5] = [
    ("naps", "[sleeping]"),
    ("reads", "[waiting for I/O]"),
    ("polls", "[waiting for events]"),
    ("locks", "[waiting for a lock]"),
    ("awaits_child", "[waiting for a process]"),
];

/// Waits of the recording with this reason in this function: how many, and how long.
fn waits(scene: &Scene, recording: &str, function: &str, reason: &str) -> (u64, u64) {
    let sum = |options: &str| {
        let export = format!("export {recording} --event off-cpu {options} -o waits.folded");
        Ended::of(&mut scene.warpscope(&export.split_whitespace().collect::<Vec<_>>())).exits(0);
        let text = scene.read("waits.folded");
        let ours = |line: &&folded::Line<'_>| line.frames.contains(&function) && line.frames.last() == Some(&reason);
        folded::read(&text).iter().filter(ours).map(|line| line.weight).sum::<u64>()
    };
    (sum("--count"), sum(""))
}

/// Check that every wait is found in its function with its reason, exactly once, and is as long as the program says.
#[test]
fn waits_have_their_stack_and_reason() {
    let scene = Scene::new();
    let command = native("waits");
    let run = Ended::of(&mut scene.record("-q --cpu-only --off-cpu -o x.wscope -o x.folded", &command)).exits(0);
    let measured: HashMap<String, (u64, u64)> = run
        .out()
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].to_owned(), (words[1].parse().expect("a count"), words[2].parse().expect("a time")))
        })
        .collect();
    // A few switches are missing while other tests attach to the same tracepoint.
    let report = scene.report("x.wscope");
    let missed = number(&report["lost"], "missed_switches");
    let mut absent = 0;
    for (function, reason) in REASONS {
        let (count, time) = waits(&scene, "x.wscope", function, reason);
        let (expected, longest) = measured[function];
        assert!(count <= expected, "{function}: {count} of {expected}");
        absent += expected - count;
        assert!(time <= longest && (time > 0 || missed > 0), "{function}: {time} ns of {longest} ns");
    }
    assert!(absent <= missed, "{absent} waits are absent, {missed} were missed");
    // A thread that is preempted on its way to sleep waits for a CPU first; the deadline was set before, some nanoseconds before
    // it leaves the CPU.
    let naps = ["[sleeping]", "[waiting for a CPU]"].map(|reason| waits(&scene, "x.wscope", "naps", reason).1);
    assert!(naps.iter().sum::<u64>() >= 99_900_000 || missed > 0, "five times 20 ms: {naps:?} ns");
    assert_eq!((lost(&report) - missed, number(&report, "stacks_missing")), (0, 0), "{}", report["ledger"]);
    // Waits are time, so they are in the graph of all time, in microseconds.
    let text = scene.read("x.folded");
    let naps = folded::read(&text).iter().filter(|line| line.frames.contains(&"naps")).map(|l| l.weight).sum::<u64>();
    assert!(naps >= 99_900 || missed > 0, "{text}");
}

/// Check that short waits are added up without a stack, and that nothing is lost by that.
#[test]
fn short_waits_have_no_stack() {
    let scene = Scene::new();
    let command = native("waits");
    Ended::of(&mut scene.record("-q --events-only --off-cpu=100s -o x.wscope", &command)).exits(0);
    let report = scene.report("x.wscope");
    let stacks = report["events"][0]["top_stacks"].as_array().expect("stacks");
    assert!(!stacks.is_empty());
    for stack in stacks {
        assert_eq!(stack["path"].as_array().expect("a path").last().expect("a frame"), "[short waits]");
    }
    assert!(number(&report["events"][0], "sum") >= 100_000_000);
    assert_eq!(number(&report, "stacks_missing"), 0, "{}", report["ledger"]);
}

/// Check that a thread that still waits at the end of the recording is included.
#[test]
fn waits_in_progress_are_included() {
    let scene = Scene::new();
    let command = format!("{} forever", native("waits"));
    let run = Running::start(&mut scene.record("--events-only --off-cpu -d 1 --kill -o x.wscope", &command));
    run.wait().exits(0);
    let (count, time) = waits(&scene, "x.wscope", "main", "[waiting]");
    assert_eq!(count, 1);
    assert!(time > 0, "{time}");
}

/// Check that waits of Python threads have their Python functions.
#[test]
fn waits_have_python_frames() {
    let script =
        "import time\ndef nap():\n    time.sleep(0.02)\ndef naps():\n    for i in range(20):\n        nap()\nnaps()\n";
    for python in installed() {
        let scene = Scene::new();
        std::fs::write(scene.path("nap.py"), script).expect("a script");
        Ended::of(&mut scene.record("-q --events-only --off-cpu -o x.wscope", &format!("{python} nap.py"))).exits(0);
        // Before 3.11 it sleeps in select.
        let reason = if python.minor < 11 { "[waiting for events]" } else { "[sleeping]" };
        let (count, time) = waits(&scene, "x.wscope", "nap (nap.py:3)", reason);
        // The first ones may come before warpscope has found the interpreter. A thread that is preempted on its way to sleep
        // sleeps for less than it requested: the deadline was set before.
        assert!((1..=20).contains(&count) && time > 0, "{python}: {count} waits, {time} ns");
    }
}

/// Check that a wait inside a CUDA call that synchronises is one for the GPU, although the driver sleeps there.
#[test]
fn waits_for_the_gpu_are_named() {
    let scene = Scene::new();
    let command = format!("{} 1 100 10", program("sampled"));
    let mut recording = scene.record("--sim -q --off-cpu -o x.wscope", &command);
    Ended::of(recording.env("WARPSCOPE_SIM", "kernel_ns=1ms")).exits(0);
    let (count, time) = waits(&scene, "x.wscope", "cudaDeviceSynchronize", "[waiting for the GPU]");
    assert!(count > 0 && time > 0, "{count} waits, {time} ns");
}

/// Check that impossible options are rejected.
#[test]
fn bad_options_are_rejected() {
    let scene = Scene::new();
    for (options, reason) in [
        ("--off-cpu=10", "is not a duration"),
        ("--off-cpu=fast", "is not a duration"),
        ("--off-cpu --event tracepoint:syscalls:sys_enter_write,name=off-cpu", "choose another with name="),
    ] {
        let run = Ended::of(&mut scene.record(options, "true")).exits(1);
        assert!(run.err().contains(reason), "{}", run.err());
    }
}
