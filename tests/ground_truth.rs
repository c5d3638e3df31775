//! A simulated kernel's name is the call path that launched it: every kernel must appear under that path.

use cupti::release::RELEASES;

use crate::support::{
    Ended, Scene,
    folded::kernels_by_path,
    jsonl::Events,
    oracle::{Counts, Kind, Walk},
    program,
    scene::{lost, number},
    truth::Truth,
};

/// Out of order, on two GPUs, with correlation ids that wrap soon after the start; every kernel takes 3 us.
fn script(scene: &Scene, more: &str) -> String {
    let truth = scene.text("truth");
    format!("devices=2,order=shuffle,correlation=4294960000,kernel_ns=3us,truth={truth},{more}")
}

fn kernels(counts: &Counts) -> Counts {
    counts.iter().filter(|((kind, ..), _)| *kind == Kind::Kernel).map(|(key, count)| (key.clone(), *count)).collect()
}

/// Check a million launches by 2 processes of 8 threads on 3 streams of 2 GPUs, with records out of order and ids that wrap:
/// no wrong stack, nothing unmatched, nothing lost, and every count and time equal to the GPU's own.
#[test]
fn a_million_launches_have_the_right_stacks() {
    let scene = Scene::new();
    let walk = Walk::of(62_500);
    let command = format!("{} {}", program("truth"), walk.arguments());
    let run = Ended::of(
        scene.record("--sim --gpu-only -o x.folded -o x.wscope", &command).env("WARPSCOPE_SIM", script(&scene, "")),
    )
    .exits(0);
    assert_eq!(run.out(), "launched 1000000\n");
    assert!(run.err().contains("matched 100 %"), "{}", run.err());

    let report = scene.report("x.wscope");
    let truth = Truth::of(&scene, "truth");
    assert_eq!((truth.processes, truth.delivered()), (2, 1_000_000));
    assert_eq!((number(&report, "matched"), number(&report, "pending_launches"), lost(&report)), (1_000_000, 0, 0));
    truth.agrees(&report);
    assert_eq!(kernels_by_path(&scene.read("x.folded"), 3), kernels(&walk.counts()));
    assert_eq!(report["gpu_stack_ends"], serde_json::json!({"whole": 1_000_000}));
}

/// Check the same event by event, with CPU sampling: each kernel, copy and memset was launched from its path, by its own
/// process and thread, before it ran.
#[test]
fn every_event_has_the_right_launch() {
    let scene = Scene::new();
    let walk = Walk::of(2_500);
    let command = format!("{} {}", program("truth"), walk.arguments());
    Ended::of(
        scene
            .record("--sim -q -F 499 -o x.jsonl -o x.wscope -o x.folded", &command)
            .env("WARPSCOPE_SIM", script(&scene, ""))
            .env("TRUTH_COPIES", scene.path("copies")),
    )
    .exits(0);
    let report = scene.report("x.wscope");
    Truth::of(&scene, "truth").agrees(&report);
    let events = Events::read(&scene.read("x.jsonl"));
    assert_eq!(events.counts(&scene.read("copies")), walk.counts());
    assert_eq!(kernels_by_path(&scene.read("x.folded"), 3), kernels(&walk.counts()));

    // Each process is seen as forked and as exec'ed. It has 8 threads, the main thread, and the injected library's thread.
    assert_eq!(events.pids().len(), 2);
    assert_eq!(report["devices"].as_array().map(Vec::len), Some(2));
    let launchers: std::collections::HashSet<u64> = events.of("launch").map(|launch| number(launch, "tid")).collect();
    assert_eq!(launchers.len(), 16, "8 threads in each of 2 processes launched");
    assert!(number(&report, "cpu_samples") > 0);
    let samples = events.of("sample").count() as u64;
    assert_eq!(samples, number(&report, "cpu_samples") + number(&report, "own_samples"));
}

/// Check that every release of CUPTI, with its own record lengths and version, gives the same exact result.
#[test]
fn every_cupti_release_gives_the_same_result() {
    for release in RELEASES.iter().map(|release| release.name) {
        let scene = Scene::new();
        let walk = Walk::of(1_250);
        let command = format!("{} {}", program("truth"), walk.arguments());
        let script = script(&scene, &format!("release={release}"));
        Ended::of(scene.record("--sim -q --gpu-only -o x.folded -o x.wscope", &command).env("WARPSCOPE_SIM", script))
            .exits(0);
        let truth = Truth::of(&scene, "truth");
        assert_eq!((truth.processes, truth.delivered()), (2, 20_000), "CUDA {release}");
        truth.agrees(&scene.report("x.wscope"));
        assert_eq!(kernels_by_path(&scene.read("x.folded"), 3), kernels(&walk.counts()), "CUDA {release}");
    }
}

/// Check the same exact result for programs that use only the runtime or only the driver, and for a CUPTI that delivers records
/// on the launching thread or keeps its own clock.
#[test]
fn every_way_to_launch_gives_the_same_result() {
    for (option, faults) in [
        ("--runtime", "deliver=launcher"),
        ("--driver", "deliver=launcher,per_thread=0"),
        ("--mixed", "clock=refuse"),
        ("--mixed", "release=12.8,per_thread=1"),
    ] {
        let scene = Scene::new();
        let walk = Walk::of(625);
        let command = format!("{} {} {option}", program("truth"), walk.arguments());
        let script = script(&scene, faults);
        Ended::of(scene.record("--sim -q -o x.folded -o x.wscope", &command).env("WARPSCOPE_SIM", script)).exits(0);
        Truth::of(&scene, "truth").agrees(&scene.report("x.wscope"));
        assert_eq!(kernels_by_path(&scene.read("x.folded"), 3), kernels(&walk.counts()), "{option} {faults}");
    }
}

/// Check that all three kernels of a graph appear under the call that launched the graph, if requested.
#[test]
fn graph_kernels_appear_under_the_graph_launch() {
    let scene = Scene::new();
    let walk = Walk { graphs: true, ..Walk::of(1_250) };
    let command = format!("{} {}", program("truth"), walk.arguments());
    Ended::of(
        scene
            .record("--sim -q --graph-stacks launch -o x.jsonl -o x.folded -o x.wscope", &command)
            .env("WARPSCOPE_SIM", script(&scene, ""))
            .env("TRUTH_COPIES", scene.path("copies")),
    )
    .exits(0);
    let events = Events::read(&scene.read("x.jsonl"));
    assert_eq!(events.counts(&scene.read("copies")), walk.counts());
    assert_eq!(kernels_by_path(&scene.read("x.folded"), 3), kernels(&walk.counts()));

    let graphs = events.of("launch").filter(|launch| launch["kind"] == "graph").count() as u64;
    assert_eq!(graphs, walk.total() / 50);
    let truth = Truth::of(&scene, "truth");
    let report = scene.report("x.wscope");
    assert_eq!(truth.delivered(), walk.total() + 2 * graphs);
    let reported = ["launches", "matched", "unmatched_activities", "pending_launches", "kernel_time_ns"];
    let expected = [walk.total() + truth.captured, truth.delivered(), 0, 0, truth.kernel_ns];
    assert_eq!(reported.map(|key| number(&report, key)), expected);
    // A captured launch runs nothing itself.
    assert!(truth.captured > 0);
    assert_eq!((number(&report, "captured_launches"), number(&report, "failed_launches")), (truth.captured, 0));
    assert_eq!(events.of("captured").count() as u64, truth.captured);
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
}
