//! `-p` and `-a`: programs that run already, or start later.

use std::fs;

use crate::support::{
    Running, Scene,
    calls::{ByThread, Trace, account},
};

use super::calls::same;

/// Starts the program that makes known calls until `stop` exists, and waits until it has made one.
fn start(scene: &Scene, mode: &str) -> Running {
    let mut run = Running::start(scene.bare_cuda("traced").args([mode, "account", "stop"]));
    assert_eq!(run.stdout_line(), "ready");
    run
}

/// The calls of a process are its own account from some call on to the end, without a gap. Before that there may be what
/// they led to, for one library is watched before the other.
#[track_caller]
fn is_the_rest(trace: &ByThread, account: &ByThread, pid: libc::pid_t) {
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

/// -p, twice: both processes from the middle on, nobody else, and it ends when they do.
#[test]
fn running_processes() {
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
        is_the_rest(&trace, &made, pid);
    }
}

/// -p follows what the process forks later, and what that executes.
#[test]
fn later_children() {
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
    is_the_rest(&trace, &made, pid);
    let thread = (u64::from(pid.cast_unsigned()), u64::from(pid.cast_unsigned()));
    trace.remove(&thread);
    made.remove(&thread);
    assert_eq!(made.len(), 1 + 4);
    same(&trace, &made);
}

/// -a: a process that runs already and one that starts later, neither of which we started. SIGINT ends the trace.
#[test]
fn everybody() {
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
    // Other tests may run beside this one.
    let (trace, made) = (Trace::read(&scene.read("t.jsonl")).outermost(), account(&scene.read("account")));
    for pid in pids {
        is_the_rest(&trace, &made, pid);
    }
    scene.report("t.wscope");
}

/// A process that ends before it is looked at is no reason to hang.
#[test]
fn ends_soon() {
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
