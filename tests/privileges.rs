//! Without root, the two capabilities that docs/privileges.md names are enough.

use crate::support::{
    Ended, Scene,
    folded::kernels_by_path,
    program,
    programs::WARPSCOPE,
    scene::{lost, number},
};

const USER: &str = "65534";

/// Check that a user with only CAP_BPF and CAP_PERFMON and no lockable memory records and traces its own program exactly.
#[test]
fn two_capabilities_are_enough() {
    let scene = Scene::new();
    // Other users may have no access to the build directory.
    crate::support::programs::copy(program("truth"), scene.path("truth"));
    crate::support::programs::copy(WARPSCOPE, scene.path("warpscope"));
    let run = |words: &str| {
        let mut command = scene.bare("prlimit");
        command.env("WARPSCOPE_SIM", "kernel_ns=3us").args(["--memlock=0:0", "setpriv"]);
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        command.args([
            "--inh-caps=-all,+bpf,+perfmon",
            "--ambient-caps=+bpf,+perfmon",
            "--bounding-set=-all,+bpf,+perfmon",
        ]);
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
