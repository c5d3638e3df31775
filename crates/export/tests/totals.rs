//! Every format of one recording has the same totals, to its own unit.

mod support;

use analysis::{Flames, View};
use export::Format;
use model::event::Event;
use serde_json::Value;
use support::{html, perfetto::Trace, pprof::Pprof, sql};

/// What a format contains. `None`: it cannot contain this.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    gpu_ns: Option<u64>,
    /// Kernels, copies and memsets that have times.
    operations: Option<u64>,
    launches: Option<u64>,
    samples: Option<u64>,
}

fn text(format: Format, events: &[Event]) -> String {
    support::export(format, events, View::default())
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list"))
}

fn chrome(events: &[Event]) -> Totals {
    let file: Value = serde_json::from_str(&text(Format::Chrome, events)).expect("JSON");
    let of = |wanted: &[&str]| -> Vec<&Value> {
        array(&file["traceEvents"]).iter().filter(|e| wanted.iter().any(|category| e["cat"] == **category)).collect()
    };
    let work = of(&["kernel", "copy", "memset"]);
    // Microseconds with three decimals.
    let ns: f64 = work.iter().map(|e| (e["dur"].as_f64().expect("a length") * 1e3).round()).sum();
    Totals {
        gpu_ns: Some(ns as u64),
        operations: Some(work.len() as u64),
        launches: Some(of(&["launch"]).len() as u64),
        samples: Some(of(&["sample"]).len() as u64),
    }
}

fn jsonl(events: &[Event]) -> Totals {
    let text = text(Format::Jsonl, events);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |wanted: &[&str]| -> Vec<&Value> {
        lines.iter().filter(|line| wanted.iter().any(|kind| line["type"] == **kind)).collect()
    };
    let work = of(&["kernel", "copy", "memset"]);
    let timed: Vec<&&Value> = work.iter().filter(|line| line["dur_ns"].as_u64().is_some_and(|ns| ns > 0)).collect();
    Totals {
        gpu_ns: Some(timed.iter().map(|line| whole(&line["dur_ns"])).sum()),
        operations: Some(timed.len() as u64),
        launches: Some(of(&["launch"]).len() as u64),
        samples: Some(of(&["sample"]).len() as u64),
    }
}

fn perfetto(events: &[Event]) -> Totals {
    let trace = Trace::read(&support::bytes(Format::Perfetto, events, View::default()));
    let work: Vec<_> =
        trace.slices.iter().filter(|slice| trace.tracks[&slice.track].0.starts_with("stream ")).collect();
    let launches = trace.slices.iter().filter(|slice| slice.name.starts_with("launch ")).count();
    Totals {
        gpu_ns: Some(work.iter().map(|slice| slice.end.expect("an end") - slice.start).sum()),
        operations: Some(work.len() as u64),
        launches: Some(launches as u64),
        samples: Some(trace.samples.len() as u64),
    }
}

fn firefox(events: &[Event]) -> Totals {
    let bytes = support::gunzip(&support::bytes(Format::FirefoxGz, events, View::default()));
    let file: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(bytes, text(Format::Firefox, events).as_bytes(), "compressed or not");
    let (mut totals, mut samples) = ((0, 0), 0);
    for thread in array(&file["threads"]) {
        samples += whole(&thread["samples"]["length"]);
        let markers = &thread["markers"];
        for (index, data) in array(&markers["data"]).iter().enumerate() {
            if data["type"] == "GpuWork" {
                let time = |column: &str| (markers[column][index].as_f64().expect("a time") * 1e6).round() as u64;
                totals = (totals.0 + time("endTime") - time("startTime"), totals.1 + 1);
                let strings = array(&thread["stringArray"]);
                assert!(whole(&markers["name"][index]) < strings.len() as u64);
            }
        }
    }
    Totals { gpu_ns: Some(totals.0), operations: Some(totals.1), samples: Some(samples), launches: None }
}

fn pprof(events: &[Event]) -> Totals {
    let pprof = Pprof::read(&support::bytes(Format::Pprof, events, View::default()));
    Totals { gpu_ns: Some(pprof.total("gpu")), launches: Some(pprof.total("launches")), ..Totals::default() }
}

