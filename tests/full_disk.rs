//! A disk that fills up causes a clear error and a non-zero status, and no loss in other outputs.

use std::os::unix::fs::symlink;

use crate::support::{
    Ended, Scene, folded::kernels_by_path, jsonl::Events, oracle::Walk, program, programs, scene::number,
};

/// Runs `record` with a disk of 400 KiB at `small/`, and copies its contents to `kept/` afterwards.
fn on_a_small_disk(scene: &Scene, options: &str, walk: Walk) -> Ended {
    let script =
        r#"mkdir small kept && mount -t tmpfs -o size=400k none small && "$@"; s=$?; cp -r small/. kept; exit $s"#;
    let command = format!("record {options} -- {} {}", program("truth"), walk.arguments());
    let mut shell = scene.bare("unshare");
    shell.args(["-m", "sh", "-c", script, "sh", programs::WARPSCOPE]).args(command.split(' '));
    let sim = format!("devices=2,kernel_ns=3us,truth={}", scene.text("truth"));
    Ended::of(shell.env("WARPSCOPE_SIM", sim).env("TRUTH_COPIES", scene.path("copies")))
}

/// Check that, if the recording's disk is full, the command runs to its end, the error names the file and the reason, the part
/// recorded so far can be read, and the flame graph on another disk is complete.
#[test]
fn full_disk_keeps_the_start_of_the_recording() {
    let scene = Scene::new();
    let walk = Walk::of(2_500);
    let run = on_a_small_disk(&scene, "--sim -q --gpu-only -o small/x.wscope -o x.folded -o x.svg", walk).exits(1);
    assert_eq!(run.out(), "launched 40000\n");
    let missing = scene.read("x.svg").split("\"events_not_written\":").nth(1).and_then(|rest| {
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|number| number.parse::<u64>().ok())
    });
    assert!(missing.is_some_and(|missing| missing > 10_000), "{missing:?} events are missing in the recording");
    let run = run.says(&["small/x.wscope", "No space left on device"]);
    let bytes = run.err().split("beyond its first ").nth(1).and_then(|rest| rest.split(' ').next()).expect("how much");
    let expected: u64 = crate::support::truth::Truth::of(&scene, "truth").kernels;
    assert_eq!(kernels_by_path(&scene.read("x.folded"), 3).values().sum::<u64>(), expected);
    let report = scene.report("kept/x.wscope");
    assert_eq!(report["cut_off"].as_bool(), Some(true));
    let kept = number(&report, "launches") + number(&report, "matched");
    assert!((1..80_000).contains(&kept), "{} launches, {} matched", report["launches"], report["matched"]);
    // The message said that this many bytes are readable.
    let notes = report["notes"].to_string();
    assert!(notes.contains(&format!("can be read up to byte {bytes}:")), "{bytes} bytes were promised: {notes}");
}

/// Check that formats that need every event are complete without a complete recording, or say that they are not.
#[test]
fn incomplete_event_outputs_are_reported() {
    let scene = Scene::new();
    let walk = Walk::of(2_500);
    let run = on_a_small_disk(&scene, "--sim -q --gpu-only -o small/x.wscope -o x.jsonl", walk).exits(1);
    let whole = scene.path("x.jsonl").exists() && {
        let events = Events::read(&scene.read("x.jsonl"));
        events.counts(&scene.read("copies")) == walk.counts()
    };
    assert!(whole || run.err().contains("x.jsonl"), "x.jsonl lacks events, and no message says so: {}", run.err());
}

/// Check that, if another output's disk is full, the error names it, no partial file is left, and the recording is complete.
#[test]
fn full_disk_leaves_no_partial_output() {
    let scene = Scene::new();
    let walk = Walk::of(625);
    let run = on_a_small_disk(&scene, "--sim -q --gpu-only -o small/x.jsonl -o x.wscope -o x.folded", walk).exits(1);
    run.says(&["cannot write small/x.jsonl", "No space left on device"]);
    assert!(!scene.path("kept/x.jsonl").exists());
    crate::support::truth::Truth::of(&scene, "truth").agrees(&scene.report("x.wscope"));
    assert_eq!(scene.files(), ["copies", "kept", "small", "truth", "x.folded", "x.wscope"]);
}

/// Check that the command's own failure status takes precedence over warpscope's.
#[test]
fn command_status_takes_precedence() {
    let scene = Scene::new();
    symlink("/dev/full", scene.path("x.folded")).expect("a link");
    let run = Ended::of(&mut scene.record("--sim -q -o x.folded", &format!("{} status", program("behave")))).exits(42);
    run.says(&["cannot write x.folded", "No space left on device"]);
    assert!(scene.path("x.folded").is_symlink());
}

/// Check that `export` to a full disk fails with a clear error and leaves no partial file.
#[test]
fn export_to_a_full_disk_fails() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} status", program("behave")))).exits(42);
    symlink("/dev/full", scene.path("x.json")).expect("a link");
    let run = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "x.json", "-o", "x.folded"])).exits(1);
    assert!(run.err().contains("warpscope: cannot write x.json: No space left on device"), "{}", run.err());
    assert_ne!(scene.read("x.folded"), "");
}

/// Check that `report` exits quietly if nobody reads its pipe any more.
#[test]
fn report_to_a_closed_pipe_is_quiet() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} status", program("behave")))).exits(42);
    let (from, to) = std::io::pipe().expect("a pipe");
    drop(from);
    let run = Ended::of(scene.warpscope(&["report", "x.wscope"]).stdout(to)).exits(0);
    assert_eq!(run.err(), "");
}

/// Check that a limit on file sizes (`ulimit -f`) is handled like a full disk, with an error and a status, not death by SIGXFSZ.
/// The command itself has the signal's default disposition.
#[test]
fn file_size_limits_are_reported() {
    let scene = Scene::new();
    let script = format!("ulimit -f 4096; exec {} record --sim -q -o x.jsonl -- \"$@\"", programs::WARPSCOPE);
    let arguments = format!("{} {}", program("truth"), Walk::of(2_500).arguments());
    let mut shell = scene.bare("bash");
    shell.args(["-c", &script, "bash"]).args(arguments.split(' ')).env("WARPSCOPE_SIM", "devices=2,kernel_ns=3us");
    let run = Ended::of(&mut shell).exits(1);
    assert_eq!(run.out(), "launched 40000\n");
    run.says(&["x.jsonl", "File too large"]);
    let command = ["bash", "-c", "grep SigIgn /proc/self/status"];
    let mut shell = scene.bare("bash");
    let bare = Ended::of(shell.args(&command[1..])).exits(0);
    let under = Ended::of(&mut scene.record_words("-q -o y.svg", &command)).exits(0);
    assert_eq!(under.out(), bare.out());
}

/// Check that, with few file descriptors, warpscope works or fails with a message, and leaves no directory behind.
#[test]
fn few_descriptors_are_handled() {
    for limit in 4..=24 {
        let scene = Scene::new();
        let script =
            format!("ulimit -n {limit}; exec timeout 60 {} record --sim -o x.svg -- true", programs::WARPSCOPE);
        std::fs::create_dir(scene.path("tmp.own")).expect("a directory");
        let mut shell = scene.bare("bash");
        let run = Ended::of(shell.args(["-c", &script]).env("TMPDIR", scene.path("tmp.own")));
        assert_ne!(run.status.code(), Some(124), "it hung with {limit} descriptors");
        let left: Vec<_> = std::fs::read_dir(scene.path("tmp.own")).expect("it is there").flatten().collect();
        assert!(left.is_empty(), "{limit} descriptors: {left:?}\n{}", run.err());
    }
}
