//! Threads recognise stacks that were walked before. A merely similar stack is never recognised as a known one.

use crate::support::{
    Ended, Scene, folded, program,
    scene::{number, unprobed},
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
