//! Self times, layers and parents: each moment in a traced call belongs to one call.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    calls::{Trace, account, end, start},
    program,
    scene::number,
};

/// The functions in which the threads of the program make all their calls.
const THREADS: [&str; 4] = ["use_runtime", "use_driver", "use_streams", "fail"];

/// Traces the program that writes an account of its calls, with its own functions.
fn traced(options: &str) -> Scene {
    let scene = Scene::new();
    let program = program("traced");
    let own: Vec<String> = THREADS.iter().map(|name| format!("--uprobe {program}:{name}")).collect();
    let options = format!("--sim -q {options} -o t.wscope {}", own.join(" "));
    Ended::of(&mut scene.trace(&options, &format!("{program} account account"))).exits(0);
    scene
}

fn layer(event: &Value) -> &'static str {
    let name = event["name"].as_str().expect("a name");
    match event["type"].as_str() {
        Some("kernel") => "system_calls",
        _ if name.starts_with("cuda") => "runtime",
        _ if name.starts_with("cu") => "driver",
        _ => "program",
    }
}

/// Layers of a report: calls, total time and self time.
fn layers(report: &Value) -> BTreeMap<&str, [u64; 3]> {
    let rows = report["trace"]["layers"].as_array().expect("layers");
    let numbers = |row: &Value| ["calls", "total_ns", "self_ns"].map(|key| number(row, key));
    rows.iter().map(|row| (row["layer"].as_str().expect("a name"), numbers(row))).collect()
}

/// Sums the lines of a trace. A call's self time is its time minus that of the calls that name it as their parent. Returns by
/// layer the number of calls, the time in calls that are not within another of their layer, and the self time; and by function
/// the self time.
fn summed(trace: &Trace) -> (BTreeMap<&'static str, [u64; 3]>, BTreeMap<String, u64>) {
    let calls: Vec<&Value> =
        trace.of("userspace").chain(trace.of("kernel")).filter(|event| event["phase"] == "X").collect();
    let by_id: HashMap<u64, &Value> = calls.iter().map(|call| (number(call, "event_id"), *call)).collect();
    let length = |call: &Value| (end(call) - start(call)) as u64;
    let mut inside: HashMap<u64, u64> = HashMap::new();
    for call in &calls {
        if let Some(parent) = call["parent_id"].as_u64() {
            *inside.entry(parent).or_default() += length(call);
        }
    }
    let mut layers = BTreeMap::<&str, [u64; 3]>::new();
    let mut functions = BTreeMap::<String, u64>::new();
    for call in &calls {
        let own = length(call) - inside.get(&number(call, "event_id")).unwrap_or(&0);
        let mut around = call["parent_id"].as_u64();
        while let Some(parent) = around.map(|id| by_id[&id]).filter(|parent| layer(parent) != layer(call)) {
            around = parent["parent_id"].as_u64();
        }
        let sums = layers.entry(layer(call)).or_default();
        sums[0] += 1;
        sums[1] += if around.is_none() { length(call) } else { 0 };
        sums[2] += own;
        *functions.entry(call["name"].as_str().expect("a name").to_owned()).or_default() += own;
    }
    (layers, functions)
}

/// Check that the report's self times and layers are those of the individual calls, and add up to the time in the outermost
/// calls: each thread makes all its calls in one function of the program.
#[test]
fn layers_match_the_calls() {
    let scene = traced("-o t.jsonl");
    let trace = Trace::read(&scene.read("t.jsonl"));
    trace.check_nesting();
    let report = scene.report("t.wscope");
    let (expected, functions) = summed(&trace);
    assert_eq!(layers(&report), expected);
    assert_eq!(expected.keys().copied().collect::<Vec<_>>(), ["driver", "program", "runtime"]);
    for row in report["trace"]["functions"].as_array().expect("functions") {
        assert_eq!(number(row, "self_ns"), functions[row["name"].as_str().expect("a name")], "{row}");
    }
    let own: u64 = expected.values().map(|[.., own]| own).sum();
    assert_eq!((own, number(&report["trace"], "outermost_ns")), (expected["program"][1], own));
    // All calls of the program's account are within its four functions.
    let made: usize = account(&scene.read("account")).values().map(Vec::len).sum();
    let ids: Vec<&Value> = THREADS.iter().flat_map(|name| trace.named(name)).map(|call| &call["event_id"]).collect();
    assert_eq!(ids.len(), THREADS.len());
    let direct = trace.of("userspace").filter(|call| ids.contains(&&call["parent_id"])).count();
    assert_eq!(direct, made);
}

