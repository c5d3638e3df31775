//! Bad input gets one clear sentence and a status that is not 0, before anything runs.

use std::{fs, os::unix::process::CommandExt};

use crate::support::{Ended, Scene, programs};

/// Runs `touch ran` under options that must be refused: it must not run, and nothing may be written.
#[track_caller]
fn refused(scene: &Scene, options: &str, words: &[&str]) {
    let before = scene.files();
    Ended::of(&mut scene.record(options, "touch ran")).exits(1).says(words);
    assert_eq!(scene.files(), before, "{options}");
}

/// Options that make no sense are refused before the command runs.
#[test]
fn senseless_options() {
    let scene = Scene::new();
    refused(&scene, "-F 0", &["-F 0 would take no samples", "at least 1"]);
    refused(&scene, "-d 0", &["-d wants a number of seconds greater than 0"]);
    refused(&scene, "-d nan", &["-d wants"]);
    refused(&scene, "-o x.svg -o x.svg", &["x.svg is named twice"]);
    refused(&scene, "-o a.wscope -o b.wscope", &["one recording is enough"]);
}

/// An ending that is not known is refused with the list of those that are.
#[test]
fn unknown_ending() {
    let scene = Scene::new();
    let endings = ".wscope .folded .svg .json .cpu.txt .jsonl";
    for name in ["x.pdf", "x", "x.svg.gz", ".svg"] {
        refused(&scene, &format!("-o {name}"), &[name, endings]);
    }
}

/// Places that cannot be written to are found out before the command runs.
#[test]
fn unwritable_outputs() {
    let scene = Scene::new();
    fs::create_dir(scene.path("x.svg")).expect("a directory");
    fs::write(scene.path("file"), "").expect("a file");
    refused(&scene, "-o missing/x.wscope", &["cannot write missing/x.wscope", "directory missing", "No such file"]);
    refused(&scene, "-o x.svg", &["cannot write x.svg", "it is a directory"]);
    refused(&scene, "-o file/x.svg", &["cannot write file/x.svg", "file"]);
}

/// A disk that may only be read is found out before the command runs.
#[test]
fn a_read_only_disk() {
    let scene = Scene::new();
    fs::create_dir(scene.path("disk")).expect("a directory");
    let script = r#"mount -t tmpfs -o ro none disk && exec "$@""#;
    let mut command = scene.bare("unshare");
    command.args(["-m", "sh", "-c", script, "sh", programs::WARPSCOPE]);
    let run = Ended::of(command.args(["record", "-o", "disk/x.svg", "--", "touch", "ran"])).exits(1);
    run.says(&["cannot write disk/x.svg", "Read-only file system"]);
    assert_eq!(scene.files(), ["disk"]);
}

/// -F 0 is no mistake where no samples are wanted.
#[test]
fn no_samples_wanted() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("-F 0 --gpu-only -q -o x.svg", "true")).exits(0);
}

/// More samples than the kernel takes: the sentence names the limit.
#[test]
fn too_high_a_frequency() {
    let scene = Scene::new();
    refused(&scene, "-F 2000000000 -o x.svg", &["2000000000", "/proc/sys/kernel/perf_event_max_sample_rate"]);
}

/// A command that is not there or cannot be run: the shell's status, a sentence, and no files.
#[test]
fn commands_that_cannot_run() {
    let scene = Scene::new();
    fs::write(scene.path("text"), "no program\n").expect("a file");
    for (command, code, words) in [
        ("no-such-command-at-all", 127, ["no-such-command-at-all", "no such command in PATH"]),
        ("./not-here", 127, ["./not-here", "no such file"]),
        ("./text", 126, ["./text", "permission denied (is it executable?)"]),
        ("/", 126, ["/", "permission denied"]),
    ] {
        Ended::of(&mut scene.record("-o x.svg -o x.wscope", command)).exits(code).says(&words);
        assert_eq!(scene.files(), ["text"], "{command}");
    }
}

/// A command line that cannot be understood: clap's own status, and where help is to be had.
#[test]
fn unknown_arguments() {
    let scene = Scene::new();
    for arguments in [&["record"][..], &["record", "--no-such-option", "--", "true"], &["no-such-command"], &[]] {
        let run = Ended::of(&mut scene.warpscope(arguments)).exits(2);
        assert!(run.err().contains("Usage:"), "{}", run.err());
    }
}

/// Without privileges: one sentence that says what is needed, and the command does not run.
#[test]
fn no_permission() {
    let scene = Scene::new();
    // Where the tests are built may be closed to others.
    fs::copy(programs::WARPSCOPE, scene.path("warpscope")).expect("a copy");
    for arguments in ["record -o x.svg -- touch ran", "demo"] {
        let mut command = scene.bare(scene.path("warpscope"));
        let run = Ended::of(command.args(arguments.split(' ')).uid(65534).gid(65534)).exits(1);
        run.says(&["not permitted to load eBPF programs", "as root (sudo)", "CAP_BPF and CAP_PERFMON"]);
        assert_eq!(scene.files(), ["warpscope"]);
    }
}

/// A kernel without BTF, played by an empty directory in its place: one sentence that says what is needed.
#[test]
fn no_btf() {
    let scene = Scene::new();
    fs::create_dir(scene.path("empty")).expect("a directory");
    let script = r#"mount --bind empty /sys/kernel/btf && exec "$@""#;
    let mut command = scene.bare("unshare");
    command.args(["-m", "sh", "-c", script, "sh", programs::WARPSCOPE]);
    let run = Ended::of(command.args(["record", "-o", "x.wscope", "--", "touch", "ran"])).exits(1);
    run.says(&["this kernel has no BTF", "CONFIG_DEBUG_INFO_BTF=y"]);
    assert_eq!(scene.files(), ["empty"]);
}
