//! Hardware counters of single launches, and what limits each kernel at each line (`record --limits`), on a GPU whose kernels count
//! what is known.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    jsonl::Events,
    program,
    scene::{lost, number},
};

/// Shares of the peak while the kernel runs, by the numbers of the metrics: SMs 1, warps 2, tensor 4, DRAM 5, bytes read 6, FP64 12,
/// FMA 17, instructions 27, and those of threads 28.
const KERNELS: &str = "kernel_ns=50us,limits[gather]=1=99:2=60:4=1:5=85:6=100000:17=5:27=1000:28=16000,\
                       limits[plain]=1=98:2=50:4=90:5=20:6=2000,limits[wide]=1=97:2=50:12=75";

/// Records programs of `tests/programs/findings.c`; returns the summary.
fn record(scene: &Scene, script: &str, options: &str, threads: &[&str]) -> String {
    let options = format!("--sim --limits{options} --gpu-only -o x.wscope -o x.jsonl");
    let program = program("findings");
    let words: Vec<&str> = [program.as_str()].into_iter().chain(threads.iter().copied()).collect();
    let mut command = scene.record_words(&options, &words);
    Ended::of(command.env("WARPSCOPE_SIM", format!("{KERNELS}{script}"))).exits(0).err().to_owned()
}

/// The values of each launch that was measured: by correlation id and metric.
fn measured(events: &Events) -> BTreeMap<u64, BTreeMap<String, f64>> {
    let mut all: BTreeMap<u64, BTreeMap<String, f64>> = BTreeMap::new();
    for event in events.of("kernelcounter") {
        let (metric, value) = (event["metric"].as_str().expect("a name"), event["value"].as_f64().expect("a number"));
        all.entry(number(event, "correlation")).or_default().insert(metric.to_owned(), value);
    }
    all
}

/// The kernels that ran, by correlation id: name and length.
fn ran(events: &Events) -> BTreeMap<u64, (String, u64)> {
    let kernel = |event: &Value| {
        (number(event, "correlation"), (event["name"].as_str().expect("a name").to_owned(), number(event, "dur_ns")))
    };
    events.of("kernel").map(kernel).collect()
}

fn row<'a>(report: &'a Value, kernel: &str) -> &'a Value {
    let rows = report["limits"]["kernels"].as_array().expect("rows");
    rows.iter().find(|row| row["kernel"] == kernel).unwrap_or_else(|| panic!("no row of {kernel}: {rows:?}"))
}

/// Whether a value is what the simulated GPU counted, but for rounding.
fn is(value: &Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - expected).abs() <= 1e-6 * expected.max(1.0))
}

/// Check that the 1st, 8th, 64th ... launch of each kernel is measured after the one that loads it, that its values are exactly those of the simulated GPU, that
/// the kernel with which CUPTI separates ranges is not one of the program's, and that each kernel is judged by its values.
#[test]
fn launches_are_measured_exactly() {
    let scene = Scene::new();
    let summary = record(&scene, "", "", &["grid:1056 80( kernel:gather kernel:plain kernel:wide ) sync"]);
    let events = Events::read(&scene.read("x.jsonl"));
    let (kernels, launches) = (ran(&events), measured(&events));
    assert_eq!(kernels.len(), 240, "the kernels of CUPTI are not the program's");
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (correlation, values) in &launches {
        let (name, ns) = &kernels[correlation];
        *counts.entry(name).or_default() += 1;
        let range = values["gpu__time_duration.sum"];
        assert_eq!(range, (ns + 10_000) as f64);
        let dram = if name == "gather" {
            85.0
        } else if name == "plain" {
            20.0
        } else {
            0.0
        };
        let counted = values["dram__throughput.avg.pct_of_peak_sustained_elapsed"];
        assert!((counted - dram * *ns as f64 / range).abs() < 1e-9, "{name}: {counted}");
    }
    assert_eq!(counts, BTreeMap::from([("gather", 3), ("plain", 3), ("wide", 3)]), "1, 8, 64");

    let report = scene.report("x.wscope");
    let limits = &report["limits"];
    assert_eq!((number(limits, "measured"), number(limits, "disturbed"), number(limits, "lost")), (9, 0, 0));
    assert_eq!(limits["judged_ns"], limits["kernel_ns"]);
    let gather = row(&report, "gather");
    assert_eq!((&gather["limit"], number(gather, "runs"), number(gather, "measured")), (&"dram".into(), 80, 3));
    assert!(is(&gather["of_peak"], 85.0) && is(&gather["sm_active"], 99.0) && is(&gather["warps"], 60.0), "{gather}");
    assert!(is(&gather["dram_bytes_per_second"], 100_000.0 / 50e-6), "{gather}");
    assert_eq!(gather["elsewhere"], false);
    let plain = row(&report, "plain");
    assert!(plain["limit"] == "tensor" && is(&plain["of_peak"], 90.0), "{plain}");
    // FP64 does not fit into the first group of this GPU.
    assert_eq!(row(&report, "wide")["limit"], "latency", "it issues nothing");
    assert!(
        summary.contains("Kernels by limit") && summary.contains("9 launches measured in"),
        "the summary has the table: {summary}"
    );
    let table = Ended::of(&mut scene.warpscope(&["report", "--by", "limits", "x.wscope"])).exits(0).out().to_owned();
    assert!(table.contains("gather") && table.contains("85 % of its peak; read and write less"), "{table}");
    assert_eq!(lost(&report), 0);
}

