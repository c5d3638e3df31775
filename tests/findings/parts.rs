//! Parts of a recording: filters change what is shown, and nothing about what is true.

use serde_json::Value;

use super::report::{findings, json, text};
use crate::support::{Ended, Scene, scene::number};

/// Kinds of findings that need everything that happened: a part of a recording cannot have them.
const OF_THE_WHOLE: [&str; 13] = [
    "gpu-idle",
    "start",
    "launch-bound",
    "synchronization",
    "copies-alone",
    "imbalance",
    "late-rank",
    "collective-mismatch",
    "missing-member",
    "memory-bound",
    "latency-bound",
    "too-small",
    "kernel-limit",
];

/// Kinds of findings that a time range cannot have: those of the counters of whole GPUs, of memory, which may have been
/// allocated before, and of calls that may have been made after it.
pub const NOT_IN_RANGES: [&str; 5] = ["memory-bound", "latency-bound", "too-small", "memory-peak", "missing-member"];

/// What the report of a part has from the whole.
const FACTS: [&str; 8] =
    ["cost", "host_wait_ns", "host_waits", "copy_wait_ns", "copy_waits", "launch_each_ns", "wall_ns", "lost"];

/// Checks a recording under each filter: nothing is concluded from what is left out, what is said about the rest is what is
/// said about the whole, and facts about GPUs are those of the whole.
#[track_caller]
pub fn check(scene: &Scene, report: &Value) {
    for (filter, is_all) in filters(scene, report) {
        let part =
            json(scene, &[&["report", "--json", "x.wscope"], &filter.each_ref().map(String::as_str)[..]].concat());
        assert_eq!(part["filters"], serde_json::json!([filter.join(" ")]));
        let whole = |finding: &&Value| OF_THE_WHOLE.iter().any(|kind| finding["kind"] == *kind);
        assert_eq!(findings(&part).find(whole), None, "{filter:?}");
        let expected: Vec<&Value> = findings(report).filter(|finding| !whole(finding)).collect();
        let said: Vec<&Value> = findings(&part).collect();
        assert!(said.iter().all(|finding| expected.contains(finding)), "{filter:?}: {said:#?}");
        if is_all {
            assert_eq!(said, expected, "{filter:?}");
        }
        check_facts(&part, report, &filter);
    }
    let filter = ["--kernel", "*"];
    let text = Ended::of(&mut scene.warpscope(&[&["report", "x.wscope"], &filter[..]].concat())).exits(0);
    assert!(text.out().replace('\n', " ").contains(&filter.join(" ")), "{}", text.out());
}

/// The filters, and whether they select everything.
fn filters(scene: &Scene, report: &Value) -> Vec<([String; 2], bool)> {
    let column = |table: &str, column: &str| -> Vec<String> {
        let rows = json(scene, &["report", "--json", "--by", table, "x.wscope"]);
        let cell = |row: &Value| row[column].as_str().map_or_else(|| row[column].to_string(), str::to_owned);
        let mut all: Vec<String> = rows.as_array().expect("rows").iter().map(cell).collect();
        all.sort();
        all.dedup();
        all
    };
    let first = |name: &str, values: Vec<String>, is_all: bool| {
        let value = values.into_iter().next().unwrap_or_else(|| panic!("no value for {name}"));
        ([format!("--{name}"), value], is_all)
    };
    let working = report["devices"].as_array().expect("devices").iter().filter(|device| number(device, "streams") > 0);
    let devices: Vec<String> = working.map(|device| text(device, "label").to_owned()).collect();
    let kernels: Vec<String> = report["top_kernels"]
        .as_array()
        .expect("kernels")
        .iter()
        .map(|kernel| text(kernel, "name").to_owned())
        .collect();
    let only_kernels = number(report, "copies") + number(report, "memsets") == 0;
    let (threads, streams) = (column("thread", "tid"), column("streams", "stream"));
    let one_device = devices.len() == 1;
    let mut all = vec![
        first("kernel", vec!["*".to_owned()], only_kernels),
        first("kernel", kernels.clone(), only_kernels && kernels.len() == 1),
        first("tid", threads, false),
        first("stream", streams.clone(), one_device && streams.len() == 1),
        first("path", vec!["*".to_owned()], true),
        first("comm", vec!["*".to_owned()], true),
        first("device", devices, one_device),
    ];
    if let Some(rank) = report["ranks"].as_array().and_then(|ranks| ranks.first()) {
        all.push(first("rank", vec![number(rank, "rank").to_string()], false));
    }
    all
}

#[track_caller]
fn check_facts(part: &Value, report: &Value, filter: &[String; 2]) {
    for key in FACTS {
        assert_eq!(part[key], report[key], "{filter:?}: {key}");
    }
    for key in ["busy_ns", "kernels", "time_ns"] {
        for (device, of_whole) in same(&part["devices"], &report["devices"], "index") {
            if number(device, "streams") > 0 {
                assert_eq!(device[key], of_whole[key], "{filter:?}: {key}");
            }
        }
    }
    for (device, of_whole) in same(&part["idle"], &report["idle"], "device") {
        assert_eq!(device, of_whole, "{filter:?}");
    }
}

/// The rows of two tables that are about the same.
fn same<'a>(part: &'a Value, whole: &'a Value, key: &'a str) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    let whole = whole.as_array().into_iter().flatten();
    let of = move |row: &'a Value| Some((row, whole.clone().find(|other| other[key] == row[key])?));
    part.as_array().into_iter().flatten().filter_map(of)
}
