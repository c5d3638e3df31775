//! Bad input is rejected with one clear sentence and a non-zero status, before anything runs.

use std::{fs, os::unix::process::CommandExt};

use crate::support::{Ended, Scene, programs};

/// Runs `touch ran` with options that must be rejected: the command must not run, and nothing may be written.
#[track_caller]
fn refused(scene: &Scene, options: &str, words: &[&str]) {
    let before = scene.files();
    Ended::of(&mut scene.record(options, "touch ran")).exits(1).says(words);
    assert_eq!(scene.files(), before, "{options}");
}

/// Check that meaningless options are rejected before the command runs.
#[test]
fn meaningless_options_are_rejected() {
    let scene = Scene::new();
    refused(&scene, "-F 0", &["-F must be at least 1"]);
    refused(&scene, "-d 0", &["-d expects a number of seconds greater than 0"]);
    refused(&scene, "-d nan", &["-d expects"]);
    refused(&scene, "-o x.svg -o x.svg", &["x.svg is given twice"]);
    refused(&scene, "-o a.wscope -o b.wscope", &["only one recording can be written"]);
}

/// Check that an unknown file extension is rejected with the list of known ones.
#[test]
fn unknown_extensions_are_rejected() {
    let scene = Scene::new();
    for name in ["x.pdf", "x", "x.svg.gz", ".svg"] {
        refused(&scene, &format!("-o {name}"), &[name, &export::Format::extensions()]);
    }
}

/// Check that unwritable outputs are detected before the command runs.
#[test]
fn unwritable_outputs_are_rejected() {
    let scene = Scene::new();
    fs::create_dir(scene.path("x.svg")).expect("a directory");
    fs::write(scene.path("file"), "").expect("a file");
    refused(&scene, "-o missing/x.wscope", &["cannot write missing/x.wscope", "directory missing", "No such file"]);
    refused(&scene, "-o x.svg", &["cannot write x.svg", "it is a directory"]);
    refused(&scene, "-o file/x.svg", &["cannot write file/x.svg", "file"]);
}

/// Check that a read-only file system is detected before the command runs.
#[test]
fn read_only_file_systems_are_rejected() {
    let scene = Scene::new();
    fs::create_dir(scene.path("disk")).expect("a directory");
    let script = r#"mount -t tmpfs -o ro none disk && exec "$@""#;
    let mut command = scene.bare("unshare");
    command.args(["-m", "sh", "-c", script, "sh", programs::WARPSCOPE]);
    let run = Ended::of(command.args(["record", "-o", "disk/x.svg", "--", "touch", "ran"])).exits(1);
    run.says(&["cannot write disk/x.svg", "Read-only file system"]);
    assert_eq!(scene.files(), ["disk"]);
}

/// Check that `-F 0` is accepted if no CPU samples are requested.
#[test]
fn zero_frequency_is_accepted_without_samples() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("-F 0 --gpu-only -q -o x.svg", "true")).exits(0);
}

/// Check that a sampling frequency above the kernel's limit is rejected, with the name of the limit.
#[test]
fn too_high_frequencies_are_rejected() {
    let scene = Scene::new();
    refused(&scene, "-F 2000000000 -o x.svg", &["2000000000", "/proc/sys/kernel/perf_event_max_sample_rate"]);
}

/// Check that a command that does not exist or cannot be executed gives the shell's exit status, a sentence, and no files.
#[test]
fn commands_that_cannot_run_exit_like_the_shell() {
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

/// Check that an invalid command line exits with clap's status and shows the usage.
#[test]
fn unknown_arguments_show_the_usage() {
    let scene = Scene::new();
    for arguments in [&["record", "--no-such-option", "--", "true"][..], &["no-such-command"], &[]] {
        let run = Ended::of(&mut scene.warpscope(arguments)).exits(2);
        assert!(run.err().contains("Usage:"), "{}", run.err());
    }
}

/// Check that, without privileges, one sentence says what is needed and the command does not run.
#[test]
fn missing_privileges_are_reported() {
    let scene = Scene::new();
    // Other users may have no access to the build directory.
    programs::copy(programs::WARPSCOPE, scene.path("warpscope"));
    for arguments in ["record -o x.svg -- touch ran", "demo"] {
        let mut command = scene.bare(scene.path("warpscope"));
        let run = Ended::of(command.args(arguments.split(' ')).uid(65534).gid(65534)).exits(1);
        run.says(&["not permitted to load eBPF programs", "as root (sudo)", "CAP_BPF and CAP_PERFMON"]);
        assert_eq!(scene.files(), ["warpscope"]);
    }
}

/// Check that, on a kernel without BTF (an empty directory in its place), one sentence says what is needed.
#[test]
fn missing_btf_is_reported() {
    let scene = Scene::new();
    fs::create_dir(scene.path("empty")).expect("a directory");
    let script = r#"mount --bind empty /sys/kernel/btf && exec "$@""#;
    let mut command = scene.bare("unshare");
    command.args(["-m", "sh", "-c", script, "sh", programs::WARPSCOPE]);
    let run = Ended::of(command.args(["record", "-o", "x.wscope", "--", "touch", "ran"])).exits(1);
    run.says(&["this kernel has no BTF", "CONFIG_DEBUG_INFO_BTF=y"]);
    assert_eq!(scene.files(), ["empty"]);
}
