//! A command under warpscope prints, exits and dies exactly as without it.

use std::{
    fs::File,
    io::{Read, Write},
    process::Stdio,
};

use crate::support::{Ended, Running, Scene, program, programs, scene::number};

/// The exit status of the command is the exit status of `record`.
#[test]
fn exit_status() {
    let scene = Scene::new();
    for (command, code) in [
        ("true".to_owned(), 0),
        ("false".to_owned(), 1),
        (format!("{} none", program("behave")), 0),
        (format!("{} status", program("behave")), 42),
        (program("behave"), 2),
    ] {
        Ended::of(&mut scene.record("--sim -q -o x.svg", &command)).exits(code);
    }
    for code in [3, 126, 127, 128, 137, 255] {
        Ended::of(&mut scene.record_words("-q -o x.svg", &["sh", "-c", &format!("exit {code}")])).exits(code);
    }
}

/// A command killed by a signal: warpscope ends by the same signal, with everything written.
#[test]
fn deadly_signals() {
    for (name, signal) in
        [("KILL", libc::SIGKILL), ("SEGV", libc::SIGSEGV), ("TERM", libc::SIGTERM), ("ABRT", libc::SIGABRT)]
    {
        let scene = Scene::new();
        let script = format!("ulimit -c 0; {} status; kill -{name} $$", program("behave"));
        Ended::of(&mut scene.record_words("--sim -q -o x.wscope -o x.svg", &["sh", "-c", &script])).dies_of(signal);
        let report = scene.report("x.wscope");
        assert_eq!((number(&report, "matched"), report["status"].as_i64()), (1, Some(signal.into())));
        assert_eq!(scene.files(), ["x.svg", "x.wscope"]);
    }
}

/// A CUDA program that kills itself right after its launches: every launch is in the recording.
#[test]
fn killed_in_the_middle() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record("--sim -o x.wscope", &format!("{} kill 3000", program("behave"))));
    let run = run.dies_of(libc::SIGKILL);
    assert!(run.err().contains("1 CUDA process exited before flushing its GPU records"), "{}", run.err());
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), number(&report, "sessions_cut_off")), (3_000, 1));
    assert_eq!(number(&report, "matched") + number(&report, "pending_launches"), 3_000);
}

/// stdout and stderr are the command's, byte by byte; warpscope's summary comes after it, and with -q not at all.
#[test]
fn output_is_untouched() {
    let scene = Scene::new();
    let bare = Ended::of(scene.bare_cuda("behave").arg("output")).exits(0);
    assert_eq!((bare.stdout.len(), bare.stderr.len()), (9_000, 9_000));
    let command = format!("{} output", program("behave"));
    let quiet = Ended::of(&mut scene.record("--sim -q -o x.svg", &command)).exits(0);
    assert!(quiet.stdout == bare.stdout && quiet.stderr == bare.stderr, "with -q nothing is added");
    let loud = Ended::of(&mut scene.record("--sim -o x.svg", &command)).exits(0);
    assert!(loud.stdout == bare.stdout, "nothing is added to stdout");
    let added = loud.stderr.strip_prefix(&bare.stderr[..]).expect("the command's stderr comes first");
    assert!(String::from_utf8_lossy(added).contains("matched 100 %"));
}

/// stdout and stderr on one pipe keep their order.
#[test]
fn output_keeps_its_order() {
    let scene = Scene::new();
    let script = "for i in 1 2 3 4 5 6 7 8; do echo out $i; echo err $i >&2; done";
    let (mut from, to) = std::io::pipe().expect("a pipe");
    let mut command = scene.record_words("-q -o x.svg", &["sh", "-c", script]);
    command.stdout(to.try_clone().expect("the same pipe")).stderr(to);
    let run = Running::start(&mut command);
    drop(command);
    let mut text = String::new();
    from.read_to_string(&mut text).expect("text");
    run.wait().exits(0);
    let expected: String = (1..=8).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(text, expected);
}

