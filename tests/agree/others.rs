//! Formats that repeat what others have: compressed files, flame graphs, tables, and the recording itself.

use std::fs;

use serde_json::Value;

use super::recorded::{Recorded, gunzip};
use crate::support::{Ended, scene::number};

/// Check that these have the totals of the report.
pub fn agree(recorded: &Recorded) {
    compressed(recorded);
    firefox(recorded);
    flame_graph(recorded);
    cpu_text(recorded);
    tables(recorded);
    recording(recorded);
}

fn bytes(recorded: &Recorded, name: &str) -> Vec<u8> {
    fs::read(recorded.scene.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The compressed files are those that are not.
fn compressed(recorded: &Recorded) {
    for name in ["x.json", "x.pftrace", "x.profile.json"] {
        let packed = bytes(recorded, &format!("{name}.gz"));
        assert!(gunzip(&packed) == bytes(recorded, name), "{name}.gz");
    }
}

/// Samples of threads, and GPU work as markers.
fn firefox(recorded: &Recorded) {
    let file: Value = serde_json::from_str(&recorded.scene.read("x.profile.json")).expect("JSON");
    let (mut samples, mut ns, mut operations) = (0, 0, 0);
    for thread in file["threads"].as_array().expect("threads") {
        samples += number(&thread["samples"], "length");
        let markers = &thread["markers"];
        for (index, data) in markers["data"].as_array().expect("markers").iter().enumerate() {
            if data["type"] == "GpuWork" {
                let time = |column: &str| (markers[column][index].as_f64().expect("a time") * 1e6).round() as u64;
                (ns, operations) = (ns + time("endTime") - time("startTime"), operations + 1);
            }
        }
    }
    assert_eq!(ns, recorded.number("gpu_time_ns"), ".profile.json");
    assert_eq!(operations, ["kernels", "copies", "memsets"].map(|key| recorded.number(key)).iter().sum::<u64>());
    assert_eq!(samples, recorded.number("cpu_samples") + recorded.number("own_samples"), ".profile.json");
}

/// The outermost frame has all time: on GPUs, on CPUs and off them.
fn flame_graph(recorded: &Recorded) {
    let svg = recorded.scene.read("x.svg");
    let (before, _) = svg.split_once("data-depth=\"0\"").expect("the outermost frame");
    let amount = before.rsplit("data-amount=\"").next().and_then(|rest| rest.split('"').next()).expect("an amount");
    let waited = number(&recorded.report["events"][0], "sum");
    let all = recorded.number("gpu_time_ns") + recorded.number("cpu_time_ns") + waited;
    assert_eq!(amount.parse(), Ok(all), ".svg");
}

/// One line for each sample and launch.
fn cpu_text(recorded: &Recorded) {
    let text = recorded.scene.read("x.cpu.txt");
    let launches = text.lines().filter(|line| line.contains(";[GPU_Launch_")).count() as u64;
    assert_eq!(launches, recorded.number("launches"), ".cpu.txt");
    let samples = text.lines().count() as u64 - launches;
    assert_eq!(samples, recorded.number("cpu_samples") + recorded.number("own_samples"), ".cpu.txt");
}

/// Every table has the same rows as CSV and as JSON; the exported one is that of kernels.
fn tables(recorded: &Recorded) {
    for table in
        ["kernels", "user-paths", "lines", "functions", "threads", "streams", "copies", "idle", "waits", "memory"]
    {
        let export = ["export", "x.wscope", "--table", table, "--format", "csv", "-o", "-"];
        let csv = Ended::of(&mut recorded.scene.warpscope(&export)).exits(0).out().to_owned();
        let mut lines = csv.lines();
        let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
        let rows = recorded.table(table);
        assert_eq!(lines.clone().count(), rows.len(), "{table}");
        // Names may contain commas, numbers do not: they are counted from the end of the line.
        for (column, _) in header.iter().enumerate().filter(|(_, name)| name.ends_with("ns") || **name == "bytes") {
            let from_end = header.len() - column;
            let cell = |line: &str| line.rsplit(',').nth(from_end - 1).expect(line).parse::<u64>().expect(line);
            let total: u64 = lines.clone().map(cell).sum();
            assert_eq!(
                total,
                rows.iter().map(|row| number(row, header[column])).sum::<u64>(),
                "{table}: {}",
                header[column]
            );
        }
        if table == "kernels" {
            assert_eq!(csv, recorded.scene.read("x.csv"), ".csv");
        }
    }
}

/// A recording of the recording gives the same report, in numbers and as text.
fn recording(recorded: &Recorded) {
    assert_eq!(recorded.scene.report("y.wscope"), recorded.report, ".wscope");
    let text = |file| Ended::of(&mut recorded.scene.warpscope(&["report", file])).exits(0).out().to_owned();
    let report = text("x.wscope");
    assert_eq!(text("y.wscope"), report);
    let time = |key: &str| text::units::time(recorded.number(key));
    let waited = format!("host threads waited {} for the GPU", time("host_wait_ns"));
    for shown in [time("wall_ns"), format!("{} launches", recorded.number("launches")), waited] {
        assert!(report.contains(&shown), "{shown} is not in: {report}");
    }
}
