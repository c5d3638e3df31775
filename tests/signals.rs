//! Signals and time limits: the command comes first, and what was recorded is written.

use crate::support::{
    Ended, Running, Scene, program, programs,
    running::kill,
    scene::{lost, number},
    wait_until,
};

/// Starts the program that launches until it is interrupted, and waits until it does.
fn start_interruptible(scene: &Scene, options: &str) -> Running {
    let mut run = Running::start(&mut scene.record(options, &format!("{} interrupt", program("behave"))));
    assert_eq!(run.stdout_line(), "ready");
    run
}

/// SIGINT to the whole group, as Ctrl-C sends it: the command cleans up, exits its own way, and everything is written.
#[test]
fn interrupt_of_the_group() {
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

/// A signal that warpscope alone is sent is meant for the command.
#[test]
fn signals_to_warpscope_are_passed_on() {
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

/// A command that a passed-on signal kills: warpscope dies of it too, after everything is written.
#[test]
fn a_deadly_signal_is_passed_on() {
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

/// -d ends the recording, writes it, and lets the command run on; a signal still reaches the command afterwards.
#[test]
fn duration() {
    let scene = Scene::new();
    let mut run = start_interruptible(&scene, "--sim -d 0.3 -o x.wscope -o x.svg");
    run.stderr_until("the command runs on");
    assert!(run.is_running());
    let report = scene.report("x.wscope");
    assert_eq!((report["cut_off"].as_bool(), report["status"].as_i64()), (Some(false), None));
    assert!(number(&report, "matched") > 0 && number(&report, "wall_ns") >= 300_000_000);
    run.signal(libc::SIGTERM);
    let run = run.wait().exits(7);
    assert_eq!(run.out(), "ready\ncleaned up\n");
}

/// After -d the command may still start programs that use CUDA: they run, unrecorded.
#[test]
fn programs_started_after_the_recording() {
    let scene = Scene::new();
    let script = format!("until [ -e go ]; do sleep 0.01; done; {} status", program("behave"));
    let mut command = scene.record_words("--sim -d 0.1 -o x.wscope", &["sh", "-c", &script]);
    let mut run = Running::start(&mut command);
    run.stderr_until("the command runs on");
    std::fs::write(scene.path("go"), "").expect("a file");
    run.wait().exits(42);
    assert_eq!(number(&scene.report("x.wscope"), "launches"), 0);
}

/// Killed outright, warpscope leaves a recording that can be read, and a command that runs on unharmed.
#[test]
fn warpscope_is_killed() {
    let scene = Scene::new();
    let mut command = scene.record("-v -o x.wscope", &format!("{} interrupt", program("behave")));
    let mut run = Running::start(command.env("LD_LIBRARY_PATH", programs::libraries()));
    let line = run.stderr_until("recording process");
    let pid = line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid");
    assert_eq!(run.stdout_line(), "ready");
    let recorded = || {
        let report = Ended::of(&mut scene.warpscope(&["report", "--json", "x.wscope.partial"]));
        // Before its first chunk is written it is no recording.
        let report = serde_json::from_str::<serde_json::Value>(report.out());
        report.is_ok_and(|report| number(&report, "launches") > 0)
    };
    wait_until("launches are on the disk", recorded);
    run.signal(libc::SIGKILL);
    // Nobody is there to receive now. The command goes on until it is told to stop.
    let report = scene.report("x.wscope.partial");
    assert_eq!(report["cut_off"].as_bool(), Some(true));
    assert!(number(&report, "launches") > 0);
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope.partial"])).exits(0);
    assert!(text.out().contains("the recording has no end"), "{}", text.out());
    assert_eq!(kill(pid, libc::SIGTERM), 0, "the command still runs");
    let run = run.wait().dies_of(libc::SIGKILL);
    assert_eq!(run.out(), "ready\ncleaned up\n");
    // Nobody was left to remove the private directory: the next run does, or the test fails at its end.
    assert_eq!(std::fs::read_dir(scene.temporary()).expect("the directory").count(), 1);
    Ended::of(&mut scene.record("-q -o y.svg", "true")).exits(0);
}

/// -d with --kill ends the command after the recording: by SIGTERM, which it may handle, or else by SIGKILL.
#[test]
fn duration_with_kill() {
    let record = |command: &[&str]| {
        let scene = Scene::new();
        let run = Ended::of(&mut scene.record_words("--sim -q -d 0.5 --kill -o x.wscope -o x.svg", command));
        assert_eq!(scene.files(), ["x.svg", "x.wscope"]);
        run
    };
    let behave = program("behave");
    // It dies of SIGTERM: no failure.
    let run = record(&[&behave, "loop", "600"]).exits(0);
    assert_eq!(run.out(), "ready\n");
    // It handles SIGTERM: its own status counts.
    let run = record(&[&behave, "interrupt"]).exits(7);
    assert_eq!(run.out(), "ready\ncleaned up\n");
    // It ignores SIGTERM, and so does what it becomes.
    record(&["sh", "-c", "trap '' TERM; exec sleep 600"]).exits(0);
    // It ends before the time is over.
    record(&[&behave, "status"]).exits(42);
    let scene = Scene::new();
    Ended::of(&mut scene.record("--kill -o x.svg", "true")).exits(2);
}
