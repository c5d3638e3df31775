//! All outputs of one recording say the same: totals, counts, shares and waits.
//!
//! The recording has a bit of everything: two CUDA processes, several threads, copies that block, NVTX ranges, time off the CPU
//! and GPU memory.

mod others;
mod recorded;

use serde_json::Value;

use self::recorded::{Recorded, Sums, perfetto::Slice, recorded};
use crate::support::{Ended, scene::number};

const WORK: [&str; 3] = ["kernel", "copy", "memset"];

/// Check one recording in every format.
#[test]
fn all_outputs_agree() {
    let recorded = recorded();
    gpu_totals_agree(&recorded);
    cpu_totals_agree(&recorded);
    waits_agree(&recorded);
    shares_ranges_and_memory_agree(&recorded);
    others::agree(&recorded);
}

/// Check that GPU time, operations and launches are the same everywhere.
fn gpu_totals_agree(recorded: &Recorded) {
    assert_eq!(recorded.report["ledger"][0], "matched 100 %");
    let gpu = recorded.number("gpu_time_ns");
    let operations: u64 = ["kernels", "copies", "memsets"].map(|key| recorded.number(key)).iter().sum();
    let launches = recorded.number("launches");
    assert!(gpu > 0 && operations == launches, "{operations} operations, {launches} launches");

    let work = recorded.of(&WORK);
    let sum = |rows: &[&Value], key: &str| rows.iter().map(|row| number(row, key)).sum::<u64>();
    assert_eq!((sum(&work, "dur_ns"), work.len() as u64), (gpu, operations), ".jsonl");
    assert_eq!(recorded.of(&["launch"]).len() as u64, launches, ".jsonl");

    let works = [recorded.sql("kernels"), recorded.sql("copies")];
    let column = |name: &str| works.iter().flat_map(|table| table.numbers(name)).sum::<i64>();
    assert_eq!((column("end_ns") - column("start_ns")) as u64, gpu, ".parquet");
    assert_eq!(works.iter().map(|table| table.rows as u64).sum::<u64>(), operations, ".parquet");
    assert_eq!(recorded.sql("launches").rows as u64, launches, ".parquet");

    let pprof = recorded.pprof();
    let totals = ["gpu", "operations", "launches"].map(|kind| pprof.total(kind));
    assert_eq!(totals, [gpu, operations, launches], ".pb.gz");
    let speedscope = recorded.speedscope();
    let totals = ["GPU time", "GPU operations", "Launches"].map(|name| speedscope[name]);
    assert_eq!(totals, [gpu, operations, launches], ".speedscope.json");

    let (head, columns) = recorded.page();
    assert_eq!(columns["gpu.ns"].iter().sum::<u64>(), gpu, ".html");
    assert_eq!(columns["gpu.count"].iter().sum::<u64>(), operations, ".html");
    for key in ["gpu_time_ns", "launches", "cpu_time_ns", "cpu_samples", "host_wait_ns", "host_waits", "wall_ns"] {
        assert_eq!(head["summary"][key], recorded.report[key], "{key} in .html");
    }
    assert_eq!(recorded.folded(&["--gpu-only"]), (gpu + 500) / 1000, ".folded");

    let chrome = recorded.chrome(&WORK);
    let ns: f64 = chrome.iter().map(|event| (event["dur"].as_f64().expect("a length") * 1e3).round()).sum();
    assert_eq!((ns as u64, chrome.len() as u64), (gpu, operations), ".json");
    assert_eq!(recorded.chrome(&["launch"]).len() as u64, launches, ".json");
    let trace = recorded.perfetto();
    let slices: Vec<_> =
        trace.slices.iter().filter(|slice| trace.tracks[&slice.track].0.starts_with("stream ")).collect();
    assert_eq!(slices.iter().map(|slice| slice.end.expect("an end") - slice.start).sum::<u64>(), gpu, ".pftrace");
    let is_launch = |slice: &&Slice| slice.name.starts_with("launch ");
    assert_eq!(trace.slices.iter().filter(is_launch).count() as u64, launches, ".pftrace");

    for table in ["paths", "user-paths", "streams"] {
        assert_eq!((recorded.total(table, "ns"), recorded.total(table, "count")), (gpu, operations), "{table}");
    }
    assert_eq!((recorded.total("lines", "gpu_ns"), recorded.total("lines", "count")), (gpu, operations), "lines");
    assert_eq!(recorded.total("devices", "ns"), gpu, "devices");
    assert_eq!(recorded.total("kernels", "ns"), recorded.number("kernel_time_ns"), "kernels");
    assert_eq!(recorded.total("copies", "count"), recorded.number("copies"), "copies");
    assert_eq!(recorded.total("threads", "launches"), launches, "threads");
}

