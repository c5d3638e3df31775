//! Calls that the program reports itself, through CUPTI's callbacks: the same events as from probes.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
};

use serde_json::{Value, json};

use crate::support::{
    Ended, Running, Scene,
    calls::{Trace, account, start},
    program,
    scene::{lost, number},
};

use super::same;

/// Traces a command in both ways.
#[track_caller]
fn both_ways(options: &str, command: &str, script: &str) -> [(Scene, Trace); 2] {
    ["cupti", "probes"].map(|way| {
        let scene = Scene::new();
        let mut run = scene.trace(&format!("--sim -v -o t.jsonl -o t.wscope {options} --calls-from {way}"), command);
        let ended = Ended::of(run.env("WARPSCOPE_SIM", script)).exits(0);
        let stderr = ended.err();
        assert_eq!(stderr.contains("reported by CUPTI"), way == "cupti", "{stderr}");
        assert!(!stderr.contains("0 processes were"), "{stderr}");
        let trace = Trace::read(&scene.read("t.jsonl"));
        let report = scene.report("t.wscope");
        assert_eq!(lost(&report), 0, "{}: {stderr}", report["lost"]);
        (scene, trace)
    })
}

/// Calls that one of several threads makes, whichever is first.
const BY_ANY_THREAD: [&str; 5] =
    ["cuInit", "cuGetExportTable", "cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuModuleGetFunction"];

/// The calls of each thread in their order, without what differs between two runs: times, ids, addresses, and calls that any
/// thread may make. `every_call_is_reported` checks addresses.
fn comparable(trace: &Trace) -> Vec<Vec<Value>> {
    let by_id: HashMap<u64, &Value> = trace.all.iter().map(|event| (number(event, "event_id"), event)).collect();
    let mut threads: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
    for event in trace.of("userspace").filter(|call| !BY_ANY_THREAD.contains(&call["name"].as_str().expect("a name"))) {
        threads.entry((number(event, "pid"), number(event, "tid"))).or_default().push(event);
    }
    let mut all: Vec<Vec<Value>> = threads.into_values().map(|events| of_thread(events, &by_id)).collect();
    all.sort_by_key(|calls| serde_json::to_string(calls).expect("JSON"));
    all
}

fn of_thread(mut events: Vec<&Value>, by_id: &HashMap<u64, &Value>) -> Vec<Value> {
    events.sort_by_key(|event| (start(event), event["depth"].as_u64()));
    let calls = events.into_iter().map(|event| {
        let parent = event["parent_id"].as_u64().map(|id| by_id[&id]["name"].clone());
        let library = event["library"].as_str().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
        let mut args = event["args"].clone();
        without_addresses(&mut args);
        let mut call = json!({ "parent": parent, "library": library, "args": args });
        for field in ["name", "depth", "phase", "ret", "error", "nested", "address", "bytes", "live_bytes"] {
            call[field] = event[field].clone();
        }
        without_addresses(&mut call["address"]);
        without_addresses(&mut call["ret"]);
        call["launches"] = event["correlation"].is_number().into();
        call
    });
    calls.collect()
}

/// Replaces addresses and times: whether a thread gets an address again that it has used before depends on the other threads.
fn without_addresses(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("0x") && text.len() > 8 => *value = "an address".into(),
        Value::Number(n) if n.as_u64().is_some_and(|n| n > 1 << 32) => *value = "an address".into(),
        Value::Number(n) if n.is_f64() => *value = "a time".into(),
        Value::Array(values) => values.iter_mut().for_each(without_addresses),
        Value::Object(fields) => fields.values_mut().for_each(without_addresses),
        _ => {}
    }
}

/// Asserts that both ways give the same calls, and at least so many.
#[track_caller]
fn same_both_ways(options: &str, command: &str, script: &str, least: usize) {
    let [(_, reported), (_, probed)] = both_ways(options, command, script);
    assert_same(&comparable(&reported), &comparable(&probed), least);
}

#[track_caller]
fn assert_same(reported: &[Vec<Value>], probed: &[Vec<Value>], least: usize) {
    assert_eq!(reported.len(), probed.len(), "threads");
    for (reported, probed) in reported.iter().zip(probed) {
        for (place, (reported, probed)) in reported.iter().zip(probed).enumerate() {
            assert_eq!(reported, probed, "call {place}");
        }
        assert_eq!(reported.len(), probed.len(), "calls");
    }
    let calls: usize = probed.iter().map(Vec::len).sum();
    assert!(calls >= least, "{calls} calls");
}

/// Check programs of all kinds: both APIs on several threads with failing calls, streams, graphs, several devices and
/// processes; with and without query functions; with few functions only.
#[test]
fn both_ways_give_the_same_calls() {
    same_both_ways("", &program("calls"), "", 20);
    let account = format!("{} account account", program("traced"));
    same_both_ways("", &account, "", 200);
    same_both_ways("--match cuda* --exclude cudaFree", &account, "", 50);
    same_both_ways("--match cuMem*", &account, "", 20);
    let scene = Scene::new();
    let stop = scene.path("stop");
    fs::write(&stop, "").expect("a file");
    let [(_, reported), (_, probed)] =
        both_ways("", &format!("{} family family {}", program("traced"), stop.display()), "");
    let (reported, mut probed) = (comparable(&reported), comparable(&probed));
    // A forked child, in which CUDA fails at once, does not report its call.
    let before = probed.len();
    probed.retain(|calls| calls.len() != 1 || calls[0]["error"] != true);
    assert_eq!(probed.len(), before - 1);
    assert_same(&reported, &probed, 250);
}

