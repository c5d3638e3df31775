//! Calls at full speed: every call is in the trace, or is counted as lost.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
};

use crate::support::{Ended, Running, Scene, program, scene::number};

const THREADS: u64 = 8;
const CALLS: u64 = 100_000;

/// The calls of a storm, by function. Each thread also allocates memory once and makes a context current.
fn made(calls: u64) -> BTreeMap<String, u64> {
    let copies = calls / 1_000;
    let failing = calls / 10;
    [
        ("cuInit", 1),
        ("cuDevicePrimaryCtxRetain", 1),
        ("cuCtxSetCurrent", THREADS),
        ("cuMemcpyHtoD_v2", THREADS * copies),
        ("cuMemAlloc_v2", THREADS * (failing + 1)),
        ("cuCtxGetCurrent", THREADS * (calls - copies - failing)),
    ]
    .into_iter()
    .map(|(name, count)| (name.to_owned(), count))
    .collect()
}

/// Counts the calls in a trace by name, line by line because there are very many.
fn counts(scene: &Scene, file: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in BufReader::new(File::open(scene.path(file)).expect("the trace")).lines() {
        let line = line.expect("text");
        let Some((_, rest)) = line.split_once(r#""type":"userspace","name":""#) else { continue };
        let name = rest.split('"').next().unwrap_or_default();
        assert!(rest.contains(r#""phase":"X""#) && rest.contains(r#""depth":0"#), "{line}");
        match counts.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(counts.insert(name.to_owned(), 1)),
        }
    }
    counts
}

/// Check that traced and lost calls add up if 8 threads make 100,000 calls each.
#[test]
fn traced_and_lost_calls_add_up() {
    let scene = Scene::new();
    let command = format!("{} {THREADS} {CALLS}", program("storm"));
    Ended::of(&mut scene.trace("--sim -q -o t.jsonl -o t.wscope", &command)).exits(0);
    let (counts, made) = (counts(&scene, "t.jsonl"), made(CALLS));
    let lost = number(&scene.report("t.wscope")["lost"], "ring_calls");
    assert_eq!(counts.values().sum::<u64>() + lost, made.values().sum::<u64>(), "{counts:?} and {lost} lost");
    if lost == 0 {
        assert_eq!(counts, made);
    }
}

/// Check that, if nobody reads the ring, it overflows and the lost calls are counted exactly.
#[test]
fn ring_overflows_are_counted_exactly() {
    let scene = Scene::new();
    let command = format!("{} {THREADS} {CALLS} go", program("storm"));
    let mut run = Running::start(&mut scene.trace("--sim --no-gpu -q -o t.jsonl -o t.wscope", &command));
    assert_eq!(run.stdout_line(), "ready");
    run.signal(libc::SIGSTOP);
    std::fs::write(scene.path("go"), "").expect("a file");
    assert_eq!(run.stdout_line(), "done");
    run.signal(libc::SIGCONT);
    run.wait().exits(0);
    let (counts, made) = (counts(&scene, "t.jsonl"), made(CALLS));
    let report = scene.report("t.wscope");
    let lost = number(&report["lost"], "ring_calls");
    assert!(lost > 100_000, "{lost}");
    assert_eq!(counts.values().sum::<u64>() + lost, made.values().sum::<u64>(), "{counts:?} and {lost} lost");
    let sentences = report["ledger"].as_array().expect("sentences");
    assert!(sentences.iter().any(|text| text.as_str().is_some_and(|text| text.contains("call"))), "{sentences:?}");
}

/// Check that --summary-only writes no calls, but exact counts, errors, bytes and memory.
#[test]
fn summary_only_is_exact() {
    let scene = Scene::new();
    let command = format!("{} {THREADS} {CALLS}", program("storm"));
    Ended::of(&mut scene.trace("--sim --summary-only -q -o t.wscope -o t.jsonl", &command)).exits(0);
    assert_eq!(counts(&scene, "t.jsonl"), BTreeMap::new());
    let report = scene.report("t.wscope");
    let trace = &report["trace"];
    let list = |key: &str| trace[key].as_array().unwrap_or_else(|| panic!("{key}: {trace}"));
    let calls: BTreeMap<String, u64> = list("functions")
        .iter()
        .map(|function| (function["name"].as_str().expect("a name").to_owned(), number(function, "calls")))
        .collect();
    assert_eq!(calls, made(CALLS));
    let failed = THREADS * CALLS / 10;
    for function in list("functions") {
        let errors = if function["name"] == "cuMemAlloc_v2" { failed } else { 0 };
        assert_eq!(number(function, "errors"), errors, "{function}");
        let in_buckets: u64 =
            function["histogram"].as_array().expect("buckets").iter().map(|b| b[1].as_u64().expect("a count")).sum();
        assert_eq!(in_buckets, number(function, "calls"), "{function}");
    }
    let [error] = list("errors").as_slice() else { panic!("{trace}") };
    assert_eq!((number(error, "count"), &error["error"]), (failed, &"CUDA_ERROR_OUT_OF_MEMORY".into()), "{error}");
    // Each thread copies 1, 2, 3 ... bytes, and keeps 4,096.
    let copies = CALLS / 1_000;
    let [copied] = list("copies").as_slice() else { panic!("{trace}") };
    assert_eq!(
        (number(copied, "count"), number(copied, "bytes")),
        (THREADS * copies, THREADS * copies * (copies + 1) / 2),
        "{copied}"
    );
    let [memory] = list("memory").as_slice() else { panic!("{trace}") };
    assert_eq!((number(memory, "live"), number(memory, "live_bytes")), (THREADS, THREADS * 4_096), "{memory}");
    assert_eq!(number(&report["lost"], "ring_calls") + number(&report["lost"], "call_sums"), 0);
}
