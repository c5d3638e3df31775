//! Without root, the two capabilities that docs/privileges.md names are enough.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::support::{
    Ended, Scene,
    folded::kernels_by_path,
    program,
    programs::WARPSCOPE,
    scene::{lost, number},
};

const USER: &str = "65534";

/// A command run by a user with only CAP_BPF and CAP_PERFMON, which its programs inherit, and with no lockable memory.
fn with_two_capabilities(scene: &Scene) -> Command {
    let mut command = scene.bare("prlimit");
    command.env("WARPSCOPE_SIM", "kernel_ns=3us").args(["--memlock=0:0", "setpriv"]);
    command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
    command.args([
        "--inh-caps=-all,+bpf,+perfmon",
        "--ambient-caps=+bpf,+perfmon",
        "--bounding-set=-all,+bpf,+perfmon",
    ]);
    command
}

/// Check that a user with only CAP_BPF and CAP_PERFMON and no lockable memory records and traces its own program exactly.
#[test]
fn two_capabilities_are_enough() {
    let scene = Scene::new();
    // Other users may have no access to the build directory.
    crate::support::programs::copy(program("truth"), scene.path("truth"));
    crate::support::programs::copy(WARPSCOPE, scene.path("warpscope"));
    let run = |words: &str| {
        let mut command = with_two_capabilities(&scene);
        Ended::of(command.arg(scene.path("warpscope")).args(words.split(' '))).exits(0);
    };
    let truth = format!("{} 1 2 1 1 500", scene.text("truth"));
    run(&format!("record --sim -q -o x.wscope -o x.folded -- {truth}"));
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "matched"), number(&report, "launches"), lost(&report)), (1_000, 1_000, 0));
    let kernels: u64 = kernels_by_path(&scene.read("x.folded"), 3).values().sum();
    assert_eq!(kernels, number(&report, "kernels"));
    run(&format!("trace --sim -q -o y.wscope -- {truth}"));
    let report = scene.report("y.wscope");
    assert_eq!((number(&report, "matched"), number(&report, "launches"), lost(&report)), (1_000, 1_000, 0));
    let calls = report["trace"]["functions"].as_array().expect("functions");
    // Every launch of the program reaches one of these.
    let launching = |name: &str| ["cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2"].contains(&name);
    let made =
        calls.iter().filter(|call| call["name"].as_str().is_some_and(launching)).map(|call| number(call, "calls"));
    assert_eq!(made.sum::<u64>(), 1_000, "{calls:#?}");
}

/// Check that the command, a disassembler and the process that samples counters get none of the capabilities that warpscope
/// was given, even if those are ambient, which other programs inherit.
#[test]
fn capabilities_are_not_passed_on() {
    let scene = Scene::new();
    let cubin = crate::support::programs::sources().join("../crates/symbols/tests/cubins/triton.cubin");
    crate::support::programs::copy(cubin, scene.path("cubin"));
    crate::support::programs::copy(program("stalled"), scene.path("stalled"));
    crate::support::programs::copy(WARPSCOPE, scene.path("warpscope"));
    let show = "grep Cap[PEA] /proc/self/status";
    let tool = scene.path("nvdisasm");
    // It may not write files.
    let shown = format!("mkdir {}$(sed -n 's/CapEff:.//p' /proc/self/status)", scene.text("tool-"));
    fs::write(&tool, format!("#!/bin/sh\n{shown}\n")).expect("ours");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("ours");
    let command = format!("{show} > of-the-command; exec ./stalled");
    let run = |options: &str| {
        let mut warpscope = with_two_capabilities(&scene);
        warpscope.arg(scene.path("warpscope")).args(options.split(' ')).args(["--", "sh", "-c", &command]);
        let sampled = format!("cubin={},stall[gather]=0x5b0:long_scoreboard:20", scene.text("cubin"));
        let script = format!("{sampled},pm_owner={},meter={}", scene.text("owner"), scene.text("meter"));
        warpscope.env("WARPSCOPE_NVDISASM", scene.path("nvdisasm")).env("WARPSCOPE_SIM", script);
        Ended::of(&mut warpscope).exits(0);
    };
    run("record --sim -q --counters -o x.wscope");
    let none = "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n";
    assert_eq!(scene.read("of-the-command"), none);
    assert_eq!(scene.read("owner").trim(), format!("{USER} 0000000000000000"));
    run("record --sim -q --stalls -o x.wscope");
    assert!(scene.path("tool-0000000000000000").is_dir(), "{:?}", scene.files());
}
