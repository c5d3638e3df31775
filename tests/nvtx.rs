//! Ranges and marks with which programs annotate themselves (NVTX), on request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    Ended, Scene, folded,
    jsonl::Events,
    program,
    scene::{lost, number},
};

const ROUNDS: u64 = 50;

fn record(scene: &Scene, options: &str, form: &str) -> Value {
    let options = format!("--sim -q --gpu-only {options} -o x.wscope -o x.jsonl -o x.json -o x.folded -o x.html");
    let command = format!("{} {ROUNDS} {form}", program("nvtx"));
    Ended::of(scene.record(&options, &command).env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    assert_eq!(number(&report, "kernels"), 6 * ROUNDS + 1);
    report
}

/// The rows by name: count, marks, operations, GPU time in microseconds.
fn rows(report: &Value) -> BTreeMap<&str, [u64; 4]> {
    let ranges = report["ranges"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |row: &Value| {
        ["count", "marks", "operations", "gpu_ns"].map(|key| number(row, key) / if key == "gpu_ns" { 1_000 } else { 1 })
    };
    ranges.iter().map(|range| (range["name"].as_str().expect("a name"), row(range))).collect()
}

/// GPU time in microseconds by the frames of ranges, which are between the process and its functions.
fn frames(scene: &Scene) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let text = scene.read("x.folded");
    for line in folded::read(&text) {
        let is_range = |frame: &&&str| frame.starts_with("[nvtx: ");
        let ranges: Vec<&str> = line.frames.iter().skip(1).take_while(is_range).copied().collect();
        assert_eq!(line.frames.iter().filter(is_range).count(), ranges.len(), "{text}");
        *sums.entry(ranges.join(" ")).or_default() += line.weight;
    }
    sums
}

fn expected<const N: usize>(rows: [(&str, u64); N]) -> BTreeMap<String, u64> {
    rows.map(|(frames, time)| (frames.to_owned(), time)).into()
}

/// Check that all ranges and marks are counted, and that each launch belongs to the ranges around it.
#[test]
fn ranges_have_their_launches() {
    let scene = Scene::new();
    let report = record(&scene, "--nvtx", "");
    let table = [
        ("all rounds", [1, 0, 0, 0]),
        ("forward", [ROUNDS, 0, 2 * ROUNDS, 6 * ROUNDS]),
        ("hälf", [0, ROUNDS, 0, 0]),
        ("lib:backward", [ROUNDS, 0, 3 * ROUNDS, 9 * ROUNDS]),
        ("step", [ROUNDS, 0, 5 * ROUNDS, 15 * ROUNDS]),
    ];
    assert_eq!(rows(&report), table.into());
    let graph = [
        ("", 3 + 3 * ROUNDS),
        ("[nvtx: step] [nvtx: forward]", 6 * ROUNDS),
        ("[nvtx: step] [nvtx: lib:backward]", 9 * ROUNDS),
    ];
    assert_eq!(frames(&scene), expected(graph));
    let shown = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
    let text = shown.out();
    assert!(text.lines().any(|line| line.starts_with("NVTX ")) && text.contains("lib:backward"), "{text}");
    let events = Events::read(&scene.read("x.jsonl"));
    let ranges: Vec<_> = events.of("range").collect();
    assert_eq!(ranges.len() as u64, 4 * ROUNDS + 1);
    // Ranges are inside the ranges around them.
    let of = |path: &Value| {
        let times = |e: &&Value| (number(e, "ts_ns"), number(e, "ts_ns") + number(e, "dur_ns"));
        ranges.iter().filter(|e| e["path"] == *path).map(times).collect::<Vec<_>>()
    };
    let (steps, inner) = (of(&json!(["step"])), of(&json!(["step", "lib:backward"])));
    assert_eq!((steps.len() as u64, inner.len() as u64), (ROUNDS, ROUNDS));
    assert!(steps.iter().zip(&inner).all(|(step, inner)| step.0 <= inner.0 && inner.1 <= step.1));
    assert!(ranges.iter().all(|e| (e["path"][1] == "lib:backward") == (e["category"] == "math")));
    let timeline = scene.read("x.json");
    assert!(timeline.contains("\"cat\":\"nvtx\"") && timeline.contains(", NVTX\""));
}

/// Check that nothing is replaced unless it is requested.
#[test]
fn nvtx_is_off_by_default() {
    let scene = Scene::new();
    assert_eq!(record(&scene, "", "")["ranges"], Value::Null);
    assert_eq!(frames(&scene), expected([("", 3 + 18 * ROUNDS)]));
}

/// Check that a range that was begun before CUDA was used has all its work, and that one that also ended before is left
/// out.
#[test]
fn ranges_may_begin_before_the_session() {
    let scene = Scene::new();
    let report = record(&scene, "--nvtx", "early");
    let rows = rows(&report);
    assert_eq!(rows.get("over"), None);
    assert_eq!(rows["early"], [1, 0, 6 * ROUNDS + 1, 3 + 18 * ROUNDS]);
    assert_eq!(rows["step"], [ROUNDS, 0, 5 * ROUNDS, 15 * ROUNDS]);
}

/// Check that the numbers that PyTorch appends to names, different at each call, do not make different ranges.
#[test]
fn names_with_call_numbers_are_one_range() {
    let scene = Scene::new();
    let report = record(&scene, "--nvtx", "many");
    let rows = rows(&report);
    assert_eq!(rows["step 0"], [ROUNDS / 2, 0, 5 * ROUNDS / 2, 15 * ROUNDS / 2]);
    assert_eq!(rows["step 1"], rows["step 0"]);
    assert_eq!(rows.len(), 6, "{rows:?}");
}

/// Check that a launch is not charged to a range of another domain that has ended.
#[test]
fn ranges_of_domains_may_overlap() {
    let scene = Scene::new();
    let report = record(&scene, "--nvtx", "crossed");
    let rows = rows(&report);
    assert_eq!(rows["step"], [ROUNDS, 0, 2 * ROUNDS, 6 * ROUNDS]);
    assert_eq!(rows["lib:backward"], [ROUNDS, 0, 3 * ROUNDS, 9 * ROUNDS]);
    let graph =
        [("", 3 + 3 * ROUNDS), ("[nvtx: lib:backward]", 9 * ROUNDS), ("[nvtx: step] [nvtx: forward]", 6 * ROUNDS)];
    assert_eq!(frames(&scene), expected(graph));
}

/// Check that ranges keep their GPU work where only some launches have a stack.
#[test]
fn ranges_are_exact_with_sampled_stacks() {
    let scene = Scene::new();
    let options = "--sim -q --gpu-only --nvtx -o x.wscope -o x.folded";
    let mut recording = scene.record(options, &format!("{} 2000", program("nvtx")));
    Ended::of(recording.env("WARPSCOPE_SIM", "kernel_ns=3us").env("WARPSCOPE_SAMPLING", "3,0")).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(rows(&report)["forward"], [2000, 0, 4000, 12_000]);
    let sums = frames(&scene);
    assert_eq!(sums["[nvtx: step] [nvtx: forward]"], 12_000, "{sums:?}");
    assert_eq!(sums["[nvtx: step] [nvtx: lib:backward]"], 18_000, "{sums:?}");
}

/// Check that another library that the user has chosen for NVTX is left in place, and that the report says so.
#[test]
fn another_library_for_nvtx_is_kept() {
    let scene = Scene::new();
    let shell = "test \"$NVTX_INJECTION64_PATH\" = /opt/other.so && test -z \"$WARPSCOPE_NVTX\"";
    let mut recording =
        scene.warpscope(&["record", "--sim", "-q", "--nvtx", "-o", "x.wscope", "--", "sh", "-c", shell]);
    Ended::of(recording.env("NVTX_INJECTION64_PATH", "/opt/other.so")).exits(0);
    let notes = scene.report("x.wscope")["notes"].to_string();
    assert!(notes.contains("NVTX_INJECTION64_PATH: /opt/other.so"), "{notes}");
}

/// Check that `--nvtx` selects the work launched in a range and in the ranges within it, with its launches.
#[test]
fn work_is_selected_by_range() {
    let scene = Scene::new();
    record(&scene, "--nvtx", "");
    for (pattern, kernels) in [("forward", 2 * ROUNDS), ("step", 5 * ROUNDS), ("*:back*", 3 * ROUNDS)] {
        let run = Ended::of(&mut scene.warpscope(&["report", "--json", "--nvtx", pattern, "x.wscope"])).exits(0);
        let part: Value = serde_json::from_str(run.out()).expect("the report is JSON");
        assert_eq!((number(&part, "kernels"), number(&part, "matched")), (kernels, kernels), "{pattern}");
        assert_eq!((number(&part, "unmatched_activities"), number(&part, "pending_launches")), (0, 0), "{pattern}");
    }
    let run = Ended::of(&mut scene.warpscope(&["report", "--nvtx", "nothing", "x.wscope"])).exits(1);
    run.says(&["no NVTX range that matches nothing"]);
}
