//! The energy of kernels and call paths (`record --energy`), on a GPU whose power is known.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Ended, Scene, browser::Browser, jsonl::Events, program, scene::number};

const STEP: u64 = 20_000_000;
/// Watts, which are nanojoules per nanosecond.
const IDLE: u64 = 70;
const KERNEL: u64 = 430;

fn record(scene: &Scene, script: &str, options: &str) -> String {
    let meter = scene.text("meter");
    let script = format!(
        "kernel[gather]=150ms,kernel[plain]=100ms,watts={IDLE}:{KERNEL},energy_step=20ms,meter={meter},{script}"
    );
    let options = format!("--sim --energy --gpu-only {options} -o x.wscope -o x.jsonl -o x.json -o x.html");
    let mut command = scene.record(&options, &program("stalled"));
    Ended::of(command.env("WARPSCOPE_SIM", script.trim_end_matches(','))).exits(0).err().to_owned()
}

/// The kernels of the simulated GPU: start and end of each, as it noted them itself.
fn truth(scene: &Scene) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(scene.path("meter")).expect("the kernels");
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    bytes.chunks_exact(32).map(|record| (number(&record[8..16]), number(&record[16..24]))).collect()
}

/// Readings: time and millijoules.
fn readings(events: &Events) -> Vec<(u64, u64)> {
    events.of("energy").map(|event| (number(event, "ts_ns"), number(event, "millijoules"))).collect()
}

/// Rows of the table of energy: path and microjoules.
fn table(scene: &Scene) -> BTreeMap<String, u64> {
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--table", "energy", "-o", "x.csv"])).exits(0);
    let text = scene.read("x.csv");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("gpu,path,count,ns,energy_uj,watts,energy_share"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!((cells.len(), cells[0]), (7, "0"), "{line}");
        (cells[1].to_owned(), cells[4].parse().expect("microjoules"))
    };
    lines.map(row).collect()
}

/// The first reading, and those that differ from the one before.
fn changes(readings: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut changes = readings.to_vec();
    changes.dedup_by_key(|reading| reading.1);
    changes
}

/// Divides the readings among kernels as documented, in floating point.
fn divided(events: &Events, readings: &[(u64, u64)]) -> BTreeMap<String, f64> {
    let changes = changes(readings);
    let mut sums = BTreeMap::new();
    for kernel in events.of("kernel") {
        let (start, name) = (number(kernel, "ts_ns"), kernel["name"].as_str().expect("a name"));
        let end = start + number(kernel, "dur_ns");
        for pair in changes.windows(2) {
            // The kernels of one stream do not overlap.
            let ran = end.min(pair[1].0).saturating_sub(start.max(pair[0].0));
            let share = ran as f64 / (pair[1].0 - pair[0].0) as f64;
            *sums.entry(name.to_owned()).or_insert(0.0) += share * (pair[1].1 - pair[0].1) as f64 * 1e3;
        }
    }
    sums
}

