//! Bad input is rejected with one clear sentence and a non-zero status, before anything runs; a command's own status is kept.

use std::{fs, os::unix::process::CommandExt, process::Stdio};

use crate::support::{Ended, Running, Scene, calls::Trace, program, programs};

/// Options that must be rejected: the command does not run, and nothing is written.
#[track_caller]
fn refused(options: &str, words: &[&str]) {
    let scene = Scene::new();
    Ended::of(&mut scene.trace(options, "touch ran")).exits(1).says(words);
    assert_eq!(scene.files(), Vec::<String>::new(), "{options}");
}

/// Check that meaningless options are rejected.
#[test]
fn meaningless_options_are_rejected() {
    refused("--sim --match [", &["invalid pattern '['", "a [ has no closing ]"]);
    refused("--sim --match cuMem*,,", &["invalid pattern ''", "empty"]);
    refused("--sim --exclude [z-a]", &["[z-a]", "a range is reversed"]);
    refused("--sim --live=[", &["invalid pattern '['"]);
    refused("--uprobe nonsense", &["--uprobe expects LIBRARY:PATTERN", "nonsense"]);
    refused("--uprobe libc.so.6:", &["--uprobe expects LIBRARY:PATTERN", "libc.so.6:"]);
    refused("--tracepoint nonsense", &["--tracepoint expects CATEGORY:NAME", "nonsense"]);
    refused("--tracepoint ../../x:y", &["--tracepoint expects CATEGORY:NAME"]);
    refused("-d 0", &["-d expects a number of seconds greater than 0"]);
    refused("-d inf", &["-d expects"]);
    refused("-o x.pdf", &["x.pdf", ".wscope", ".jsonl", ".json"]);
    refused("-o missing/x.jsonl", &["cannot write missing/x.jsonl", "No such file"]);
    refused("-o a.wscope -o b.wscope", &["only one recording can be written"]);
}

/// Check that names that do not exist are rejected, with similar names that do.
#[test]
fn unknown_names_are_rejected_with_similar_ones() {
    refused("--sim --match cudaMalock", &["--match cudaMalock matches no function", "did you mean", "cudaMalloc"]);
    refused("--sim --match cudaMalloc,cuLaunchKernle", &["--match cuLaunchKernle", "cuLaunchKernel"]);
    refused(
        "--tracepoint sched:sched_swich",
        &["there is no tracepoint sched:sched_swich", "did you mean", "sched:sched_switch"],
    );
    let leaves = program("leaves");
    refused(&format!("--uprobe {leaves}:leap"), &["has no function leap", "did you mean leaps"]);
    refused("--uprobe ./missing.so:work", &["missing.so", "No such file"]);
    refused("--lib ./missing.so", &["missing.so", "No such file"]);
    refused("--lib /etc/passwd", &["/etc/passwd", "ELF"]);
}

/// Check that a kernel function that does not exist, or a kernel without kprobes, is reported in one sentence.
#[test]
fn unknown_kernel_functions_are_rejected() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.trace("--kprobe no_such_function_at_all", "touch ran")).exits(1);
    let sentence = if fs::exists("/sys/bus/event_source/devices/kprobe").is_ok_and(|there| there) {
        "matches no function of the kernel"
    } else {
        "it was built without kprobes; use --driver to trace ioctls"
    };
    run.says(&[sentence]);
    assert_eq!(scene.files(), Vec::<String>::new());
}

/// Check `--fentry`: functions that do not exist, or too many, are rejected; if the kernel does not permit fentry, the message
/// names the alternatives.
#[test]
fn fentry_failures_are_reported() {
    refused("--fentry vfs_reed", &["--fentry vfs_reed matches no function of the kernel", "did you mean vfs_read"]);
    refused("--fentry *", &["--fentry * matches ", " functions, more than the limit of 100: use a narrower pattern"]);
    let scene = Scene::new();
    let run = Ended::of(&mut scene.trace("-q --fentry vfs_read -o t.jsonl", "cat /etc/passwd"));
    if run.status.success() {
        assert!(Trace::read(&scene.read("t.jsonl")).named("vfs_read").count() > 0);
    } else {
        run.exits(1)
            .says(&["does not permit fentry on vfs_read", "--tracepoint, --uprobe and --driver work without it"]);
        assert_eq!(scene.files(), Vec::<String>::new());
    }
}

