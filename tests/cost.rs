//! The tool reports what it costs, and the report agrees with what is known from elsewhere.

use serde_json::Value;

use crate::support::{Ended, Scene, oracle::Walk, program, scene::number};

/// Runs the ground-truth program and returns the summary's text and the cost in the report.
fn cost(options: &str, script: &str) -> (String, u64, Value) {
    let scene = Scene::new();
    let command = format!("{} {}", program("truth"), Walk::of(1_250).arguments());
    let script = format!("devices=2,kernel_ns=1us,{script}");
    let run = Ended::of(scene.record(&format!("--sim {options} -o x.wscope"), &command).env("WARPSCOPE_SIM", script))
        .exits(0);
    let report = scene.report("x.wscope");
    (run.err().to_owned(), number(&report, "launches"), report["cost"].clone())
}

/// Returns a part of the cost in nanoseconds; 0 if it is not there.
fn part(cost: &Value, name: &str) -> u64 {
    let parts = cost["parts"].as_array().expect("parts");
    parts.iter().filter(|part| part["name"] == name).map(|part| number(part, "ns")).sum()
}

/// Check that `record` and `report` name the cost, that its parts add up, and that the time for stacks includes the
/// time in the BPF program.
#[test]
fn the_parts_of_the_cost_add_up() {
    let (text, launches, cost) = cost("--gpu-only", "");
    let parts = cost["parts"].as_array().expect("parts");
    let sum: u64 = parts.iter().map(|part| number(part, "ns")).sum();
    assert_eq!((sum, launches), (number(&cost, "total_ns"), number(&cost, "units")));
    assert_eq!(number(&cost, "each_ns"), sum / launches);
    let stacks = part(&cost, "stacks");
    let bpf = cost["programs"].as_array().expect("programs").iter().find(|p| p["name"] == "launch").expect("launch");
    let (runs, bpf_ns) = (number(bpf, "runs"), number(bpf, "ns"));
    // Launches whose stacks the program knows do without the BPF program. Both are estimated from a sample of one in 32.
    assert!(runs > 0 && runs < launches, "{runs} of {launches}");
    assert!(bpf_ns < 2 * stacks, "{bpf_ns} ns of BPF in {stacks} ns of stacks");
    assert!(stacks > 0 && stacks < number(&cost, "program_cpu_ns"), "{cost}");
    let share = cost["share"].as_f64().expect("a share");
    assert!(share > 0.0 && share < 1.0, "{share}");
    assert_eq!(cost["not_measured"][0], "CUPTI's own time, which only CPU samples show");
    assert_eq!(part(&cost, "CUPTI"), 0);
    assert_eq!(number(&cost, "delay_ns"), stacks + part(&cost, "callbacks"));
    assert!(number(&cost, "collector_cpu_ns") > 0);
    let line = text.lines().find(|line| line.starts_with("warpscope took ")).expect("a line");
    assert!(line.contains(" % of the program's CPU time: ") && line.contains(" per launch (stacks "), "{line}");
}

/// Check that the time that the simulated CUPTI takes for each record appears as CUPTI's, in CPU samples.
#[test]
fn the_cost_of_cupti_is_measured_by_samples() {
    let (text, launches, cost) = cost("-F 997", "record_cost=40us");
    let spent = launches * 40_000;
    let measured = part(&cost, "CUPTI");
    assert!(measured.abs_diff(spent) < spent / 4, "{measured} ns, but CUPTI took {spent} ns: {cost}");
    assert!(text.contains("CUPTI "), "{text}");
    assert_eq!(cost["not_measured"].as_array().map(Vec::len), Some(0));
    assert!(number(&cost, "program_cpu_ns") > spent, "{cost}");
}

/// Check that a trace names the time in its probes, by call.
#[test]
fn a_trace_names_its_cost_by_call() {
    let scene = Scene::new();
    let command = format!("{} {}", program("truth"), Walk::of(200).arguments());
    let run = Ended::of(scene.trace("--sim -o x.wscope", &command).env("WARPSCOPE_SIM", "devices=2")).exits(0);
    let cost = &scene.report("x.wscope")["cost"];
    let parts = cost["parts"].as_array().expect("parts");
    assert_eq!(parts.iter().map(|part| number(part, "ns")).sum::<u64>(), number(cost, "total_ns"));
    assert!(run.err().contains(" per call ("), "{}", run.err());
}
