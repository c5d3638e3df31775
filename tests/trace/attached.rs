//! `-p` and `-a`: programs that are already running, or start later.

use std::{fs, process::Command, time::SystemTime};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    calls::{ByThread, Trace, account},
    programs,
};

use super::calls::same;

/// Starts the program that makes known calls until `stop` exists, and waits for its first call.
fn start(scene: &Scene, mode: &str) -> Running {
    let mut run = Running::start(scene.bare_cuda("traced").args([mode, "account", "stop"]));
    assert_eq!(run.stdout_line(), "ready");
    run
}

/// Asserts that the calls of a process are the end of its own account, without a gap. Driver calls within earlier runtime calls
/// may come first, because one library is watched before the other.
#[track_caller]
fn assert_suffix(trace: &ByThread, account: &ByThread, pid: libc::pid_t) {
    let thread = (u64::from(pid.cast_unsigned()), u64::from(pid.cast_unsigned()));
    let (seen, made) = (&trace[&thread], &account[&thread]);
    let first = seen.iter().position(|call| call.name.starts_with("cuda")).expect("calls of the runtime");
    assert!(seen[..first].iter().all(|call| call.name == "cuMemsetD8Async"), "{:?}", &seen[..first]);
    let seen = &seen[first..];
    assert!(seen.len() >= 50, "{} calls of {pid} were seen", seen.len());
    for (seen, made) in seen.iter().zip(&made[made.len() - seen.len()..]) {
        assert_eq!(seen, made);
    }
}

/// Check that -p, given twice, traces both processes from the middle on, and no others, and ends when they do.
#[test]
fn running_processes_are_traced() {
    let scene = Scene::new();
    let (one, two, other) = (start(&scene, "steps"), start(&scene, "steps"), start(&scene, "steps"));
    let options = format!("-p {} -p {} --live -o t.jsonl", one.pid(), two.pid());
    let mut run = Running::start(&mut scene.trace(&options, ""));
    run.stderr_until(&format!("/{} ", one.pid()));
    run.stderr_until(&format!("/{} ", two.pid()));
    fs::write(scene.path("stop"), "").expect("a file");
    let pids = [one.pid(), two.pid()];
    for program in [one, two, other] {
        program.wait().exits(0);
    }
    run.wait().exits(0);
    let (trace, made) = (Trace::read(&scene.read("t.jsonl")).outermost(), account(&scene.read("account")));
    assert_eq!((trace.len(), made.len()), (2, 3));
    for pid in pids {
        assert_suffix(&trace, &made, pid);
    }
}

/// Check that lines of calls go to the standard output if they are the main output, as JSON on request, and that the summary does
/// not.
#[test]
fn live_lines_are_the_main_output() {
    let scene = Scene::new();
    let program = start(&scene, "steps");
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_nanos() as u64;
    let before = now();
    let mut run = Running::start(&mut scene.trace(&format!("-p {} --live=json", program.pid()), ""));
    let first = run.stdout_line();
    let header: Value = serde_json::from_str(&first).expect("JSON");
    let call: Value = serde_json::from_str(&run.stdout_line()).expect("JSON");
    let zero = header["unix_ns"].as_u64().expect("the time of zero");
    assert!(header["type"] == "start" && (before..now()).contains(&zero), "{header}");
    let called = zero + (call["ts"].as_f64().expect("a time") * 1e9) as u64;
    assert!((zero..now()).contains(&called), "{call} after {header}");
    fs::write(scene.path("stop"), "").expect("a file");
    program.wait().exits(0);
    let run = run.wait().exits(0);
    assert!(run.out().starts_with(&first) && run.err().contains("wrote trace.wscope"), "{}", run.err());
    let export = Ended::of(&mut scene.warpscope(&["export", "trace.wscope", "-o", "t.jsonl"])).exits(0);
    assert_eq!(export.out(), "");
    let calls = |text: &str| {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let calls = lines.filter(|line| line["type"] == "userspace");
        let calls = calls.map(|line| format!("{} {} {} {}", line["ts"], line["tid"], line["name"], line["ret"]));
        calls.collect::<Vec<_>>()
    };
    let live = calls(run.out());
    assert!(live.len() >= 2, "{live:?}");
    assert_eq!(live, calls(&scene.read("t.jsonl")));
}

