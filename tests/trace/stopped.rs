//! Ctrl-C in the middle of a trace: the command exits normally, and the files are complete.

use std::fs;

use serde_json::Value;

use crate::support::{Running, Scene, calls::Trace, program, running::kill};

/// Asserts that every file can be read to its end, and that all three have the same calls.
#[track_caller]
fn assert_complete(scene: &Scene) -> Trace {
    let trace = Trace::read(&scene.read("t.jsonl"));
    let chrome: Value = serde_json::from_str(&scene.read("t.json")).expect("JSON");
    let events = chrome["traceEvents"].as_array().expect("events");
    assert!(events.len() >= trace.all.len());
    let report = scene.report("t.wscope");
    assert_eq!(report["cut_off"], false);
    assert_eq!(
        scene.files().into_iter().filter(|file| file.starts_with("t.")).collect::<Vec<_>>(),
        ["t.json", "t.jsonl", "t.wscope"]
    );
    trace
}

const OUTPUTS: &str = "-q -o t.jsonl -o t.json -o t.wscope";

/// Check that the files are complete after SIGINT to the assert_complete group, as Ctrl-C sends it.
#[test]
fn ctrl_c_leaves_complete_files() {
    let scene = Scene::new();
    let command = format!("{} interrupt", program("behave"));
    let mut run = Running::start(&mut scene.trace(&format!("--sim {OUTPUTS}"), &command));
    assert_eq!(run.stdout_line(), "ready");
    kill(-run.pid(), libc::SIGINT);
    let run = run.wait().exits(7);
    assert_eq!(run.out(), "ready\ncleaned up\n");
    let trace = assert_complete(&scene);
    trace.check_nesting();
    let [kernels, ..] = trace.check_gpu();
    let launches = trace.named("cudaLaunchKernel").count();
    assert!(kernels > 0 && kernels == launches, "{kernels} kernels of {launches} launches");
    assert_eq!(trace.unfinished(), Vec::<&str>::new());
}

/// Check that, after SIGINT or SIGTERM to an attached warpscope, the files are complete and the traced process keeps running.
#[test]
fn signals_end_only_an_attached_trace() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let scene = Scene::new();
        let mut program = Running::start(scene.bare_cuda("traced").args(["steps", "account", "stop"]));
        assert_eq!(program.stdout_line(), "ready");
        let mut run = Running::start(
            &mut scene.trace(&format!("--live -p {} {}", program.pid(), OUTPUTS.trim_start_matches("-q ")), ""),
        );
        run.stderr_until("cudaMemset(");
        run.signal(signal);
        run.wait().exits(0);
        assert!(program.is_running());
        let trace = assert_complete(&scene);
        assert!(trace.named("cudaMemset").count() > 0);
        fs::write(scene.path("stop"), "").expect("a file");
        program.wait().exits(0);
    }
}
