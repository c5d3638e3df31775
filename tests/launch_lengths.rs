//! How long the calls took that launch GPU work.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{Ended, Scene, oracle::Walk, program, scene::number};

/// What the simulator adds to each launch of a kernel.
const SLOW_US: f64 = 150.0;

/// Check that every launch but the last of each thread has its length in `.jsonl` and in `.trace.json`, that slow launches are
/// as long as the simulator made them, and that no launch reaches into the next one of its thread.
#[test]
fn launches_are_as_long_as_their_calls() {
    let scene = Scene::new();
    let walk = Walk { processes: 1, threads: 3, streams: 2, devices: 1, launches: 600, graphs: false };
    let command = format!("{} {}", program("truth"), walk.arguments());
    let slow = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"];
    let slow: String = slow.iter().map(|function| format!(",slow={function}:{SLOW_US}us")).collect();
    let mut recording = scene.record("--sim --gpu-only -o x.jsonl -o x.trace.json -o x.wscope", &command);
    Ended::of(recording.env("WARPSCOPE_SIM", format!("kernel_ns=1us{slow}"))).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "matched"), walk.total());
    assert!(number(&report, "launch_each_ns") > 50_000, "{}", report["launch_each_ns"]);

    let lines: Vec<Value> =
        scene.read("x.jsonl").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).cloned().collect::<Vec<Value>>();
    let returned: BTreeMap<u64, u64> =
        of("returned").iter().map(|line| (number(line, "correlation"), number(line, "dur_ns"))).collect();
    let launches = of("launch");
    let threads: BTreeSet<u64> = launches.iter().map(|line| number(line, "tid")).collect();
    assert_eq!(returned.len() as u64, walk.total() - threads.len() as u64);
    let mut slow_ones = 0;
    for launch in launches.iter().filter(|launch| launch["kind"] == "kernel") {
        if let Some(took) = returned.get(&number(launch, "correlation")) {
            assert!(*took as f64 >= SLOW_US * 1e3, "{took} ns: {launch}");
            slow_ones += 1;
        }
    }
    assert!(slow_ones > walk.total() / 4, "{slow_ones} of {}", walk.total());

    let trace: Value = serde_json::from_str(&scene.read("x.trace.json")).expect("JSON");
    let mut slices: BTreeMap<u64, Vec<(f64, f64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["cat"] == "launch") {
        let (start, length) = (event["ts"].as_f64().expect("a time"), event["dur"].as_f64().expect("a length"));
        let slice = (start, length, number(&event["args"], "correlation"));
        slices.entry(number(event, "tid")).or_default().push(slice);
    }
    assert_eq!(slices.values().map(Vec::len).sum::<usize>() as u64, walk.total());
    for thread in slices.values_mut() {
        thread.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in thread.windows(2) {
            let (start, length, correlation) = pair[0];
            assert!(start + length <= pair[1].0 + 0.0011, "{pair:?}");
            let took = returned[&correlation] as f64 / 1e3;
            assert!(
                length <= took + 0.001 && (took - length < 0.001 || start + length > pair[1].0 - 0.0011),
                "{pair:?}"
            );
        }
    }
}