/// Check that the program's CPU time is the same everywhere, and that formats with all samples mark the others.
fn cpu_totals_agree(recorded: &Recorded) {
    let (samples, cpu) = (recorded.number("cpu_samples"), recorded.number("cpu_time_ns"));
    let own = (recorded.number("own_samples"), recorded.number("own_time_ns"));
    assert!(samples > 0 && cpu > 0);
    let (of_own, of_program): (Vec<&Value>, Vec<&Value>) =
        recorded.of(&["sample"]).into_iter().partition(|sample| sample["own"] == true);
    let sum = |rows: &[&Value]| (rows.len() as u64, rows.iter().map(|row| number(row, "weight_ns")).sum::<u64>());
    assert_eq!((sum(&of_program), sum(&of_own)), ((samples, cpu), own), ".jsonl");
    let table = recorded.sql("samples");
    let rows = table.numbers("own").into_iter().zip(table.numbers("weight_ns"));
    let of_program: Vec<i64> = rows.filter(|(own, _)| *own == 0).map(|(_, weight)| weight).collect();
    assert_eq!((of_program.len() as u64, of_program.iter().sum::<i64>() as u64), (samples, cpu), ".parquet");
    assert_eq!(table.rows as u64, samples + own.0, ".parquet");
    assert_eq!(recorded.pprof().total("cpu"), cpu, ".pb.gz");
    assert_eq!(recorded.speedscope()["CPU time"], cpu, ".speedscope.json");
    let (_, columns) = recorded.page();
    assert_eq!(columns["cpu.ns"].iter().sum::<u64>(), cpu, ".html");
    assert_eq!(columns["cpu.count"].iter().sum::<u64>(), samples, ".html");
    assert_eq!(recorded.perfetto().samples.len() as u64, samples + own.0, ".pftrace");
    assert_eq!(recorded.chrome(&["sample"]).len() as u64, samples + own.0, ".json");
    assert_eq!((recorded.total("functions", "ns"), recorded.total("functions", "samples")), (cpu, samples));
    assert_eq!((recorded.total("lines", "cpu_ns"), recorded.total("lines", "samples")), (cpu, samples));
    assert_eq!(recorded.total("threads", "cpu_ns"), cpu);
    let off_cpu = recorded.report["events"].as_array().expect("events")[0]["sum"].as_u64().expect("a sum");
    let all = recorded.number("gpu_time_ns") + cpu + off_cpu;
    assert_eq!(recorded.folded(&[]), (all + 500) / 1000, ".folded");
    let text = Ended::of(&mut recorded.scene.warpscope(&["report", "x.wscope"])).exits(0).out().to_owned();
    let shown = format!(" CPU samples of {}, ", text::units::time(cpu));
    assert!(text.contains(&shown), "{shown}: {text}");
}

/// Adds up amounts by name.
fn sums<'a>(rows: impl Iterator<Item = (&'a str, u64)>) -> Sums {
    let mut sums = Sums::new();
    for (name, amount) in rows {
        *sums.entry(name.to_owned()).or_default() += amount;
    }
    sums
}

/// Check that the reasons of waits are the same everywhere, and that waits for the GPU are the synchronisations and the copies
/// that block.
fn waits_agree(recorded: &Recorded) {
    // All waits, added up by stack.
    let rows = recorded.table("waits");
    let reasons = sums(rows.iter().map(|row| (row["reason"].as_str().expect("a reason"), number(row, "ns"))));
    let event = &recorded.report["events"][0];
    assert_eq!(reasons.values().sum::<u64>(), number(event, "sum"));
    for reason in ["[waiting for the GPU]", "[sleeping]"] {
        assert!(reasons.contains_key(reason), "{reason}: {reasons:?}");
    }
    let hits = recorded.of(&["hits"]);
    let of_hits = sums(hits.iter().map(|hits| (hits["function"].as_str().expect("a reason"), number(hits, "weight"))));
    assert_eq!(of_hits, reasons, ".jsonl");
    let pprof = recorded.pprof();
    let at = pprof.types.iter().position(|(name, _)| name == "wait").expect("waits");
    let last = |frames: &[String]| frames.last().expect("a frame").clone();
    let of_pprof: Vec<(String, u64)> =
        pprof.samples.iter().map(|(frames, _, amounts)| (last(frames), amounts[at])).filter(|row| row.1 > 0).collect();
    assert_eq!(sums(of_pprof.iter().map(|(name, ns)| (name.as_str(), *ns))), reasons, ".pb.gz");
    assert_eq!(recorded.speedscope()["Time off the CPU"], number(event, "sum"), ".speedscope.json");

    // Each wait of the threads that launch.
    let waits = recorded.of(&["wait"]);
    let single = sums(waits.iter().map(|wait| (wait["reason"].as_str().expect("a reason"), 1)));
    assert!(single.contains_key("[waiting for the GPU]") && single.contains_key("[sleeping]"), "{single:?}");
    let table = recorded.sql("waits");
    let of_sql = table.texts("kind").into_iter().zip(table.texts("reason"));
    let of_sql = sums(of_sql.filter(|(kind, _)| *kind == "off CPU").map(|(_, reason)| (reason, 1)));
    assert_eq!(of_sql, single, ".parquet");
    let trace = recorded.perfetto();
    let is_wait = |slice: &&Slice| single.contains_key(&slice.name);
    assert_eq!(sums(trace.slices.iter().filter(is_wait).map(|slice| (slice.name.as_str(), 1))), single, ".pftrace");

    let syncs = recorded.of(&["sync"]);
    assert_eq!(syncs.len() as u64 + recorded.number("copy_waits"), recorded.number("host_waits"));
    let ns: u64 = syncs.iter().map(|sync| number(sync, "dur_ns")).sum();
    assert_eq!(ns + recorded.number("copy_wait_ns"), recorded.number("host_wait_ns"));
    // 2 copies that block in each of 12 rounds of 2 threads, each of 1 ms; the last call of a thread has no known length.
    let copies = recorded.number("copy_waits");
    assert!((2 * 2 * 12 - 2..=2 * 2 * 12).contains(&copies), "{copies}");
    assert!(recorded.number("copy_wait_ns") >= copies * 1_000_000, "{}", recorded.number("copy_wait_ns"));
    assert!(recorded.number("launch_each_ns") < 1_000_000, "copies that block are no launches");
}

