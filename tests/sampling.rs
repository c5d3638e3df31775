//! Sampling (`record --max-overhead`) keeps every total: a fixed sampling rate is compared with what the program did.

use serde_json::Value;

use crate::support::{Ended, Scene, folded, program, scene::number};

const FIRST_NS: u64 = 1_000;
const SECOND_NS: u64 = 2_500;

/// Records `sampled` with these options and environment, and checks what must hold however little was recorded: every
/// launch is there, and every kernel's total is right.
#[track_caller]
fn record(scene: &Scene, threads: u64, launches: u64, options: &str, sampling: Option<&str>, script: &str) -> Value {
    let command = format!("{} {threads} {launches}", program("sampled"));
    let script = format!("kernel[first]={FIRST_NS}ns,kernel[second]={SECOND_NS}ns,{script}");
    let mut warpscope = scene.record(&format!("--sim --gpu-only {options} -o x.folded -o x.wscope"), &command);
    warpscope.env("WARPSCOPE_SIM", script);
    if let Some(sampling) = sampling {
        warpscope.env("WARPSCOPE_SAMPLING", sampling);
    }
    let run = Ended::of(&mut warpscope).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "launches"), threads * launches, "{}", report["sampling"]);
    assert_eq!((number(&report, "unmatched_activities"), number(&report, "pending_launches")), (0, 0), "{}", run.err());
    assert_eq!(report["lost"].as_object().expect("losses").values().filter_map(Value::as_u64).sum::<u64>(), 0);
    assert_eq!(number(&report, "kernels"), threads * launches);
    let second = threads * (launches / 3);
    for (name, count, ns) in [("first", threads * launches - second, FIRST_NS), ("second", second, SECOND_NS)] {
        let kernel = report["top_kernels"].as_array().expect("kernels").iter().find(|k| k["name"] == name).expect(name);
        assert!(number(kernel, "count").abs_diff(count) <= threads, "{name}: {kernel}, launched {count} times");
        let total = number(kernel, "count") * ns;
        assert!(number(kernel, "ns").abs_diff(total) <= total / 200, "{name}: {kernel}, {total} ns");
    }
    report
}

/// Checks the shares of the call paths, which are estimates: by how much they differ depends on how many stacks there are.
#[track_caller]
fn check_shares(scene: &Scene) {
    let shares = shares(&scene.read("x.folded"));
    for ((kernel, path), expected) in
        [(("first", "often"), 0.7), (("first", "seldom"), 0.2), (("first", "rarely"), 0.1), (("second", "rarely"), 1.0)]
    {
        let share = shares.iter().find(|(k, p, _)| k == kernel && p == path).map_or(0.0, |(.., share)| *share);
        assert!((share - expected).abs() < 0.02, "{kernel} from {path}: {share}, not {expected}");
    }
}

/// The share of each path in the time of each kernel.
fn shares(text: &str) -> Vec<(String, String, f64)> {
    let mut times: Vec<(String, String, u64)> = Vec::new();
    for line in folded::read(text) {
        let Some(kernel) = line.on_gpu() else { continue };
        let path = line.launcher().iter().find(|frame| ["often", "seldom", "rarely"].contains(frame));
        times.push((kernel.name.to_owned(), path.map_or("", |path| *path).to_owned(), line.weight));
    }
    let total = |kernel: &str| times.iter().filter(|(k, ..)| k == kernel).map(|(.., time)| time).sum::<u64>() as f64;
    let mut shares: Vec<(String, String, f64)> = Vec::new();
    for (kernel, path, time) in &times {
        let share = *time as f64 / total(kernel);
        match shares.iter_mut().find(|(k, p, _)| k == kernel && p == path) {
            Some((.., sum)) => *sum += share,
            None => shares.push((kernel.clone(), path.clone(), share)),
        }
    }
    shares
}

/// Check that with stacks of one launch in eight, all totals are exact and each path has its share.
#[test]
fn sampled_stacks_keep_totals_and_shares() {
    let scene = Scene::new();
    let report = record(&scene, 2, 120_000, "", Some("3,0"), "");
    check_shares(&scene);
    let sampling = &report["sampling"];
    let without = number(sampling, "launches_without_stack");
    assert!(without.abs_diff(240_000 * 7 / 8) < 240_000 / 50, "{sampling}");
    assert_eq!((number(sampling, "counted_launches"), &sampling["recorded_share"]), (0, &1.0.into()));
}

/// Check that with records during a quarter of the time, launches are recorded or counted, never both and never
/// neither, while several threads launch.
#[test]
fn windows_keep_totals_and_shares() {
    let scene = Scene::new();
    let report = record(&scene, 4, 150_000, "", Some("2,2"), "");
    check_shares(&scene);
    let sampling = &report["sampling"];
    assert!(number(sampling, "counted_launches") > 60_000, "{sampling}");
    let share = sampling["recorded_share"].as_f64().expect("a share");
    assert!(share > 0.05 && share < 0.6, "{sampling}");
    assert_eq!(number(sampling, "timeless_launches"), 0);
    assert!(report["ledger"].as_array().expect("sentences").iter().any(|s| {
        s.as_str().is_some_and(|s| s.starts_with("GPU work was recorded during ") && s.contains("only counted"))
    }));
}

/// Check that `--max-overhead` reduces what is recorded when a program launches too fast for the budget. How many stacks there
/// are depends on the machine's load, so shares are checked with fixed rates only.
#[test]
fn a_fast_program_is_recorded_less() {
    let report = record(&Scene::new(), 1, 1_000_000, "--max-overhead 3", None, "record_cost=5us");
    let sampling = &report["sampling"];
    assert!(number(sampling, "counted_launches") > 100_000, "{sampling}");
    assert!(number(sampling, "launches_without_stack") > 0, "{sampling}");
}

/// Check that a program that launches slowly enough is recorded completely with `--max-overhead`.
#[test]
fn a_slow_program_is_recorded_completely() {
    let scene = Scene::new();
    let command = format!("{} 1 300 1", program("sampled"));
    let mut warpscope = scene.record("--sim --gpu-only --max-overhead 10 -o x.wscope", &command);
    Ended::of(warpscope.env("WARPSCOPE_SIM", "kernel_ns=2ms")).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), number(&report, "matched")), (300, 300));
    let sampling = &report["sampling"];
    assert_eq!(
        (number(sampling, "launches_without_stack"), number(sampling, "counted_launches")),
        (0, 0),
        "{sampling}"
    );
}
