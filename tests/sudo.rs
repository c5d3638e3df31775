//! Under sudo, the command runs as the user who called sudo, and that user owns the outputs.

use std::{fs, os::unix::fs::MetadataExt};

use crate::support::{
    Ended, Scene,
    attacker::{USER, id, with_sudo},
    program, programs,
    scene::{lost, number},
};

/// Returns the owner and group of a file.
fn owner(scene: &Scene, file: &str) -> (String, String) {
    let info = fs::metadata(scene.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    (info.uid().to_string(), info.gid().to_string())
}

/// Check that the command runs as the user, with the user's groups, home and name and without root's privileges, and that the
/// user owns the files.
#[test]
fn command_runs_as_the_caller() {
    let scene = Scene::new();
    let script = "id -u; id -g; id -G; grep CapEff /proc/self/status; echo $USER $LOGNAME $HOME; touch made";
    let outputs = "-q -o x.wscope -o x.svg -o x.folded -o x.json -o x.jsonl -o x.cpu.txt";
    let run = Ended::of(with_sudo(&mut scene.record_words(outputs, &["sh", "-c", script]))).exits(0);
    let home = Ended::of(scene.bare("sh").args(["-c", &format!("echo ~{USER}")])).exits(0);
    let lines: Vec<&str> = run.out().lines().collect();
    let who = format!("{USER} {USER} {}", home.out().trim());
    assert_eq!(lines, [&id("-u"), &id("-g"), &id("-G"), "CapEff:\t0000000000000000", &who]);
    for file in scene.files() {
        assert_eq!(owner(&scene, &file), (id("-u"), id("-g")), "{file}");
    }
}

/// Check that a CUDA program of that user is recorded like any other: it can read the library and reach the socket, and its
/// stacks have names.
#[test]
fn cuda_programs_of_the_caller_are_recorded() {
    let scene = Scene::new();
    // Other users may have no access to the build directory.
    programs::copy(program("truth"), scene.path("truth"));
    let command = format!("{} 2 2 1 1 500", scene.text("truth"));
    let mut command = scene.record("--sim -q -o x.wscope -o x.folded", &command);
    Ended::of(with_sudo(&mut command).env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "matched"), number(&report, "launches"), lost(&report)), (2_000, 2_000, 0));
    let kernels: u64 = crate::support::folded::kernels_by_path(&scene.read("x.folded"), 3).values().sum();
    assert_eq!(kernels, number(&report, "kernels"));
}

/// Check that --as-root runs the command as root, and that the caller still owns the files.
#[test]
fn as_root_runs_the_command_as_root() {
    let scene = Scene::new();
    let run = Ended::of(with_sudo(&mut scene.record("--as-root -q -o x.wscope", "id -u"))).exits(0);
    assert_eq!(run.out(), "0\n");
    assert_eq!(owner(&scene, "x.wscope"), (id("-u"), id("-g")));
}

/// Check that root stays root if root calls sudo.
#[test]
fn sudo_by_root_stays_root() {
    let scene = Scene::new();
    let mut command = scene.record("-q -o x.wscope", "id -u");
    let run = Ended::of(command.env("SUDO_UID", "0").env("SUDO_GID", "0").env("SUDO_USER", "root")).exits(0);
    assert_eq!(run.out(), "0\n");
}