/// Check that shares have one meaning, and that ranges and memory agree.
fn shares_ranges_and_memory_agree(recorded: &Recorded) {
    let (gpu, wall) = (recorded.number("gpu_time_ns") as f64, recorded.number("wall_ns") as f64);
    let share = |row: &Value, key: &str| row[key].as_f64().expect("a share");
    let tops = recorded.report["top_kernels"].as_array().expect("kernels");
    for (top, row) in tops.iter().zip(recorded.table("kernels")) {
        assert_eq!((&top["name"], top["ns"].as_u64()), (&row["kernel"], row["ns"].as_u64()));
        assert_eq!(share(top, "share"), number(top, "ns") as f64 / gpu);
        assert_eq!(share(&row, "gpu_share"), share(top, "share"));
    }
    let idle = &recorded.report["idle"][0];
    let parts = ["causes", "before"].map(|part| idle[part].as_array().expect("causes"));
    for cause in parts.into_iter().flatten() {
        // Added up from parts, which are rounded.
        assert!((share(cause, "share") - number(cause, "ns") as f64 / wall).abs() < 1e-12, "{cause}");
    }
    let busy = number(&recorded.report["devices"][0], "busy_ns");
    assert_eq!(recorded.total("idle", "ns") + busy, recorded.number("wall_ns"), "a GPU is busy or idle");
    assert_eq!(recorded.folded(&["--idle"]), (recorded.number("wall_ns") - busy + 500) / 1000);
    for table in ["kernels", "lines", "user-paths", "functions", "waits"] {
        let key = match table {
            "functions" => "cpu_share",
            "waits" => "wait_share",
            _ => "gpu_share",
        };
        let all: f64 = recorded.table(table).iter().map(|row| share(row, key)).sum();
        let expected = if table == "kernels" { recorded.number("kernel_time_ns") as f64 / gpu } else { 1.0 };
        assert!((all - expected).abs() < 1e-9, "{table}: {all}");
    }

    let ranges = recorded.report["ranges"].as_array().expect("ranges");
    let count: u64 = ranges.iter().map(|range| number(range, "count") + number(range, "marks")).sum();
    assert_eq!(recorded.of(&["range"]).len() as u64, count, ".jsonl");
    assert_eq!(recorded.sql("ranges").rows as u64, count, ".parquet");

    let memory = recorded.report["memory"].as_array().expect("memory");
    let peak: u64 = memory.iter().map(|device| number(&device["peak"], "in_use_bytes")).sum();
    assert_eq!(peak, 2 << 20, "each thread of one program has 1 MiB");
    let rows = recorded.table("memory");
    let peaks = rows.iter().filter(|row| row["when"] == "peak");
    assert_eq!(peaks.map(|row| number(row, "bytes")).sum::<u64>(), peak);
    assert_eq!(recorded.folded(&["--memory", "peak"]), peak, ".folded");
    let diff = Ended::of(&mut recorded.scene.warpscope(&["diff", "--json", "x.wscope", "x.wscope"])).exits(0);
    let diff: Value = serde_json::from_str(diff.out()).expect("JSON");
    for (name, key) in [
        ("GPU time", "gpu_time_ns"),
        ("CPU time", "cpu_time_ns"),
        ("GPU busy time", "gpu_busy_ns"),
        ("waits for the GPU", "host_wait_ns"),
    ] {
        let row = diff["totals"].as_array().expect("totals").iter().find(|row| row["name"] == name);
        assert_eq!(number(row.expect(name), "before"), recorded.number(key), "{name}");
    }
}