/// Check that every reading is what the simulated GPU had used by then, and that kernels and idle time add up to the
/// difference of its counter, to the microjoule, in every output.
#[test]
fn energy_adds_up_to_the_counter() {
    let scene = Scene::new();
    let summary = record(&scene, "", "");
    let events = Events::read(&scene.read("x.jsonl"));
    let (kernels, readings) = (truth(&scene), readings(&events));
    assert_eq!(kernels.iter().map(|(start, end)| end - start).sum::<u64>(), 800_000_000);
    for (at, (time, millijoules)) in readings.iter().enumerate() {
        let used = |updated: u64| {
            let ran = kernels.iter().map(|(start, end)| (*end).min(updated).saturating_sub(*start)).sum::<u64>();
            (IDLE * updated + KERNEL * ran) / 1_000_000
        };
        // The counter was read after this time and before the next.
        let next = readings.get(at + 1).map_or(time + 50 * STEP, |(next, _)| *next);
        let updates = (time / STEP..=next / STEP).map(|update| update * STEP);
        assert!(updates.map(used).any(|used| used == *millijoules), "{millijoules} mJ at {time}");
    }
    let total = 1000 * (readings[readings.len() - 1].1 - readings[0].1);

    let rows = table(&scene);
    assert_eq!(rows.values().sum::<u64>(), total, "{rows:?}");
    let of = |name: &str| rows.iter().filter(|(path, _)| path.ends_with(name)).map(|(_, energy)| energy).sum::<u64>();
    assert_eq!(of("gather") + of("plain") + rows["[idle]"], total);
    let callers = rows.keys().filter(|path| ["first", "second", "third"].iter().any(|name| path.contains(name)));
    assert_eq!(callers.count(), 3, "{rows:?}");
    for (name, expected) in divided(&events, &readings) {
        let got = of(&name) as f64;
        assert!((got - expected).abs() <= readings.len() as f64, "{name}: {got} is not {expected} uJ");
    }

    let report = scene.report("x.wscope");
    let energy = &report["energy"];
    let gpu = &energy["gpus"][0];
    assert_eq!((number(gpu, "total_uj"), number(gpu, "idle_uj")), (total, rows["[idle]"]));
    assert_eq!(number(gpu, "kernels_uj"), of("gather") + of("plain"));
    assert_eq!((number(gpu, "readings"), number(gpu, "busy_ns")), (readings.len() as u64, 800_000_000));
    for nothing in ["outside_ns", "late_ns", "resets"] {
        assert_eq!(number(gpu, nothing), 0, "{gpu}");
    }
    let sum: u64 = energy["kernels"].as_array().expect("rows").iter().map(|row| number(row, "energy_uj")).sum();
    assert_eq!(sum, total);
    assert!(summary.contains("Energy") && summary.contains("by NVML's counter"), "{summary}");

    let timeline: Value = serde_json::from_str(&scene.read("x.json")).expect("JSON");
    let is_power = |event: &&Value| event["ph"] == "C" && event["name"] == "power (NVML)";
    let power: Vec<f64> = timeline["traceEvents"]
        .as_array()
        .expect("events")
        .iter()
        .filter(is_power)
        .map(|event| event["args"]["W"].as_f64().expect("watts"))
        .collect();
    let watts = |pair: &[(u64, u64)]| (pair[1].1 - pair[0].1) as f64 * 1e6 / (pair[1].0 - pair[0].0) as f64;
    let expected: Vec<f64> = changes(&readings).windows(2).map(watts).collect();
    assert_eq!(power.len(), expected.len());
    assert!(power.iter().zip(&expected).all(|(got, watts)| (got - watts).abs() < 0.001), "{power:?} {expected:?}");

    let mut browser = Browser::start(1280, 720);
    browser.open(&format!("file://{}", scene.text("x.html")));
    let energy =
        "[...app.recording.sums('energy', null, { process: null, device: null }).self].reduce((a, b) => a + b)";
    assert_eq!(browser.js(energy).as_f64(), Some(number(gpu, "kernels_uj") as f64));
    assert_eq!(browser.js("app.recording.weights.some(weight => weight.label === 'GPU energy')"), true);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Check that a GPU without the counter and a machine without NVML cost one note, and nothing of the recording.
#[test]
fn missing_energy_is_explained() {
    for (script, why) in [
        ("nvml=refuse", "NVML has no energy counter (Volta or later has one): not supported"),
        ("nvml=missing", "cannot initialise NVML: a library of the driver was not found"),
    ] {
        let scene = Scene::new();
        let summary = record(&scene, script, "");
        let note = format!("energy was not recorded: {why}");
        assert!(summary.contains(&note), "{summary}");
        let report = scene.report("x.wscope");
        assert_eq!((number(&report, "kernels"), number(&report, "gpu_time_ns")), (6, 800_000_000));
        assert!(report["energy"].is_null() && report["notes"].to_string().contains(why), "{}", report["notes"]);
    }
}

/// Check that a part of a recording has no energy, and that this is said: it is counted for whole GPUs.
#[test]
fn parts_have_no_energy() {
    let scene = Scene::new();
    record(&scene, "", "-q");
    let arguments = ["report", "x.wscope", "--json", "--kernel", "plain"];
    let part = Ended::of(&mut scene.warpscope(&arguments)).exits(0);
    let part: Value = serde_json::from_str(part.out()).expect("JSON");
    assert_eq!(number(&part, "kernels"), 2);
    assert!(part["energy"].is_null() && part["notes"].to_string().contains("energy is not shown"), "{}", part["notes"]);
}

/// Check that every value of the performance monitor arrives, with its interval, and that means and maxima follow from them.
#[test]
fn counters_are_those_of_the_monitor() {
    let scene = Scene::new();
    let summary = record(&scene, "nvml=refuse,pm=unsupported", "--counters");
    assert!(summary.contains("GPM (NVML), every "), "{summary}");
    let events = Events::read(&scene.read("x.jsonl"));
    let readings: Vec<&Value> = events.of("gpm").collect();
    let value = |reading: &Value, metric: &str| {
        let all = reading["values"].as_array().expect("values");
        all.iter().find(|value| value["metric"] == metric).map(|value| value["value"].as_f64().expect("a number"))
    };
    assert!(!readings.is_empty(), "there is one at the end");
    for (pair, sample) in readings.windows(2).zip(2..) {
        let end = number(pair[0], "ts_ns") + number(pair[0], "dur_ns");
        assert_eq!(end, number(pair[1], "ts_ns"), "intervals follow one another from sample {sample} on");
    }
    // The first sample begins the first interval.
    for (reading, sample) in readings.iter().zip(2_u32..) {
        let all = ["SM active", "DRAM bandwidth", "PCIe received", "NVLink sent"].map(|metric| value(reading, metric));
        assert_eq!(all, [2, 10, 210, 610].map(|tenths| Some(f64::from(tenths * sample) / 10.0)), "sample {sample}");
        assert_eq!(value(reading, "tensor pipe"), None, "the simulated monitor has none");
    }
    let counters = &scene.report("x.wscope")["counters"];
    let sums = counters.as_array().expect("counters");
    let active = sums.iter().find(|sum| sum["metric"] == "SM active").expect("a sum");
    let weight = |reading: &&Value| number(reading, "dur_ns") as f64;
    let all: f64 = readings.iter().map(weight).sum();
    let mean = readings.iter().map(|r| weight(r) * value(r, "SM active").expect("a value")).sum::<f64>() / all;
    assert!((active["mean"].as_f64().expect("a mean") - mean).abs() < 1e-9, "{active} {mean}");
    assert_eq!(active["max"].as_f64(), readings.last().and_then(|reading| value(reading, "SM active")));
    assert_eq!((number(active, "intervals"), &active["unit"]), (readings.len() as u64, &Value::from("%")));
    let timeline = scene.read("x.json");
    assert_eq!(timeline.matches("\"SM active (GPM)\"").count(), readings.len());
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--table", "counters", "-o", "x.csv"])).exits(0);
    let rows = scene.read("x.csv");
    assert!(
        rows.starts_with("gpu,source,metric,unit,mean,max,intervals,interval_ns\n0,GPM,graphics active,%,"),
        "{rows}"
    );
}

/// Check that a GPU without a performance monitor costs one note, and nothing of the recording.
#[test]
fn missing_counters_are_explained() {
    let scene = Scene::new();
    let summary = record(&scene, "nvml=no-gpm,pm=unsupported", "--counters");
    let note = "counters were not recorded: CUPTI does not support PM sampling on this GPU; and no GPU has NVML's performance \
                monitor (GPM), which Hopper and later GPUs have";
    assert!(summary.contains(note), "{summary}");
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "kernels"), number(&report, "gpu_time_ns")), (6, 800_000_000));
    assert!(report["counters"].is_null() && !report["energy"].is_null());
}
