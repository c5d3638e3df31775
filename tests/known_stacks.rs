//! Threads recognise stacks that were walked before. A merely similar stack is never recognised as a known one.

use std::collections::HashMap;

use crate::support::{
    Ended, Scene, folded,
    natives::native,
    program,
    scene::{lost, number, unprobed},
};

const DEPTH: usize = 40;
const ROUNDS: u64 = 4_000;

/// Check that kernels appear under the right stacks if stacks at the same stack pointer differ in one return address, at every
/// depth, and that launches are recognised.
#[test]
fn one_different_word_is_another_stack() {
    each_kernel_is_under_its_own_path("");
}

/// Check the same with a frame of 200 KiB in between, as in cuBLAS. Stacks beyond 32 KiB used not to be recognised.
#[test]
fn stacks_with_large_frames_are_recognised() {
    each_kernel_is_under_its_own_path("wide");
}

/// Check the same below 300 frames, whose words do not fit into the kernel's cache.
#[test]
fn deep_stacks_are_recognised() {
    each_kernel_is_under_its_own_path("deep");
}

fn each_kernel_is_under_its_own_path(form: &str) {
    let scene = Scene::new();
    let command = format!("{} {ROUNDS} {form}", program("alike"));
    let run = Ended::of(
        scene.record("--sim -v --gpu-only -o x.folded -o x.wscope", &command).env("WARPSCOPE_SIM", "kernel_ns=1us"),
    )
    .exits(0);
    let mut seen = [0; DEPTH + 1];
    for line in folded::read(&scene.read("x.folded")) {
        let Some(kernel) = line.on_gpu() else { continue };
        let differs: usize =
            kernel.name.strip_prefix("differs_").and_then(|n| n.parse().ok()).expect("a kernel's path");
        let steps: Vec<&str> = line.launcher().iter().copied().filter(|frame| frame.starts_with("step_")).collect();
        let expected: Vec<&str> = (1..=DEPTH).map(|level| if level == differs { "step_b" } else { "step_a" }).collect();
        assert_eq!(steps, expected, "{}", kernel.name);
        seen[differs] += line.weight;
    }
    assert_eq!(seen, [ROUNDS; DEPTH + 1]);
    let report = scene.report("x.wscope");
    let launches = ROUNDS * (DEPTH as u64 + 1);
    assert_eq!((number(&report, "launches"), number(&report, "matched")), (launches, launches));
    let recognised = run.err().split("recognised the stacks of ").nth(1).and_then(|text| text.split(' ').next());
    let recognised: u64 = recognised.and_then(|count| count.parse().ok()).expect("how many were recognised");
    let before: u64 = run.out().trim().strip_prefix("known after ").and_then(|n| n.parse().ok()).expect("rounds");
    // Of the rounds after that, at least one launch each. The others depend on how soon warpscope gets a CPU.
    assert!(before < ROUNDS && recognised >= ROUNDS - before, "{recognised} of {launches}, known after {before}");
    // Only the thread's first launch needs the probe then.
    let unprobed = unprobed(run.err());
    assert!(unprobed + 1 >= ROUNDS - before, "{unprobed} of {launches}, known after {before}");
}

/// Levels of `paths`, the rounds after which it gives up waiting, and the rounds that it makes after that.
const LEVELS: usize = 10;
const MOST: u64 = 500;
const KNOWN_ROUNDS: u64 = 5;

/// Check that kernels appear under the right stacks if many call paths launch with the same registers, and that all of them become
/// known: threads used to find only 64 of them.
#[test]
fn many_paths_with_the_same_registers_are_recognised() {
    for paths in [60, 100, 300, 1_000] {
        check_paths(paths, "");
    }
}

/// Check the same after libraries were loaded in turn at the same address, each time with launches from all paths. Known stacks must be
/// forgotten each time: their memory used to be full after some 200 times, and no stack was recognised any more.
#[test]
fn stacks_are_recognised_after_many_reloads() {
    let libraries = format!("400 {} {}", native("libfirst.so"), native("libsecond.so"));
    let launched = check_paths(60, &libraries);
    assert_eq!(["first_library", "second_library"].map(|name| launched[name]), [1_000; 2]);
}

/// Records `paths` and checks the stack of each kernel. Returns the launches by kernel.
fn check_paths(paths: u64, reloads: &str) -> HashMap<String, u64> {
    let scene = Scene::new();
    let command = format!("{} {paths} {KNOWN_ROUNDS} {reloads}", program("paths"));
    let mut record = scene.record("--sim -v --gpu-only -o x.folded -o x.wscope", &command);
    let run = Ended::of(record.env("WARPSCOPE_SIM", "kernel_ns=1us")).exits(0);
    let mut launched = HashMap::new();
    for line in folded::read(&scene.read("x.folded")) {
        let Some(kernel) = line.on_gpu() else { continue };
        let launcher = line.launcher();
        if let Some(path) = kernel.name.strip_prefix("path_").and_then(|n| n.parse::<usize>().ok()) {
            let steps: Vec<&str> = launcher.iter().copied().filter(|frame| frame.starts_with("step_")).collect();
            let bit = |level: usize| if path >> level & 1 == 1 { "step_1" } else { "step_0" };
            let expected: Vec<&str> = (0..LEVELS).rev().map(bit).collect();
            assert_eq!(steps, expected, "{}", kernel.name);
        } else {
            let library: Vec<&&str> = launcher.iter().filter(|frame| frame.ends_with("_library")).collect();
            assert_eq!(library, [&kernel.name], "{launcher:?}");
        }
        *launched.entry(kernel.name.to_owned()).or_default() += line.weight;
    }
    let report = scene.report("x.wscope");
    let launches: u64 = launched.values().sum();
    assert_eq!((number(&report, "launches"), number(&report, "matched")), (launches, launches), "{}", report["ledger"]);
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    let of_paths: Vec<u64> = (0..paths).map(|path| launched[&format!("path_{path}")]).collect();
    assert!(of_paths.iter().all(|count| *count == of_paths[0]), "{of_paths:?}");
    let known: u64 = run.out().trim().strip_prefix("known after ").and_then(|n| n.parse().ok()).expect("rounds");
    assert!(known < MOST, "{paths} paths never became known: {}", run.err());
    let unprobed = unprobed(run.err());
    assert!(unprobed >= (KNOWN_ROUNDS + 1) * paths, "{unprobed} of {launches}, known after {known} rounds");
    launched
}