/// Check that -p follows the processes that it forks later, and the programs that those execute.
#[test]
fn later_children_are_traced() {
    let scene = Scene::new();
    let parent = start(&scene, "family");
    let mut run = Running::start(&mut scene.trace(&format!("-p {} --live -o t.jsonl", parent.pid()), ""));
    run.stderr_until("cudaMemset(");
    fs::write(scene.path("stop"), "").expect("a file");
    let pid = parent.pid();
    parent.wait().exits(0);
    run.wait().exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    trace.check_nesting();
    let (mut trace, mut made) = (trace.outermost(), account(&scene.read("account")));
    assert_suffix(&trace, &made, pid);
    let thread = (u64::from(pid.cast_unsigned()), u64::from(pid.cast_unsigned()));
    trace.remove(&thread);
    made.remove(&thread);
    assert_eq!(made.len(), 1 + 4);
    same(&trace, &made);
}

/// Check that -a traces a running process and one that starts later, neither of them started by warpscope, and that SIGINT ends
/// the trace.
#[test]
fn all_processes_are_traced() {
    let scene = Scene::new();
    let early = start(&scene, "steps");
    let mut run = Running::start(&mut scene.trace("-a --live -o t.jsonl -o t.wscope", ""));
    run.stderr_until(&format!("/{} ", early.pid()));
    let late = start(&scene, "steps");
    run.stderr_until(&format!("/{} ", late.pid()));
    fs::write(scene.path("stop"), "").expect("a file");
    let pids = [early.pid(), late.pid()];
    early.wait().exits(0);
    late.wait().exits(0);
    run.signal(libc::SIGINT);
    run.wait().exits(0);
    // Other tests may run at the same time.
    let (trace, made) = (Trace::read(&scene.read("t.jsonl")).outermost(), account(&scene.read("account")));
    for pid in pids {
        assert_suffix(&trace, &made, pid);
    }
    scene.report("t.wscope");
}

/// Check that kernels that were registered before warpscope came have their names: from the symbols of their host functions, or, in
/// a stripped program, from the code that registered them; and also if the program launches by handles that it requested before.
#[test]
fn kernels_registered_before_have_names() {
    for (launched_by, strip) in [("functions", false), ("functions", true), ("handles", false), ("handles", true)] {
        let scene = Scene::new();
        let path = scene.path("program");
        programs::copy(programs::program("registered"), &path);
        if strip {
            programs::run(Command::new("strip").arg(&path));
        }
        let (input, end) = std::io::pipe().expect("a pipe");
        let mut command = scene.bare(&path);
        command.arg(launched_by).stdin(input).env("LD_LIBRARY_PATH", programs::libraries());
        let mut program = Running::start(&mut command);
        assert_eq!(program.stdout_line(), "ready");
        let options = format!("-q -p {} -d 0.5 -o t.wscope", program.pid());
        Running::start(&mut scene.trace(&options, "")).wait().exits(0);
        let report = scene.report("t.wscope");
        let launches = report["trace"]["launches"].as_array().expect("launches");
        let names: Vec<_> = launches.iter().map(|row| row["kernel"].as_str().expect("a name")).collect();
        assert_eq!(names, ["scale(float*, int)", "plain_sum"], "by {launched_by}, stripped: {strip}");
        drop(end);
        program.wait().exits(0);
    }
}

/// Check that a process that ends before it is inspected does not make the trace hang.
#[test]
fn short_processes_do_not_hang_the_trace() {
    let scene = Scene::new();
    fs::write(scene.path("stop"), "").expect("a file");
    let program = Running::start(scene.bare_cuda("traced").args(["steps", "account", "stop"]));
    let run = Running::start(&mut scene.trace(&format!("-q --driver -p {} -o t.jsonl", program.pid()), ""));
    program.wait().exits(0);
    let run = run.wait();
    match run.status.code() {
        Some(0) => drop(Trace::read(&scene.read("t.jsonl"))),
        _ => drop(run.exits(1).says(&["there is no process"])),
    }
}