fn speedscope(events: &[Event]) -> Totals {
    let file: Value = serde_json::from_str(&text(Format::Speedscope, events)).expect("JSON");
    let total = |wanted: &str| {
        let profile = array(&file["profiles"]).iter().find(|profile| profile["name"].as_str() == Some(wanted));
        array(&profile.unwrap_or_else(|| panic!("no {wanted} in {file}"))["weights"]).iter().map(whole).sum::<u64>()
    };
    Totals { gpu_ns: Some(total("GPU time")), launches: Some(total("Launches")), ..Totals::default() }
}

fn report(events: &[Event]) -> Totals {
    let page = text(Format::Html, events);
    let (_, data) = page.split_once("id=\"data\">").expect("the data");
    let (_, columns) = html::read(data.split('<').next().expect("the data"));
    Totals {
        gpu_ns: Some(columns["gpu.ns"].iter().sum()),
        samples: Some(columns["cpu.count"].iter().sum()),
        ..Totals::default()
    }
}

fn sql(events: &[Event]) -> Totals {
    let tables = sql::tables(events);
    let works = [&tables["kernels"], &tables["copies"]];
    let sum = |column| works.iter().flat_map(|table| table.numbers(column)).sum::<i64>();
    Totals {
        gpu_ns: Some((sum("end_ns") - sum("start_ns")) as u64),
        operations: Some(works.iter().map(|table| table.numbers("start_ns").len() as u64).sum()),
        launches: Some(tables["launches"].rows as u64),
        samples: Some(tables["samples"].rows as u64),
    }
}

fn csv(events: &[Event]) -> Totals {
    let view = View { table: analysis::Table::Streams, ..View::default() };
    let text = support::export(Format::Csv, events, view);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let at = header.iter().position(|name| *name == "ns").unwrap_or_else(|| panic!("{header:?}"));
    Totals { gpu_ns: Some(lines.map(|row| row[at].parse::<u64>().expect("a number")).sum()), ..Totals::default() }
}

/// Check that no format loses or invents anything: GPU time, operations, launches and CPU samples of each are those of the
/// profile.
#[test]
fn all_formats_agree() {
    let events = fixtures::events();
    let profile = fixtures::fold(&events);
    let flames = Flames::new(&profile);
    let ledger = &profile.ledger;
    let gpu_ns: u64 = profile.gpu.values().map(|weight| weight.ns).sum();
    let operations = ledger.kernels + ledger.copies + ledger.memsets - ledger.zero_time;
    assert!(gpu_ns > 0 && operations > 0 && ledger.launches > 0 && ledger.samples > 0);
    let exact = |totals: Totals, name: &str| {
        let expected = Totals {
            gpu_ns: totals.gpu_ns.map(|_| gpu_ns),
            operations: totals.operations.map(|_| operations),
            launches: totals.launches.map(|_| ledger.launches),
            samples: totals.samples.map(|_| ledger.samples),
        };
        assert_eq!(totals, expected, "{name}");
    };
    exact(chrome(&events), ".json");
    exact(jsonl(&events), ".jsonl");
    exact(perfetto(&events), ".pftrace");
    exact(firefox(&events), ".profile.json.gz");
    exact(pprof(&events), ".pb.gz");
    exact(speedscope(&events), ".speedscope.json");
    exact(csv(&events), ".csv");
    exact(sql(&events), ".parquet");
    // Graphs leave out samples in warpscope's own code.
    assert_eq!(flames.cpu().own.samples, 0);
    exact(report(&events), ".html");
    // Folded stacks are in microseconds; the sum of all is exact.
    let folded = text(Format::Folded, &events);
    let total: u64 = folded.lines().map(|line| line.rsplit(' ').next().expect(line).parse::<u64>().expect(line)).sum();
    let cpu_ns: u64 = profile.cpu.values().map(|weight| weight.ns).sum();
    assert_eq!(total, (gpu_ns + cpu_ns + 500) / 1000, ".folded");
    let lines = text(Format::CpuText, &events).lines().filter(|line| !line.starts_with('#')).count() as u64;
    assert_eq!(lines, ledger.samples + ledger.launches, ".cpu.txt");
}
