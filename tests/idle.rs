//! Why a GPU is idle: what is charged, and to whom.

use std::collections::HashMap;

use serde_json::Value;

use crate::support::{
    Ended, Scene, folded, program,
    programs::sources,
    pythons::installed,
    scene::{lost, number},
};

const ROUNDS: u64 = 20;
const MS: u64 = 1_000_000;

/// The idle time of the only GPU in a report.
fn idle(report: &Value) -> &Value {
    let [idle] = &report["idle"].as_array().expect("idle times")[..] else { panic!("one GPU: {}", report["idle"]) };
    idle
}

/// The causes of its idle time.
fn causes(report: &Value) -> &[Value] {
    idle(report)["causes"].as_array().expect("causes")
}

/// The idle time of all causes that meet a condition.
fn sum(report: &Value, wanted: impl Fn(&Value) -> bool) -> u64 {
    causes(report).iter().filter(|cause| wanted(cause)).map(|cause| number(cause, "ns")).sum()
}

/// Check that all causes add up to the idle time, and busy and idle time to the recording.
#[track_caller]
fn adds_up(report: &Value) {
    let idle = idle(report);
    assert_eq!(sum(report, |_| true), number(idle, "idle_ns"));
    let bases = ["exact_ns", "sampled_ns", "unknown_ns"].map(|basis| number(idle, basis));
    assert_eq!(bases.iter().sum::<u64>(), number(idle, "idle_ns"));
    let edges = number(idle, "before_ns") + number(idle, "after_ns");
    let busy = number(&report["devices"][0], "busy_ns");
    assert_eq!(number(idle, "idle_ns") + busy, number(idle, "span_ns"));
    assert_eq!(number(idle, "span_ns") + edges, number(report, "wall_ns"));
}

/// What the intervals of a recording say, computed from its events: the time from each launch to its kernel while the GPU
/// was idle, and the waits of the launching thread while the GPU was idle and the launch had not begun.
fn from_intervals(text: &str) -> (u64, u64) {
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let interval = |event: &Value| (number(event, "ts_ns"), number(event, "ts_ns") + number(event, "dur_ns"));
    let launches: HashMap<u64, &Value> = of("launch").map(|launch| (number(launch, "correlation"), launch)).collect();
    let mut kernels: Vec<&Value> = of("kernel").collect();
    kernels.sort_by_key(|kernel| interval(kernel));
    let (mut launching, mut waiting) = (0, 0);
    for pair in kernels.windows(2) {
        // The program waits for each kernel, so they do not overlap.
        let ((_, start), (end, _)) = (interval(pair[0]), interval(pair[1]));
        let launch = launches[&number(pair[1], "correlation")];
        let launched = number(launch, "ts_ns").clamp(start, end);
        launching += end - launched;
        for wait in of("wait").filter(|wait| wait["tid"] == launch["tid"]) {
            let (from, to) = interval(wait);
            waiting += to.min(launched).saturating_sub(from.max(start));
        }
    }
    (launching, waiting)
}