/// Check that a program that does not load the injected library is traced with probes once it has initialised CUDA.
#[test]
fn without_the_library_probes_are_used() {
    let scene = Scene::new();
    let command = format!("env -u CUDA_INJECTION64_PATH {} steps account stop", program("traced"));
    let mut run = Running::start(&mut scene.trace("--sim --calls-from cupti --live=cudaMemset -o t.jsonl", &command));
    run.stderr_until("cudaMemset");
    fs::write(scene.path("stop"), "").expect("a file");
    let ended = run.wait().exits(0);
    assert!(ended.err().contains("traced with probes"), "{}", ended.err());
    let trace = Trace::read(&scene.read("t.jsonl"));
    let made: usize = account(&scene.read("account")).values().map(Vec::len).sum();
    let traced = trace.named("cudaMemset").count();
    assert!((50..=made).contains(&traced), "{traced} of {made}");
}

/// Check that without --all-calls both ways leave out the same functions.
#[test]
fn both_ways_leave_out_queries() {
    let scene = Scene::new();
    let program = program("traced");
    let traces = [["--calls-from", "cupti"], ["--calls-from", "probes"]].map(|way| {
        let command = ["--sim", "-q", "-o", "t.jsonl", "--", &program, "account", "account"];
        Ended::of(&mut scene.warpscope(&[&["trace"], &way[..], &command].concat())).exits(0);
        let trace = Trace::read(&scene.read("t.jsonl"));
        for file in ["t.jsonl", "account"] {
            fs::remove_file(scene.path(file)).expect("it was written");
        }
        comparable(&trace)
    });
    assert_same(&traces[0], &traces[1], 200);
    assert!(traces[0].iter().flatten().all(|call| call["name"] != "cudaGetDevice"));
}

/// Check all calls of a program against its own account, with the GPU work under the calls that launched it.
#[test]
fn every_call_is_reported() {
    let scene = Scene::new();
    let command = format!("{} account account", program("traced"));
    Ended::of(&mut scene.trace("--sim -q --calls-from cupti -o t.jsonl -o t.wscope", &command)).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    same(&trace.outermost(), &account(&scene.read("account")));
    trace.check_nesting();
    assert!(trace.check_gpu().iter().all(|work| *work > 0));
    assert_eq!((lost(&scene.report("t.wscope")), trace.unfinished().len()), (0, 0));
}

/// Check that reported and lost calls add up if threads make calls at full speed.
#[test]
fn reported_and_lost_calls_add_up() {
    let scene = Scene::new();
    let command = format!("{} 4 100000", program("storm"));
    Ended::of(&mut scene.trace("--sim -q --calls-from cupti -o t.jsonl -o t.wscope", &command)).exits(0);
    let reported = scene.read("t.jsonl").lines().filter(|line| line.contains(r#""type":"userspace""#)).count() as u64;
    let lost = number(&scene.report("t.wscope")["lost"], "ring_calls");
    // Each thread makes 100,000 calls, allocates memory once and makes a context current; one initialises CUDA.
    assert_eq!(reported + lost, 4 * 100_002 + 2);
}

/// Check the call that initialises CUDA: it is the program's first runtime call, and cuInit is within it.
#[test]
fn the_first_call_contains_the_initialisation() {
    for (_, trace) in both_ways("", &program("calls"), "") {
        let init = trace.named("cuInit").next().expect("it is initialised");
        assert_eq!((&init["depth"], trace.named("cuInit").count()), (&json!(1), 1), "{init}");
        let parent = trace.all.iter().find(|event| event["event_id"] == init["parent_id"]).expect("its parent");
        assert!(parent["name"].as_str().expect("a name").starts_with("cuda") && parent["depth"] == 0, "{parent}");
        assert!(start(parent) < start(init));
    }
}

/// Check that a program whose CUPTI cannot report calls is traced with probes, and that the trace says so.
#[test]
fn without_cupti_probes_are_used() {
    let scene = Scene::new();
    fs::write(scene.path("stop"), "").expect("a file");
    let command = format!("{} steps account stop", program("traced"));
    let mut run = scene.trace("--sim --calls-from cupti -o t.jsonl", &command);
    let ended = Ended::of(run.env("WARPSCOPE_SIM", "subscriber=other")).exits(0);
    assert!(ended.err().contains("traced with probes"), "{}", ended.err());
    let trace = Trace::read(&scene.read("t.jsonl"));
    let mut made = account(&scene.read("account"));
    // The first call initialised CUDA: probes were not there yet when it began. The driver calls in it are seen.
    let first = made.iter_mut().find(|((pid, tid), _)| pid == tid).expect("the first thread").1;
    first.remove(0);
    let mut traced = trace.outermost();
    for calls in traced.values_mut() {
        calls.retain(|call| call.name.starts_with("cuda"));
    }
    same(&traced, &made);
}
