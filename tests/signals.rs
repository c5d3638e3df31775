//! Signals and time limits: the command has priority, and what was recorded is written.

use crate::support::{
    Ended, Running, Scene, program, programs,
    running::kill,
    scene::{lost, number},
    wait_until,
};

/// Starts the program that launches until it is interrupted, and waits for its first launch.
fn start_interruptible(scene: &Scene, options: &str) -> Running {
    let mut run = Running::start(&mut scene.record(options, &format!("{} interrupt", program("behave"))));
    assert_eq!(run.stdout_line(), "ready");
    run
}

/// Check that after SIGINT to the whole group, as Ctrl-C sends it, the command cleans up, exits normally, and all outputs are
/// written.
#[test]
fn ctrl_c_ends_the_command_normally() {
    let scene = Scene::new();
    let run = start_interruptible(&scene, "--sim -o x.wscope -o x.svg -o x.folded");
    kill(-run.pid(), libc::SIGINT);
    let run = run.wait().exits(7);
    assert_eq!(run.out(), "ready\ncleaned up\n");
    assert!(run.err().contains("matched 100 %"), "{}", run.err());
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "pending_launches"), number(&report, "sessions_cut_off"), lost(&report)), (0, 0, 0));
    assert_eq!(number(&report, "matched"), number(&report, "launches"));
    assert_eq!(scene.files(), ["x.folded", "x.svg", "x.wscope"]);
}

/// Check that a signal sent to warpscope alone is forwarded to the command.
#[test]
fn signals_are_forwarded() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let scene = Scene::new();
        let run = start_interruptible(&scene, "--sim -q -o x.wscope");
        run.signal(signal);
        let run = run.wait().exits(7);
        assert_eq!(run.out(), "ready\ncleaned up\n");
        let report = scene.report("x.wscope");
        assert_eq!(number(&report, "matched"), number(&report, "launches"));
    }
}

/// Check that, if a forwarded signal kills the command, warpscope dies of it too, after all outputs are written.
#[test]
fn forwarded_deadly_signals_kill_warpscope_too() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let scene = Scene::new();
        let command = format!("ulimit -c 0; exec {} loop 100", program("behave"));
        let mut run = Running::start(&mut scene.record_words("--sim -q -o x.wscope", &["sh", "-c", &command]));
        assert_eq!(run.stdout_line(), "ready");
        run.signal(signal);
        run.wait().dies_of(signal);
        let report = scene.report("x.wscope");
        assert_eq!((report["status"].as_i64(), report["cut_off"].as_bool()), (Some(signal.into()), Some(false)));
        assert!(number(&report, "launches") > 0);
    }
}

/// Check that -d ends the recording, writes it, and leaves the command running; later signals still reach the command.
#[test]
fn duration_ends_only_the_recording() {
    let scene = Scene::new();
    let mut run = start_interruptible(&scene, "--sim -d 0.3 -o x.wscope -o x.svg");
    run.stderr_until("the command keeps running");
    assert!(run.is_running());
    let report = scene.report("x.wscope");
    assert_eq!((report["cut_off"].as_bool(), report["status"].as_i64()), (Some(false), None));
    assert!(number(&report, "matched") > 0 && number(&report, "wall_ns") >= 300_000_000);
    run.signal(libc::SIGTERM);
    let run = run.wait().exits(7);
    assert_eq!(run.out(), "ready\ncleaned up\n");
}

/// Check that programs that use CUDA still run, unrecorded, if the command starts them after -d.
#[test]
fn programs_started_after_the_recording_run() {
    let scene = Scene::new();
    let script = format!("until [ -e go ]; do sleep 0.01; done; {} status", program("behave"));
    let mut command = scene.record_words("--sim -d 0.1 -o x.wscope", &["sh", "-c", &script]);
    let mut run = Running::start(&mut command);
    run.stderr_until("the command keeps running");
    std::fs::write(scene.path("go"), "").expect("a file");
    run.wait().exits(42);
    assert_eq!(number(&scene.report("x.wscope"), "launches"), 0);
}

/// Check that warpscope, if killed, leaves a readable recording and a command that keeps running unharmed.
#[test]
fn killed_warpscope_leaves_a_readable_recording() {
    let scene = Scene::new();
    let mut command = scene.record("-v -o x.wscope", &format!("{} interrupt", program("behave")));
    let mut run = Running::start(command.env("LD_LIBRARY_PATH", programs::libraries()));
    let line = run.stderr_until("recording process");
    let pid = line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid");
    assert_eq!(run.stdout_line(), "ready");
    let recorded = || {
        let report = Ended::of(&mut scene.warpscope(&["report", "--json", "x.wscope.partial"]));
        // The file is not a recording before its first chunk is written.
        let report = serde_json::from_str::<serde_json::Value>(report.out());
        report.is_ok_and(|report| number(&report, "launches") > 0)
    };
    wait_until("launches are on the disk", recorded);
    run.signal(libc::SIGKILL);
    // Nobody receives records now. The command keeps running until it gets a signal.
    let report = scene.report("x.wscope.partial");
    assert_eq!(report["cut_off"].as_bool(), Some(true));
    assert!(number(&report, "launches") > 0);
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope.partial"])).exits(0);
    assert!(text.out().contains("the recording is incomplete"), "{}", text.out());
    assert_eq!(kill(pid, libc::SIGTERM), 0, "the command still runs");
    let run = run.wait().dies_of(libc::SIGKILL);
    assert_eq!(run.out(), "ready\ncleaned up\n");
    // The killed process could not remove its private directory. If the next run does not, the test fails at its end.
    assert_eq!(std::fs::read_dir(scene.temporary()).expect("the directory").count(), 1);
    Ended::of(&mut scene.record("-q -o y.svg", "true")).exits(0);
}

/// Check that -d with --kill ends the command after the recording, by SIGTERM, which it may handle, or by SIGKILL.
#[test]
fn kill_ends_the_command_after_the_duration() {
    let record = |command: &[&str]| {
        let scene = Scene::new();
        let run = Ended::of(&mut scene.record_words("--sim -q -d 0.5 --kill -o x.wscope -o x.svg", command));
        assert_eq!(scene.files(), ["x.svg", "x.wscope"]);
        run
    };
    let behave = program("behave");
    // It dies of SIGTERM, which is not a failure.
    let run = record(&[&behave, "loop", "600"]).exits(0);
    assert_eq!(run.out(), "ready\n");
    // It handles SIGTERM, and its own status counts.
    let run = record(&[&behave, "interrupt"]).exits(7);
    assert_eq!(run.out(), "ready\ncleaned up\n");
    // It ignores SIGTERM, before and after its exec.
    record(&["sh", "-c", "trap '' TERM; exec sleep 600"]).exits(0);
    // It ends before the time is over.
    record(&[&behave, "status"]).exits(42);
    let scene = Scene::new();
    Ended::of(&mut scene.record("--kill -o x.svg", "true")).exits(2);
}