/// Check that later windows measure the other metrics, also those that do not fit beside others, and that what the chip lacks is absent.
#[test]
fn windows_take_turns() {
    let scene = Scene::new();
    // Each size is a kernel of its own: 128 fill a window.
    let sizes: String = (1..=64).map(|size| format!("grid:{size} kernel:gather kernel:wide ")).collect();
    record(&scene, "", "", &[&format!("40( {sizes} nap:50000 ) sync")]);
    let report = scene.report("x.wscope");
    let (gather, wide) = (row(&report, "gather"), row(&report, "wide"));
    assert!(is(&gather["fp32"], 5.0) && is(&gather["threads"], 16.0), "{gather}");
    assert!(is(&wide["fp64"], 75.0) && wide["limit"] == "fp64" && is(&wide["of_peak"], 75.0), "{wide}");
    let events = Events::read(&scene.read("x.jsonl"));
    let names: Vec<String> = measured(&events).into_values().flat_map(BTreeMap::into_keys).collect();
    assert!(!names.iter().any(|name| name == "sm__ops_path_tensor_src_fp8.sum"));
    assert!(names.iter().any(|name| name == "sm__ops_path_tensor_src_tf32_dst_fp32.sum"), "the last group");
}

/// Check that a stream can be captured while launches are measured: no range begins meanwhile, and graphs are not measured.
#[test]
fn captures_are_left_alone() {
    let scene = Scene::new();
    record(&scene, "", "", &["4( kernel:gather capture:6 10( replay kernel:plain ) ) sync"]);
    let report = scene.report("x.wscope");
    assert_eq!(row(&report, "work")["limit"], "not-measured");
    assert_eq!(row(&report, "work")["runs"], 240);
    assert!(is(&row(&report, "plain")["of_peak"], 90.0));
}

/// Check that what other threads do does not get into the values of a launch.
#[test]
fn launches_of_other_threads_do_not_count() {
    let scene = Scene::new();
    let threads = ["3000( kernel:gather ) sync", "3000( kernel:plain ) sync", "3000( copy:1000 ) sync"];
    record(&scene, "", "", &threads);
    let events = Events::read(&scene.read("x.jsonl"));
    let (kernels, launches) = (ran(&events), measured(&events));
    assert_eq!(kernels.len(), 6000);
    assert!(!launches.is_empty());
    for (correlation, values) in &launches {
        assert_eq!(values["gpu__time_duration.sum"], (kernels[correlation].1 + 10_000) as f64);
    }
}

/// Check that only kernels with this in their name are measured, and none that communicates.
#[test]
fn kernels_are_selected_by_name() {
    let scene = Scene::new();
    record(&scene, "", "=GATH", &["10( kernel:gather kernel:plain ) sync"]);
    let report = scene.report("x.wscope");
    assert_eq!((number(row(&report, "gather"), "measured"), number(row(&report, "plain"), "measured")), (2, 0));
    assert_eq!(row(&report, "plain")["limit"], "not-measured");

    let scene = Scene::new();
    record(&scene, "", "", &["10( kernel:ncclDevKernel_AllReduce kernel:plain ) sync"]);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report["limits"], "communication"), 10);
    assert_eq!(row(&report, "ncclDevKernel_AllReduce")["limit"], "not-measured");
}

/// Check that the reason is said where launches cannot be measured, and that the recording is complete without.
#[test]
fn refusals_are_explained() {
    for (fault, why) in [
        ("permission", "reading the GPU's counters needs permission"),
        ("busy", "another tool uses the GPU's counters"),
        ("unsupported", "measuring needs CUPTI 12.6 or later"),
    ] {
        let scene = Scene::new();
        let summary = record(&scene, &format!(",pm={fault}"), "", &["20( kernel:gather ) sync"]);
        assert!(summary.contains(why), "{summary}");
        assert_eq!(ran(&Events::read(&scene.read("x.jsonl"))).len(), 20);
    }
}

/// Check that the injected library and the recording number the metrics alike.
#[test]
fn metrics_have_the_same_numbers() {
    let sent = cupti::limits::METRICS.map(|name| name.to_str().expect("a name"));
    assert_eq!(sent, model::limits::METRICS);
    assert_eq!(u32::from(cupti::limits::ANNOUNCED), model::limits::ANNOUNCED);
}
