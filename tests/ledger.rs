//! Nothing is lost silently: whatever goes wrong, the ledger has the same numbers as the simulated GPU's own account.

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    oracle::Walk,
    program,
    scene::{lost, number},
    truth::Truth,
};

/// Runs the ground-truth program with injected faults, asserts that both accounts agree, and returns them.
#[track_caller]
fn record(faults: &str) -> (Truth, Value) {
    let scene = Scene::new();
    let walk = Walk::of(1_250);
    let command = format!("{} {}", program("truth"), walk.arguments());
    let script = format!("devices=2,order=shuffle,kernel_ns=3us,truth={},{faults}", scene.text("truth"));
    let run = Ended::of(scene.record("--sim -o x.wscope", &command).env("WARPSCOPE_SIM", script)).exits(0);
    let truth = Truth::of(&scene, "truth");
    assert_eq!(truth.processes, 2);
    assert_eq!(run.out(), format!("launched {}\n", truth.launched));
    assert_eq!(truth.launched + truth.failed, walk.total());
    let report = scene.report("x.wscope");
    truth.agrees(&report);
    // The summary after the run contains every sentence of the report's ledger.
    for sentence in report["ledger"].as_array().expect("sentences") {
        let sentence = sentence.as_str().expect("text");
        assert!(run.err().contains(sentence), "`{sentence}` is not in:\n{}", run.err());
    }
    (truth, report)
}

/// Check that records dropped by CUPTI are counted, and that their launches are pending.
#[test]
fn dropped_records_are_counted() {
    for every in [2, 7, 1000] {
        let (truth, report) = record(&format!("drop=1/{every}"));
        assert!(truth.dropped >= 19_000 / every, "{truth:?}");
        assert!(number(&report, "pending_launches") > 0);
    }
}

/// Check that records without timestamps are counted and have no duration.
#[test]
fn records_without_timestamps_are_counted() {
    let (truth, _) = record("zero_time=1/5");
    assert_eq!(truth.zero_time, 4_000);
    assert_eq!(truth.delivered(), 20_000);
}

/// Check that work that never finished is counted and has no duration.
#[test]
fn unfinished_work_is_counted() {
    let (truth, _) = record("unfinished=1/9");
    assert_eq!(truth.unfinished, 2 * (10_000 / 9));
    assert_eq!(truth.delivered(), 20_000);
}

/// Check that launches that return an error are counted, whether the program's call fails or one within it.
#[test]
fn failed_launches_are_counted() {
    for (function, every) in
        [("cudaLaunchKernel", 3), ("cuLaunchKernel", 10), ("cudaMemcpyAsync", 2), ("cuMemsetD8Async", 2)]
    {
        let (truth, _) = record(&format!("fail={function}:1/{every}"));
        assert!(truth.failed > 0, "{function} never failed");
    }
}

/// Check that every number agrees with all faults at once, on the oldest and the newest release.
#[test]
fn all_faults_at_once_are_counted() {
    for release in ["11.8", "13.4"] {
        let faults = "drop=1/11,zero_time=1/13,unfinished=1/17,fail=cuLaunchKernel:1/19,fail=cudaMemcpyAsync:1/3";
        let (truth, _) = record(&format!("release={release},correlation=4294966000,{faults}"));
        let counted = [truth.dropped, truth.zero_time, truth.unfinished, truth.failed];
        assert!(counted.iter().all(|count| *count > 0), "{truth:?}");
    }
}

/// Check that every launch of a program that exits without waiting for its kernels is matched or pending.
#[test]
fn launches_of_an_early_exit_are_matched_or_pending() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} quick 5000", program("behave")))).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "launches"), 5_000);
    assert_eq!(number(&report, "matched") + number(&report, "pending_launches"), 5_000);
    // The process exited before it flushed, or even before its first message.
    assert_eq!((number(&report, "sessions_cut_off"), lost(&report)), (1, 0), "{}", report["lost"]);
}

/// Check that copies and memsets of 0 bytes, which give the GPU no work, are counted separately and never as pending.
#[test]
fn empty_copies_are_not_pending() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record("--sim -o x.wscope", &format!("{} empty 50", program("behave")))).exits(0);
    let report = scene.report("x.wscope");
    let counts = ["launches", "empty_launches", "pending_launches", "copies", "memsets", "matched"];
    assert_eq!(counts.map(|key| number(&report, key)), [201, 200, 0, 1, 0, 1]);
    assert!(run.err().contains("200 launch calls gave the GPU no work"), "{}", run.err());
}