/// Check the same for sums in the kernel: the same number of calls in each layer, and self times that add up to the time in the
/// program's four functions.
#[test]
fn layers_match_the_kernel_sums() {
    let counts = |scene: &Scene| -> BTreeMap<String, u64> {
        let report = scene.report("t.wscope");
        let rows = report["trace"]["functions"].as_array().expect("functions").clone();
        let count = |row: &Value| (row["name"].as_str().expect("a name").to_owned(), number(row, "calls"));
        // Threads that start at once may all initialise CUDA and load the kernels, or one for all.
        let racing = ["cuInit", "cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuModuleGetFunction"];
        rows.iter().map(count).filter(|(name, _)| !racing.contains(&name.as_str())).collect()
    };
    let (summed, full) = (traced("--summary-only"), traced("--no-gpu"));
    assert_eq!(counts(&summed), counts(&full));
    let report = summed.report("t.wscope");
    let layers = layers(&report);
    let own: u64 = layers.values().map(|[.., own]| own).sum();
    assert_eq!((layers["program"][0], layers["program"][1]), (4, own));
    assert_eq!(number(&report["trace"], "outermost_ns"), own);
    // No call is within a driver call, and only driver calls are within runtime calls.
    let [_, driver, driver_own] = layers["driver"];
    assert_eq!(driver, driver_own);
    let [_, runtime, runtime_own] = layers["runtime"];
    let functions = report["trace"]["functions"].as_array().expect("functions");
    let of_driver =
        |row: &&Value| row["name"].as_str().is_some_and(|name| name.starts_with("cu") && !name.starts_with("cuda"));
    let total: u64 = functions.iter().filter(of_driver).map(|row| number(row, "ns")).sum();
    assert!(0 < runtime_own && runtime_own < runtime && runtime - runtime_own < total, "{layers:?}");
}

/// Check that quantiles of few calls are measured values, with individual calls and with sums in the kernel: for one call its
/// duration, for two the shorter and the longer, and never beyond the extremes.
#[test]
fn quantiles_of_few_calls_are_exact() {
    for options in ["--no-gpu", "--summary-only"] {
        let scene = traced(options);
        let report = scene.report("t.wscope");
        let rows = report["trace"]["functions"].as_array().expect("functions");
        let mut few = [0; 3];
        for row in rows {
            let [calls, ns, p50, p99, max] = ["calls", "ns", "p50_ns", "p99_ns", "max_ns"].map(|key| number(row, key));
            assert!(p50 <= p99 && p99 <= max, "{row}");
            match calls {
                1 => assert_eq!((p50, p99, max), (ns, ns, ns), "{row}"),
                2 => assert_eq!((p50, p99), (ns - max, max), "{row}"),
                3..100 => assert_eq!(p99, max, "{row}"),
                _ => {}
            }
            few[calls.min(3) as usize - 1] += 1;
        }
        assert!(few.iter().all(|functions| *functions > 0), "functions with one, two and more calls: {few:?}");
    }
}

/// Check that the totals have the number and the time of driver requests, and that each is within the call that made it.
#[test]
fn driver_requests_are_in_the_totals() {
    let scene = Scene::new();
    let program = program("devices");
    let options = format!("--sim --driver --uprobe {program}:inside -o t.jsonl -o t.wscope");
    let run = Ended::of(&mut scene.trace(&options, &format!("{program} account 2"))).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let report = scene.report("t.wscope");
    let (expected, _) = summed(&trace);
    assert_eq!(layers(&report), expected);
    let requests = &report["trace"]["driver_requests"];
    assert_eq!([number(requests, "count"), number(requests, "ns")], expected["system_calls"][..2]);
    assert_eq!(number(requests, "count"), 2 * (3 + 10 * (9 + 9 + 2) + 2 + 3));
    let sentence = format!("driver requests: {} calls, ", number(requests, "count"));
    assert!(run.err().contains(&sentence), "{}", run.err());
    let inside: Vec<&Value> = trace.named("inside").map(|call| &call["event_id"]).collect();
    for request in trace.of("kernel") {
        assert_eq!(inside.contains(&&request["parent_id"]), request["depth"] == 1, "{request}");
        assert_eq!(request["parent_id"].is_null(), request["depth"] == 0, "{request}");
    }
}
