//! A disk that fills up: a sentence, a status that is not 0, and no loss elsewhere.

use std::os::unix::fs::symlink;

use crate::support::{
    Ended, Scene, folded::kernels_by_path, jsonl::Events, oracle::Walk, program, programs, scene::number,
};

/// Runs `record` where `small/` is a disk of 400 KiB, which is copied to `kept/` afterwards.
fn on_a_small_disk(scene: &Scene, options: &str, walk: Walk) -> Ended {
    let script =
        r#"mkdir small kept && mount -t tmpfs -o size=400k none small && "$@"; s=$?; cp -r small/. kept; exit $s"#;
    let command = format!("record {options} -- {} {}", program("truth"), walk.arguments());
    let mut shell = scene.bare("unshare");
    shell.args(["-m", "sh", "-c", script, "sh", programs::WARPSCOPE]).args(command.split(' '));
    let sim = format!("devices=2,kernel_ns=3us,truth={}", scene.text("truth"));
    Ended::of(shell.env("WARPSCOPE_SIM", sim).env("TRUTH_COPIES", scene.path("copies")))
}

/// The recording's disk is full: the command runs to its end, the sentence names the file and the reason, what was recorded so
/// far can be read, and the flame graph on another disk is whole.
#[test]
fn the_recording_does_not_fit() {
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
    // So much was promised to be readable.
    let notes = report["notes"].to_string();
    assert!(notes.contains(&format!("can be read up to byte {bytes}:")), "{bytes} bytes were promised: {notes}");
}

/// Formats that need every event cannot be whole without a whole recording: they say so, or they are whole.
#[test]
fn events_do_not_fit() {
    let scene = Scene::new();
    let walk = Walk::of(2_500);
    let run = on_a_small_disk(&scene, "--sim -q --gpu-only -o small/x.wscope -o x.jsonl", walk).exits(1);
    let whole = scene.path("x.jsonl").exists() && {
        let events = Events::read(&scene.read("x.jsonl"));
        events.counts(&scene.read("copies")) == walk.counts()
    };
    assert!(whole || run.err().contains("x.jsonl"), "x.jsonl lacks events, and nobody says so: {}", run.err());
}

/// Another output's disk is full: the sentence names it, no half a file stays, and the recording is whole.
#[test]
fn an_output_does_not_fit() {
    let scene = Scene::new();
    let walk = Walk::of(625);
    let run = on_a_small_disk(&scene, "--sim -q --gpu-only -o small/x.jsonl -o x.wscope -o x.folded", walk).exits(1);
    run.says(&["cannot write small/x.jsonl", "No space left on device"]);
    assert!(!scene.path("kept/x.jsonl").exists());
    crate::support::truth::Truth::of(&scene, "truth").agrees(&scene.report("x.wscope"));
    assert_eq!(scene.files(), ["copies", "kept", "small", "truth", "x.folded", "x.wscope"]);
}

/// The command's own failure counts more than ours.
#[test]
fn the_commands_status_comes_first() {
    let scene = Scene::new();
    symlink("/dev/full", scene.path("x.folded")).expect("a link");
    let run = Ended::of(&mut scene.record("--sim -q -o x.folded", &format!("{} status", program("behave")))).exits(42);
    run.says(&["cannot write x.folded", "No space left on device"]);
    assert!(scene.path("x.folded").is_symlink());
}

/// `export` to a full disk fails with a sentence and leaves no half a file.
#[test]
fn an_export_does_not_fit() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} status", program("behave")))).exits(42);
    symlink("/dev/full", scene.path("x.json")).expect("a link");
    let run = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "x.json", "-o", "x.folded"])).exits(1);
    assert!(run.err().contains("warpscope: cannot write x.json: No space left on device"), "{}", run.err());
    assert_ne!(scene.read("x.folded"), "");
}

/// `report` into a pipe that nobody reads any more ends quietly.
#[test]
fn a_reader_that_has_seen_enough() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} status", program("behave")))).exits(42);
    let (from, to) = std::io::pipe().expect("a pipe");
    drop(from);
    let run = Ended::of(scene.warpscope(&["report", "x.wscope"]).stdout(to)).exits(0);
    assert_eq!(run.err(), "");
}

/// A limit on the size of files (`ulimit -f`) is like a full disk: a sentence and a status, not death by SIGXFSZ. The command
/// itself has the signal's default.
#[test]
fn a_limit_on_the_size_of_files() {
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

/// With few file descriptors warpscope ends with a sentence or does its work, and leaves no directory behind.
#[test]
fn few_descriptors() {
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