/// stdin goes to the command, all of it and unchanged.
#[test]
fn stdin_is_passed_on() {
    let scene = Scene::new();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    File::create(scene.path("in")).and_then(|mut file| file.write_all(&bytes)).expect("a file");
    let mut command = scene.record("-q -o x.svg", "cat");
    command.stdin(Stdio::from(File::open(scene.path("in")).expect("the file")));
    let run = Ended::of(&mut command).exits(0);
    assert!(run.stdout == bytes, "{} bytes came out", run.stdout.len());
}

/// A child forked without exec, in which CUDA does not work, changes nothing: the parent's launches are all matched.
#[test]
fn fork_without_exec() {
    let scene = Scene::new();
    let script = format!("truth={}", scene.text("truth"));
    let command = format!("{} fork 500", program("behave"));
    Ended::of(scene.record("--sim -q -o x.wscope", &command).env("WARPSCOPE_SIM", script)).exits(0);
    crate::support::truth::Truth::of(&scene, "truth").agrees(&scene.report("x.wscope"));
    assert_eq!(number(&scene.report("x.wscope"), "launches"), 1_000);
}

/// A target that exits at once, or does nothing on a GPU, leaves a recording and a picture like any other.
#[test]
fn exits_at_once() {
    let scene = Scene::new();
    let run =
        Ended::of(&mut scene.record("-o x.svg -o x.wscope -o x.folded -o x.json -o x.jsonl -o x.cpu.txt", "true"));
    run.exits(0);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), report["status"].as_i64()), (0, Some(0)));
    assert_eq!(scene.files(), ["x.cpu.txt", "x.folded", "x.json", "x.jsonl", "x.svg", "x.wscope"]);
}

/// The children of a shell are followed from their first instruction, one after the other and side by side.
#[test]
fn children_of_a_shell() {
    let scene = Scene::new();
    let (behave, truth) = (program("behave"), program("truth"));
    let script = format!("{behave} status; {truth} 1 2 1 1 200 & {truth} 2 1 1 1 300 & wait; {behave} status; exit 9");
    let command = scene.record_words("--sim -q -o x.wscope -o x.folded", &["bash", "-c", &script]);
    let sim = format!("kernel_ns=3us,truth={}", scene.text("truth"));
    Ended::of({ command }.env("WARPSCOPE_SIM", sim)).exits(9);
    let truth = crate::support::truth::Truth::of(&scene, "truth");
    assert_eq!((truth.processes, truth.launched), (5, 400 + 600 + 2));
    truth.agrees(&scene.report("x.wscope"));
}

/// A child that outlives the command does not hold warpscope up, and is not harmed by its end, though it starts to use CUDA
/// only afterwards.
#[test]
fn a_child_outlives_the_command() {
    let scene = Scene::new();
    let script = format!(
        "{{ {} late go; echo $? > ended; }} > pid 2>&1 < /dev/null & until [ -s pid ]; do :; done; exit 3",
        program("spawn")
    );
    let mut command = scene.record_words("-q -o x.wscope", &["sh", "-c", &script]);
    Ended::of(command.env("LD_LIBRARY_PATH", programs::libraries())).exits(3);
    assert_eq!(number(&scene.report("x.wscope"), "launches"), 0);
    let descriptors = format!("/proc/{}/fd", scene.read("pid").trim());
    let open = std::fs::read_dir(descriptors).expect("the child still runs").count();
    // Less the one that the lister itself has open.
    let bare = Ended::of(scene.bare("ls").arg("/proc/self/fd")).exits(0).out().lines().count() - 1;
    assert_eq!(open, bare, "the child holds descriptors of ours");
    File::create(scene.path("go")).expect("a file");
    crate::support::wait_until("the child ends", || scene.path("ended").metadata().is_ok_and(|file| file.len() > 0));
    assert_eq!(scene.read("ended"), "5\n");
}