/// Check that intervals are charged exactly: naps and slow launches as the events of the recording say, and at least as long
/// as the program makes them; the rest to samples.
#[test]
fn intervals_are_charged_exactly() {
    let scene = Scene::new();
    let command = format!("{} {ROUNDS}", program("idle"));
    let mut record = scene.record("--sim -q -F 999 --off-cpu -o x.wscope -o x.jsonl", &command);
    Ended::of(record.env("WARPSCOPE_SIM", "slow=cuLaunchKernel:2ms")).exits(0);
    let report = scene.report("x.wscope");
    // A few switches are missing while other tests attach to the same tracepoint.
    let missed = number(&report["lost"], "missed_switches");
    assert_eq!((lost(&report) - missed, number(&report, "unmatched_activities")), (0, 0), "{}", report["ledger"]);
    adds_up(&report);
    let (launching, waiting) = from_intervals(&scene.read("x.jsonl"));
    assert_eq!(sum(&report, |cause| cause["cause"] == "launching"), launching);
    assert_eq!(sum(&report, |cause| cause["cause"] == "waiting"), waiting);
    assert_eq!(number(idle(&report), "exact_ns"), launching + waiting);
    assert!(launching >= ROUNDS * 2 * MS, "{launching} ns");
    // The timer of a nap of 5 ms starts a little before the thread leaves the CPU.
    let asleep = sum(&report, |cause| cause["cause"] == "waiting" && cause["place"]["frame"] == "nap");
    assert!(asleep >= (ROUNDS - missed.min(ROUNDS)) * 4 * MS, "{asleep} ns: {:?}", causes(&report));
    let computing = sum(&report, |cause| cause["cause"] == "running" && cause["place"]["frame"] == "compute");
    assert!(computing > 0, "{:?}", causes(&report));

    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--idle", "-o", "x.folded", "-o", "x.svg"])).exits(0);
    let text = scene.read("x.folded");
    let lines = folded::read(&text);
    assert!(lines.iter().all(|line| line.frames[0] == "GPU 0"), "{text}");
    let total: u64 = lines.iter().map(|line| line.weight).sum();
    let whole = number(&report, "wall_ns") - number(&report["devices"][0], "busy_ns");
    assert_eq!(total, (whole + 500) / 1000, "{text}");
    assert!(text.contains(";nap;") && text.contains(";[sleeping] "), "{text}");
}

/// Check that a loop that waits for its loader blames the loader's line, and that the summary begins with it.
#[test]
fn a_slow_loader_is_blamed_by_its_line() {
    let script = sources().join("programs/idle.py").canonicalize().expect("it is there");
    let source = std::fs::read_to_string(&script).expect("it can be read");
    let line = source.lines().position(|line| line.ends_with("# the GPU waits here")).expect("a mark") + 1;
    let place = format!("load (idle.py:{line})");
    let python = installed().pop().expect("at least one");
    let scene = Scene::new();
    let command = format!("{python} {} {ROUNDS}", script.display());
    Ended::of(&mut scene.record("--sim -q --off-cpu -o x.wscope", &command)).exits(0);
    let report = scene.report("x.wscope");
    adds_up(&report);
    let waiting = sum(&report, |cause| cause["cause"] == "waiting" && cause["place"]["frame"] == place.as_str());
    assert!(waiting >= ROUNDS * 4 * MS, "{waiting} ns: {:?}", causes(&report));
    let findings = report["findings"].as_array().expect("findings");
    let finding =
        findings.iter().find(|finding| finding["kind"] == "gpu-idle").expect("it is idle nearly all the time");
    assert!(finding["title"].as_str().expect("a title").contains(&place), "{finding}");
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0).out().to_owned();
    let heading = text
        .lines()
        .position(|line| line.starts_with("Findings  by the most that each could gain of "))
        .expect("findings");
    assert_eq!(heading, 3, "they follow the first two lines: {text}");
}

/// Check that without samples and waits everything but launches is unknown, and that nothing is dropped.
#[test]
fn without_evidence_idle_time_is_unknown() {
    let scene = Scene::new();
    let command = format!("{} 3", program("idle"));
    Ended::of(&mut scene.record("--sim -q --gpu-only -o x.wscope", &command)).exits(0);
    let report = scene.report("x.wscope");
    adds_up(&report);
    let unknown = sum(&report, |cause| cause["cause"] == "unknown");
    assert_eq!(unknown, number(idle(&report), "unknown_ns"));
    assert!(unknown >= 3 * 10 * MS, "{unknown} ns: {:?}", causes(&report));
    assert_eq!(unknown + sum(&report, |cause| cause["cause"] == "launching"), number(idle(&report), "idle_ns"));
    // Formats that would show something else are refused.
    let run = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--idle", "-o", "x.json"])).exits(1);
    run.says(&["cannot write idle time to x.json: --idle needs an .svg or .folded file"]);
}
