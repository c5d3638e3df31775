//! Live memory by the rules of `cuda::memory`: the same test vectors, run as real calls with real probes.

use std::collections::{BTreeMap, BTreeSet};

use cuda::memory::vectors::{self, Step, Vector};

use crate::support::{
    Ended, Scene,
    monitor::{Monitor, Watched},
    scripted::{Scripted, line},
    wait_until,
};

/// Metrics of the monitor, by the counter names that the vectors use.
const COUNTERS: [(&str, &str); 11] = [
    ("allocations", "warpscope_memory_allocations_total"),
    ("bytes", "warpscope_memory_allocated_bytes_total"),
    ("failed", "warpscope_memory_failed_allocations_total"),
    ("failed_frees", "warpscope_memory_failed_frees_total"),
    ("frees", "warpscope_memory_frees_total"),
    ("live", "warpscope_memory_live_allocations"),
    ("live_bytes", "warpscope_memory_live_bytes"),
    ("missed_frees", "warpscope_memory_missed_frees_total"),
    ("peak_bytes", "warpscope_memory_peak_bytes"),
    ("released", "warpscope_memory_released_allocations_total"),
    ("unknown_frees", "warpscope_memory_unknown_frees_total"),
];

/// The monitor's name for a memory space. Spaces that have no memory of their own are not counted there.
fn of_monitor(space: &str) -> Option<&'static str> {
    match space {
        "device" | "array" | "physical" => Some("device"),
        "managed" => Some("managed"),
        "host" | "registered" => Some("host"),
        _ => None,
    }
}

/// Sums the accounts by space, with `name` translating each space.
fn sum<'a>(
    vectors: impl IntoIterator<Item = &'a Vector>,
    name: impl Fn(&'static str) -> Option<&'static str>,
) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
    let mut all = BTreeMap::<_, BTreeMap<_, u64>>::new();
    for (space, counters) in vectors.into_iter().flat_map(|vector| &vector.account) {
        let Some(space) = name(space) else { continue };
        for (counter, count) in counters {
            *all.entry(space).or_default().entry(*counter).or_default() += count;
        }
    }
    all
}

fn functions(vectors: &[Vector]) -> BTreeSet<&'static str> {
    let function = |step: &Step| match step {
        Step::Enter { function, .. } => Some(*function),
        Step::Return { .. } => None,
    };
    vectors.iter().flat_map(|vector| &vector.steps).filter_map(function).collect()
}

/// Check that the monitor's counters match each vector, with each vector in its own process under one monitor.
#[test]
fn monitor_counters_match_each_vector() {
    let scene = Scene::new();
    let vectors = vectors::all();
    let monitor = Monitor::start(&scene, "--memleak");
    let scripted = Scripted::build(&scene, &functions(&vectors));
    let start = || Watched::of(&mut scripted.command(&scene));
    // Keeps the libraries loaded, so the monitor keeps watching them.
    let mut pilot = start();
    let pid = pilot.pid().to_string();
    wait_until("the monitor watches the libraries", || {
        pilot.does("enter 1 cudaMalloc & 1");
        pilot.does("return 1 2");
        pilot.does("enter 1 cuMemAlloc_v2 & 1");
        pilot.does("return 1 2");
        let metrics = monitor.scrape();
        let failed =
            |function| metrics.sum("warpscope_call_duration_seconds_count", &[("pid", &pid), ("function", function)]);
        failed("cudaMalloc") > 0 && failed("cuMemAlloc_v2") > 0
    });
    let mut processes = Vec::new();
    for vector in &vectors {
        let mut process = start();
        for step in &vector.steps {
            process.does(&line(step));
        }
        processes.push(process);
    }
    let metrics = monitor.scrape();
    let per_process = |counter: &str| ["missed_frees", "released", "unknown_frees"].contains(&counter);
    for (vector, process) in vectors.iter().zip(&processes) {
        let (pid, expected) = (process.pid().to_string(), sum([vector], of_monitor));
        for (counter, metric) in COUNTERS.iter().filter(|(counter, _)| per_process(counter)) {
            let expected: u64 = expected.values().filter_map(|counters| counters.get(counter)).sum();
            assert_eq!(metrics.sum(metric, &[("pid", pid.as_str())]), expected, "{}: {counter}", vector.name);
        }
        for space in ["device", "managed", "host"] {
            let of = |metric| metrics.sum(metric, &[("pid", pid.as_str()), ("space", space)]);
            let found =
                COUNTERS.iter().map(|(counter, metric)| (*counter, of(*metric))).filter(|(_, count)| *count > 0);
            let mut expected = expected.get(space).cloned().unwrap_or_default();
            expected.retain(|counter, _| !per_process(counter));
            assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{}: {space}", vector.name);
        }
    }
    assert_eq!(metrics.sum("warpscope_lost_calls_total", &[]), 0);
    drop(processes);
    drop(pilot);
    monitor.stop();
}

/// Check that a trace of all vectors in sequence reports their sums, both from recorded calls and from the kernel's counters.
#[test]
fn trace_memory_matches_the_vectors() {
    let scene = Scene::new();
    let vectors = vectors::all();
    let scripted = Scripted::build(&scene, &functions(&vectors));
    for (number, vector) in vectors.iter().enumerate() {
        let lines: String = vector.steps.iter().map(|step| line(step) + "\n").collect();
        std::fs::write(scene.path(&format!("script-{number}")), lines).expect("a file");
    }
    let expected = sum(&vectors, Some);
    let each =
        format!("set -e; for i in $(seq 0 {}); do ./scripted/runner <script-$i >/dev/null; done", vectors.len() - 1);
    for mode in ["", "--summary-only "] {
        let options = format!(
            "{mode}--no-gpu -q -o t.wscope --lib {0}/libcudart.so.12 --lib {0}/libcuda.so.1",
            scene.text("scripted")
        );
        let mut trace = scene.trace_words(&options, &["sh", "-c", &each]);
        Ended::of(trace.env("LD_LIBRARY_PATH", scripted.libraries())).exits(0);
        let report = scene.report("t.wscope");
        for space in cuda::calls::Space::ALL.map(cuda::calls::Space::name) {
            let mut expected = expected.get(space).cloned().unwrap_or_default();
            // The peak over several processes depends on when they ran.
            expected.remove("peak_bytes");
            let rows = report["trace"]["memory"].as_array().expect("memory");
            let row = rows.iter().find(|row| row["space"] == space);
            let of = |counter: &str| row.and_then(|row| row[counter].as_u64()).unwrap_or(0);
            let names = COUNTERS.iter().map(|(counter, _)| *counter).filter(|counter| *counter != "peak_bytes");
            let found = names.map(|counter| (counter, of(counter))).filter(|(_, count)| *count > 0);
            assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{mode}{space}");
        }
    }
}
