//! A command under warpscope prints, exits and dies exactly as it does without warpscope.

use std::{
    fs::File,
    io::{Read, Write},
    process::Stdio,
};

use crate::support::{Ended, Running, Scene, program, programs, scene::number};

/// Check that `record` exits with the exit status of the command.
#[test]
fn exit_status_is_the_commands() {
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

/// Check that, if a signal kills the command, warpscope dies of the same signal with all outputs written.
#[test]
fn warpscope_dies_of_the_commands_signal() {
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

/// Check that the recording has every launch of a CUDA program that kills itself right after its launches.
#[test]
fn launches_of_a_killed_program_are_recorded() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record("--sim -o x.wscope", &format!("{} kill 3000", program("behave"))));
    let run = run.dies_of(libc::SIGKILL);
    assert!(run.err().contains("1 CUDA process exited before flushing its GPU records"), "{}", run.err());
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), number(&report, "sessions_cut_off")), (3_000, 1));
    assert_eq!(number(&report, "matched") + number(&report, "pending_launches"), 3_000);
}

/// Check that stdout and stderr are the command's, byte by byte. warpscope's summary follows, or nothing with -q.
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

/// Check that stdout and stderr keep their order on one pipe.
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

/// Check that the command reads all of stdin unchanged.
#[test]
fn stdin_reaches_the_command() {
    let scene = Scene::new();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    File::create(scene.path("in")).and_then(|mut file| file.write_all(&bytes)).expect("a file");
    let mut command = scene.record("-q -o x.svg", "cat");
    command.stdin(Stdio::from(File::open(scene.path("in")).expect("the file")));
    let run = Ended::of(&mut command).exits(0);
    assert!(run.stdout == bytes, "{} bytes came out", run.stdout.len());
}

/// Check that a child forked without exec, in which CUDA does not work, changes nothing: all launches of the parent match.
#[test]
fn fork_without_exec_is_harmless() {
    let scene = Scene::new();
    let script = format!("truth={}", scene.text("truth"));
    let command = format!("{} fork 500", program("behave"));
    Ended::of(scene.record("--sim -q -o x.wscope", &command).env("WARPSCOPE_SIM", script)).exits(0);
    crate::support::truth::Truth::of(&scene, "truth").agrees(&scene.report("x.wscope"));
    assert_eq!(number(&scene.report("x.wscope"), "launches"), 1_000);
}

/// Check that a command that exits at once, or does no GPU work, still gives a recording and a flame graph.
#[test]
fn commands_without_gpu_work_give_all_outputs() {
    let scene = Scene::new();
    let run =
        Ended::of(&mut scene.record("-o x.svg -o x.wscope -o x.folded -o x.json -o x.jsonl -o x.cpu.txt", "true"));
    run.exits(0);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), report["status"].as_i64()), (0, Some(0)));
    assert_eq!(scene.files(), ["x.cpu.txt", "x.folded", "x.json", "x.jsonl", "x.svg", "x.wscope"]);
}

/// Check that the children of a shell are followed from their first instruction, in sequence and in parallel.
#[test]
fn children_of_a_shell_are_followed() {
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

/// Check that a child that outlives the command does not delay warpscope, and that the end of warpscope does not harm the
/// child, which first uses CUDA afterwards.
#[test]
fn children_that_outlive_the_command_are_unharmed() {
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
    // `ls` itself has the directory open.
    let bare = Ended::of(scene.bare("ls").arg("/proc/self/fd")).exits(0).out().lines().count() - 1;
    assert_eq!(open, bare, "the child holds descriptors of ours");
    File::create(scene.path("go")).expect("a file");
    crate::support::wait_until("the child ends", || scene.path("ended").metadata().is_ok_and(|file| file.len() > 0));
    assert_eq!(scene.read("ended"), "5\n");
}
