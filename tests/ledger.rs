//! Nothing is lost in silence: whatever goes wrong, the ledger has the same numbers as the simulated GPU's own account.

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    oracle::Walk,
    program,
    scene::{lost, number},
    truth::Truth,
};

/// Runs the ground-truth program under a script of faults; insists that both accounts agree; returns them.
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
    // What the report counts, the text after the run says.
    for sentence in report["ledger"].as_array().expect("sentences") {
        let sentence = sentence.as_str().expect("text");
        assert!(run.err().contains(sentence), "`{sentence}` is not in:\n{}", run.err());
    }
    (truth, report)
}

/// Records that CUPTI dropped are counted, and their launches are pending.
#[test]
fn dropped_records() {
    for every in [2, 7, 1000] {
        let (truth, report) = record(&format!("drop=1/{every}"));
        assert!(truth.dropped >= 19_000 / every, "{truth:?}");
        assert!(number(&report, "pending_launches") > 0);
    }
}

/// Records without times are counted and have no width.
#[test]
fn records_without_times() {
    let (truth, _) = record("zero_time=1/5");
    assert_eq!(truth.zero_time, 4_000);
    assert_eq!(truth.delivered(), 20_000);
}

/// Work that never finished is counted and has no width.
#[test]
fn unfinished_work() {
    let (truth, _) = record("unfinished=1/9");
    assert_eq!(truth.unfinished, 2 * (10_000 / 9));
    assert_eq!(truth.delivered(), 20_000);
}

/// Launches that return an error are counted, whether the failing call is the one that was made or one within it.
#[test]
fn failing_launches() {
    for (function, every) in
        [("cudaLaunchKernel", 3), ("cuLaunchKernel", 10), ("cudaMemcpyAsync", 2), ("cuMemsetD8Async", 2)]
    {
        let (truth, _) = record(&format!("fail={function}:1/{every}"));
        assert!(truth.failed > 0, "{function} never failed");
    }
}

/// All faults at once, under the oldest and the newest release: still every number agrees.
#[test]
fn everything_at_once() {
    for release in ["11.8", "13.4"] {
        let faults = "drop=1/11,zero_time=1/13,unfinished=1/17,fail=cuLaunchKernel:1/19,fail=cudaMemcpyAsync:1/3";
        let (truth, _) = record(&format!("release={release},correlation=4294966000,{faults}"));
        let counted = [truth.dropped, truth.zero_time, truth.unfinished, truth.failed];
        assert!(counted.iter().all(|count| *count > 0), "{truth:?}");
    }
}

/// A program that ends without waiting for its kernels: every launch is there, matched or pending.
#[test]
fn ends_without_waiting() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} quick 5000", program("behave")))).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "launches"), 5_000);
    assert_eq!(number(&report, "matched") + number(&report, "pending_launches"), 5_000);
    // It exited before it flushed, or even before its first message.
    assert_eq!((number(&report, "sessions_cut_off"), lost(&report)), (1, 0), "{}", report["lost"]);
}

/// Copies and memsets of 0 bytes give the GPU nothing to do: they are counted as such, and never as pending.
#[test]
fn empty_copies_are_not_pending() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record("--sim -o x.wscope", &format!("{} empty 50", program("behave")))).exits(0);
    let report = scene.report("x.wscope");
    let counts = ["launches", "empty_launches", "pending_launches", "copies", "memsets", "matched"];
    assert_eq!(counts.map(|key| number(&report, key)), [201, 200, 0, 1, 0, 1]);
    assert!(run.err().contains("200 launch calls had nothing to do"), "{}", run.err());
}
