//! Calls that do not return: the trace shows them as begun, and everything after them is right.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    calls::{Trace, end, start},
    program,
    running::kill,
    scene::number,
    wait_until,
};

/// Starts the program that blocks in a call, and returns its pid once it does.
fn start_waiting(scene: &Scene, options: &str) -> (Running, libc::pid_t) {
    let command = format!("{} wait", program("leaves"));
    let mut command = scene.trace(&format!("--sim {options}"), &command);
    let mut run = Running::start(command.env("WARPSCOPE_SIM", "slow=cudaDeviceSynchronize:60s"));
    let pid = run.stdout_line().parse().expect("a pid");
    wait_until("it sleeps in the call", || sleeps(pid));
    (run, pid)
}

/// Whether the process is in nanosleep or clock_nanosleep.
fn sleeps(pid: libc::pid_t) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    ["35 ", "230 "].iter().any(|number| call.starts_with(number))
}

/// Asserts that the call in progress is shown as begun, without a result, and that those before it have theirs.
#[track_caller]
fn check_waiting(scene: &Scene) {
    let trace = Trace::read(&scene.read("t.jsonl"));
    assert_eq!(trace.unfinished(), ["cudaDeviceSynchronize"]);
    let call = trace.named("cudaDeviceSynchronize").next().expect("the call");
    assert!(call["ret"].is_null() && call["duration_us"].is_null() && call["depth"] == 0, "{call}");
    let before: Vec<_> = trace.outermost().into_values().flatten().map(|call| call.name).collect();
    assert_eq!(before, ["cudaFree", "cudaMalloc", "cudaMemset"]);
    trace.check_nesting();
}

/// Check a program that is killed in a call.
#[test]
fn calls_of_a_killed_program_are_begun() {
    let scene = Scene::new();
    let (run, pid) = start_waiting(&scene, "-q -o t.jsonl");
    kill(pid, libc::SIGKILL);
    run.wait().dies_of(libc::SIGKILL);
    check_waiting(&scene);
}

/// Check that the trace can end during a call, and that the command keeps running.
#[test]
fn calls_at_the_end_of_the_trace_are_begun() {
    let scene = Scene::new();
    let (mut run, pid) = start_waiting(&scene, "-d 1.5 -o t.jsonl");
    run.stderr_until("the command keeps running");
    check_waiting(&scene);
    kill(pid, libc::SIGTERM);
    run.wait().dies_of(libc::SIGTERM);
}

/// Check that, if the trace ends while threads keep calling, each thread is in one call at most, and no call is shown twice.
#[test]
fn calls_are_shown_once_if_the_trace_ends() {
    const THREADS: usize = 4;
    let scene = Scene::new();
    let mut program = Running::start(scene.bare_cuda("storm").args([&THREADS.to_string(), "2000000000", "go"]));
    assert_eq!(program.stdout_line(), "ready");
    fs::write(scene.path("go"), "").expect("a file");
    let options = format!("-q -p {} -d 0.2 --match cuMem* -o t.jsonl", program.pid());
    Ended::of(&mut scene.trace(&options, "")).exits(0);
    program.signal(libc::SIGKILL);
    program.wait().dies_of(libc::SIGKILL);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let mut threads: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for call in trace.of("userspace") {
        threads.entry(number(call, "tid")).or_default().push(call);
    }
    assert_eq!(threads.len(), THREADS);
    for calls in threads.values_mut() {
        calls.sort_by_key(|call| start(call));
        let (last, before) = calls.split_last().expect("calls");
        assert!(before.len() > 100, "{} calls", before.len());
        let mut free = i64::MIN;
        for call in before {
            assert!(call["phase"] == "X" && call["depth"] == 0 && start(call) >= free, "{call}");
            free = end(call);
        }
        assert!(start(last) >= free && last["depth"] == 0, "{last}");
    }
}

/// Check a thread, then a process, that exits in a call: both calls are shown as begun, and those within them returned.
#[test]
fn calls_that_exit_are_begun() {
    let scene = Scene::new();
    let program = program("leaves");
    let options = format!("--sim -q -o t.jsonl --uprobe {program}:quits --uprobe {program}:ends");
    Ended::of(&mut scene.trace(&options, &format!("{program} exit"))).exits(3);
    let trace = Trace::read(&scene.read("t.jsonl"));
    assert_eq!(trace.unfinished(), ["quits", "ends"]);
    let depth = |size: u64| {
        let mut calls = trace.named("cudaMemset").filter(|call| call["args"]["size"] == size);
        let call = calls.next().expect("the call");
        assert!(calls.next().is_none() && call["phase"] == "X", "{call}");
        number(call, "depth")
    };
    assert_eq!([700, 701, 702].map(depth), [0, 1, 1]);
}

/// Check longjmp out of calls, 40 times, and out of one by a signal handler: each call is shown as begun, and later calls have
/// the right depth.
#[test]
fn longjmp_out_of_calls_keeps_the_depth() {
    let scene = Scene::new();
    let program = program("leaves");
    let options = format!("--sim -q -o t.jsonl --uprobe {program}:leaps --uprobe {program}:leaps_within");
    let mut command = scene.trace(&options, &format!("{program} jump"));
    Ended::of(command.env("WARPSCOPE_SIM", "slow=cudaDeviceSynchronize:60s")).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let count = |name| trace.unfinished().iter().filter(|unfinished| **unfinished == name).count();
    assert_eq!(["leaps", "leaps_within", "cudaDeviceSynchronize"].map(count), [40, 40, 1]);
    assert_eq!(trace.unfinished().len(), 81);
    let mut sizes = Vec::new();
    for call in trace.named("cudaMemset") {
        let size = number(&call["args"], "size");
        let within = (501..=540).contains(&size);
        assert_eq!(number(call, "depth"), if within { 2 } else { 0 }, "{call}");
        assert_eq!((&call["phase"], &call["nested"]), (&"X".into(), &Value::Null), "{call}");
        sizes.push(size);
    }
    sizes.sort_unstable();
    let expected = (1..=40).chain(501..=540).chain([700]).chain(1001..=1010);
    assert_eq!(sizes, expected.collect::<Vec<u64>>());
}

/// Check that a function that ends with a jump to another is not treated as abandoned: both return, one within the other.
#[test]
fn tail_calls_are_nested() {
    let scene = Scene::new();
    let program = program("leaves");
    let options = format!("--sim -q -o t.jsonl --uprobe {program}:jumps_on --uprobe {program}:goes_on");
    Ended::of(&mut scene.trace(&options, &format!("{program} tail"))).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    assert_eq!(trace.unfinished(), Vec::<&str>::new());
    let depths = |name| -> Vec<u64> { trace.named(name).map(|call| number(call, "depth")).collect() };
    assert_eq!((depths("jumps_on"), depths("goes_on")), (vec![0; 20], vec![1; 20]));
    let memsets = depths("cudaMemset");
    assert_eq!((memsets[0], memsets[1..].to_vec()), (0, vec![2; 140]));
}

/// Check a program that execs another within a call.
#[test]
fn calls_that_exec_are_begun() {
    let scene = Scene::new();
    let program = program("leaves");
    let options = format!("--sim --driver -q -o t.jsonl --uprobe {program}:becomes");
    Ended::of(&mut scene.trace(&options, &format!("{program} exec"))).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    assert_eq!(trace.unfinished(), ["becomes"]);
    let names: Vec<_> = trace.outermost().into_values().flatten().map(|call| call.name).collect();
    assert_eq!(names, ["cudaFree", "cudaMalloc", "cudaMemset"]);
}