/// Check that no target, two targets, and a target that does not exist are rejected.
#[test]
fn bad_targets_are_rejected() {
    let scene = Scene::new();
    Ended::of(&mut scene.trace("", "")).exits(1).says(&["specify what to trace", "-p PID", "-a", "-- COMMAND"]);
    for options in ["-p 1 -a", "-p 1 -- true", "-a -- true", "-p x", "--summary-only --driver -a", "--no-such-option"] {
        let run = Ended::of(&mut scene.trace(options, "")).exits(2);
        assert!(run.err().contains("--help"), "{options}: {}", run.err());
    }
    let mut gone = Running::start(&mut scene.bare("true"));
    let pid = gone.pid();
    while gone.is_running() {}
    drop(gone.wait());
    Ended::of(&mut scene.trace(&format!("-p {pid}"), "")).exits(1).says(&[&format!("there is no process {pid}")]);
    let sleeper = Running::start(scene.bare("sleep").arg("100").stdout(Stdio::null()).stderr(Stdio::null()));
    let pid = sleeper.pid();
    Ended::of(&mut scene.trace(&format!("-p {pid}"), "")).exits(1).says(&[
        &format!("{pid} (sleep) has not loaded CUDA"),
        "neither libcuda nor libcudart",
        "start it with -- COMMAND",
    ]);
    sleeper.signal(libc::SIGKILL);
    sleeper.wait().dies_of(libc::SIGKILL);
    assert_eq!(scene.files(), Vec::<String>::new());
}

/// Check that, without privileges, one sentence says what is needed and the command does not run.
#[test]
fn missing_privileges_are_reported() {
    let scene = Scene::new();
    // Other users may have no access to the build directory.
    programs::copy(programs::WARPSCOPE, scene.path("warpscope"));
    for arguments in ["trace -o x.jsonl -- touch ran", "trace -a", "trace -p 1 --driver"] {
        let mut command = scene.bare(scene.path("warpscope"));
        let run = Ended::of(command.args(arguments.split(' ')).uid(65534).gid(65534)).exits(1);
        run.says(&["not permitted to load eBPF programs", "as root (sudo)", "CAP_BPF and CAP_PERFMON"]);
        assert_eq!(scene.files(), ["warpscope"]);
    }
}

/// Check that programs that end at once, without CUDA or before they use it, give complete files, their own status, and a note.
#[test]
fn programs_that_end_at_once_give_complete_files() {
    let scene = Scene::new();
    Ended::of(&mut scene.trace("-q -o t.jsonl -o t.json -o t.wscope", "true")).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    assert_eq!(
        (trace.all.len(), trace.notes.as_slice()),
        (0, &["no CUDA library was loaded: neither libcuda nor libcudart".to_owned()][..])
    );
    let _: serde_json::Value = serde_json::from_str(&scene.read("t.json")).expect("JSON");
    scene.report("t.wscope");
    // A program linked to CUDA's libraries that calls none of them.
    Ended::of(&mut scene.trace("--sim -q -o u.jsonl", &program("leaves"))).exits(2);
    assert_eq!(Trace::read(&scene.read("u.jsonl")).all.len(), 0);
}

/// Check the command's own status, the signal that killed it, and the shell's statuses for commands that cannot run.
#[test]
fn statuses_are_passed_on() {
    let scene = Scene::new();
    Ended::of(&mut scene.trace_words("-q -o t.jsonl", &["sh", "-c", "exit 42"])).exits(42);
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let script = format!("kill -{signal} $$");
        Ended::of(&mut scene.trace_words("-q -o t.jsonl", &["sh", "-c", &script])).dies_of(signal);
        Trace::read(&scene.read("t.jsonl"));
    }
    fs::write(scene.path("text"), "no program\n").expect("a file");
    for (command, code, words) in [
        ("no-such-command-at-all", 127, ["no-such-command-at-all", "no such command in PATH"]),
        ("./text", 126, ["./text", "permission denied (is it executable?)"]),
    ] {
        Ended::of(&mut scene.trace("-o x.jsonl -o x.wscope", command)).exits(code).says(&words);
    }
    assert_eq!(scene.files(), ["t.jsonl", "text"]);
}
