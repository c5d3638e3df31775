//! Traces in every output: golden files as in `golden.rs`, and invariants that hold for any input.

mod support;

use std::{collections::BTreeSet, io};

use analysis::{CallView, Events, Flames, Table, View, trace::live::Live};
use export::{Format, LiveLines, table};
use fixtures::{START, check, trace};
use model::event::Event;
use serde_json::Value;

fn lines(events: &[Event], calls: CallView) -> String {
    let mut lines = LiveLines::new(Live::new(str::to_owned).viewed(calls), START);
    let mut out = Vec::new();
    for event in events {
        lines.push(event, &mut out).expect("a line");
    }
    String::from_utf8(out).expect("UTF-8")
}

/// Check that live lines of JSON are those of a file, in any order, without what is not known when a call returns.
#[test]
fn live_json_lines_are_those_of_the_file() {
    let events = trace::events();
    let text = support::export(Format::Jsonl, &events, View::default());
    let mut whole: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    whole.retain(|line| !line["event_id"].is_null() && line["type"] != "memory");
    for line in &mut whole {
        let line = line.as_object_mut().expect("an object");
        for unknown in ["event_id", "parent_id", "session", "stack"] {
            line.remove(unknown);
        }
    }
    let live = lines(&events, CallView::default());
    let mut live: Vec<Value> = live.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // The first line says when zero is, as in the file.
    let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!(live.remove(0), first);
    assert_eq!((&first["type"], &first["unix_ns"]), (&"start".into(), &1_760_000_000_000_000_000_u64.into()));
    let sorted = |lines: Vec<Value>| lines.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(live.len(), whole.len());
    assert_eq!(sorted(live), sorted(whole));
}

/// Check the JSON lines: one object each, numbered, with parents in the same file, and every displayed call.
#[test]
fn json_lines() {
    let events = trace::events();
    let text = support::export(Format::Jsonl, &events, View::default());
    check!("trace.jsonl", &text);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ids: BTreeSet<u64> = lines.iter().filter_map(|line| line["event_id"].as_u64()).collect();
    let count = lines.iter().filter(|line| !line["event_id"].is_null()).count() as u64;
    assert!(ids.iter().copied().eq(1..=count));
    let mut parents = lines.iter().filter_map(|line| line["parent_id"].as_u64());
    assert!(parents.all(|parent| ids.contains(&parent)));
    let first = |name: &str| lines.iter().find(|line| line["name"] == name).expect("an event");
    for (inner, outer) in [
        ("NV_ESC_RM_CONTROL", "cuMemAlloc_v2"),
        ("mmap", "cuMemAlloc_v2"),
        ("cuMemAlloc_v2", "cudaMalloc"),
        ("off-cpu", "cudaMemcpy"),
        ("Memcpy HtoD", "cudaMemcpy"),
        ("cuLaunchKernel", "cudaLaunchKernel"),
        ("matmul(float*, int)", "cudaLaunchKernel"),
    ] {
        assert_eq!(first(inner)["parent_id"], first(outer)["event_id"], "{inner} in {outer}");
    }
    for (name, size) in
        [("cudaMalloc", 16 << 20), ("alloc", 16 << 20), ("cudaMemcpy", 16 << 20), ("Memcpy HtoD", 16 << 20)]
    {
        assert_eq!(first(name)["size"], size, "{name}");
    }
    // The program passed it sign-extended.
    assert_eq!(first("NV_ESC_RM_CONTROL")["args"]["request"], "0xc020462a");
    // Its call is lost.
    let orphan = lines.iter().find(|line| line["library"] == "nvidia").expect("a function of the kernel");
    assert!(orphan["parent_id"].is_null());
    assert!(!text.contains("__cudaRegisterFunction"));
    let nothing = support::export(Format::Jsonl, &trace::nothing(), View::default());
    assert!(nothing.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

/// Check the timeline: nested calls, arrows from the launching call, and that hostile names stay names.
#[test]
fn timeline() {
    let text = support::export(Format::Chrome, &trace::events(), View::default());
    check!("trace.json", &text);
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    let events = whole["traceEvents"].as_array().expect("events");
    let slices: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
    let span =
        |e: &Value| (e["ts"].as_f64().expect("ts"), e["ts"].as_f64().expect("ts") + e["dur"].as_f64().expect("dur"));
    // Viewers drop slices that overlap without nesting.
    for a in &slices {
        for b in slices.iter().filter(|b| b["tid"] == a["tid"]) {
            let ((a0, a1), (b0, b1)) = (span(a), span(b));
            assert!(a1 <= b0 || b1 <= a0 || (a0 <= b0 && b1 <= a1) || (b0 <= a0 && a1 <= b1), "{a} crosses {b}");
        }
    }
    // An arrow begins at the launching call, and at none of those around or within it.
    let kernel = slices.iter().find(|e| e["name"] == "matmul(float*, int)" && e["flow_in"] == true).expect("a kernel");
    let tails = slices.iter().filter(|e| e["flow_out"] == true && e["bind_id"] == kernel["bind_id"]);
    let tails: Vec<&Value> = tails.map(|e| &e["name"]).collect();
    assert_eq!(tails, ["cudaLaunchKernel"]);
    let nothing = support::export(Format::Chrome, &trace::nothing(), View::default());
    assert!(serde_json::from_str::<Value>(&nothing).expect("JSON")["traceEvents"].is_array());
}

/// Check that no recording stops an output: with events missing, in any order, with any numbers.
#[test]
fn broken_recordings_do_not_stop_outputs() {
    for events in trace::broken().iter().map(Vec::as_slice) {
        for format in [Format::Jsonl, Format::Chrome, Format::Svg, Format::Folded] {
            let text = support::export(format, events, View::default());
            match format {
                Format::Jsonl => text.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).expect("JSON"))),
                Format::Chrome => drop(serde_json::from_str::<Value>(&text).expect("JSON")),
                _ => {}
            }
        }
    }
}

/// Check the tables of calls and requests: one row each, with the counts and the exact extremes of their durations.
#[test]
fn tables_of_calls_and_requests() {
    let events = trace::events();
    let profile = fixtures::fold(&events);
    let flames = Flames::new(&profile);
    let of = |table: Table| {
        let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events.iter().cloned())) };
        let rows = table.rows(&flames, &mut open).expect("rows");
        let mut csv = Vec::new();
        table::csv(&rows, &mut csv).expect("CSV");
        (table::json(&rows), String::from_utf8(csv).expect("UTF-8"))
    };
    let (calls, csv) = of(Table::Calls);
    assert!(csv.starts_with("function,library,calls,errors,ns,self_ns,mean_ns,p50_ns,p90_ns,p99_ns,max_ns\n"), "{csv}");
    let row = |rows: &Value, key: &str, name: &str| {
        let rows = rows.as_array().expect("rows");
        rows.iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let launches = row(&calls, "function", "cudaLaunchKernel");
    assert_eq!(
        (&launches["calls"], &launches["max_ns"], &launches["p99_ns"]),
        (&4.into(), &8_900.into(), &8_900.into())
    );
    let middle = launches["p50_ns"].as_u64().expect("a number")..=launches["p90_ns"].as_u64().expect("a number");
    assert!(middle.start() >= &8_000 && middle.end() <= &8_900, "{launches}");

    let (requests, csv) = of(Table::Requests);
    assert!(
        csv.starts_with("request,command,device,requests,errors,ns,mean_ns,p50_ns,p90_ns,p99_ns,max_ns\n"),
        "{csv}"
    );
    let control = row(&requests, "command", "NV2080_CTRL_CMD_GPU_GET_INFO_V2");
    assert_eq!((&control["request"], &control["requests"]), (&"NV_ESC_RM_CONTROL".into(), &1.into()));
    assert_eq!([&control["p50_ns"], &control["p90_ns"], &control["max_ns"]], [&Value::from(120_000); 3]);
    let alloc = row(&requests, "request", "NV_ESC_RM_ALLOC");
    assert_eq!((&alloc["errors"], &alloc["device"]), (&1.into(), &"nvidiactl".into()));
    assert_eq!(row(&requests, "request", "mmap")["command"], "");
    assert_eq!(requests.as_array().map(Vec::len), Some(3));
}

/// Check that short calls are left out of the events, with the header and a note that say so, and that nothing else is: numbers,
/// memory and GPU work are those of all calls.
#[test]
fn short_calls_are_left_out() {
    let events = trace::events();
    let calls = CallView { min_ns: 20_000, begin_end: false };
    let view = View { calls, ..View::default() };
    let parse = |text: &str| text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>();
    let all = parse(&support::export(Format::Jsonl, &events, View::default()));
    let some = parse(&support::export(Format::Jsonl, &events, view));
    let is_short = |line: &Value| {
        (line["type"] == "userspace" || line["type"] == "kernel")
            && line["duration_us"].as_f64().is_some_and(|us| us < 20.0)
    };
    let is_event = |line: &&Value| !line["event_id"].is_null();
    let expected: Vec<&Value> = all.iter().filter(is_event).filter(|line| !is_short(line)).collect();
    assert_eq!(some.iter().filter(is_event).collect::<Vec<_>>(), expected);
    let left_out = all.iter().filter(|line| is_short(line)).count();
    assert!(left_out > 8 && expected.len() > 8, "{left_out} {}", expected.len());
    assert_eq!(some[0]["filters"], serde_json::json!(["--min-duration 20000ns"]));
    let note = format!("{left_out} calls shorter than 20.0 µs are left out (--min-duration)");
    let is_note = |line: &&Value| line["text"].as_str().is_some_and(|text| text.starts_with(&note));
    assert_eq!(some.iter().filter(is_note).count(), 1, "{note}");
    assert_eq!(all.last(), some.last());

    let chrome: Value = serde_json::from_str(&support::export(Format::Chrome, &events, view)).expect("JSON");
    let names =
        |name: &str| chrome["traceEvents"].as_array().expect("events").iter().filter(|e| e["name"] == name).count();
    assert_eq!((names("cudaLaunchKernel"), names("cudaDeviceSynchronize"), names("sched_process_fork")), (0, 5, 1));
    let live = parse(&lines(&events, calls));
    assert!(!live.iter().any(is_short) && live[0]["filters"] == some[0]["filters"]);
}

/// Check that begin and end are two events on request: with the same number, the arguments in the first, the results in the
/// second, and the same times.
#[test]
fn begin_and_end_are_two_events() {
    let events = trace::events();
    let calls = CallView { min_ns: 0, begin_end: true };
    let parse = |text: &str| {
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| !line["event_id"].is_null()).collect::<Vec<Value>>()
    };
    let whole = parse(&support::export(Format::Jsonl, &events, View::default()));
    let mut halves = parse(&support::export(Format::Jsonl, &events, View { calls, ..View::default() })).into_iter();
    for mut whole in whole {
        let mut begin = halves.next().expect("a line");
        if whole["phase"] != "X" {
            assert_eq!(begin, whole);
            continue;
        }
        let end = halves.next().expect("the end");
        assert_eq!((&begin["phase"], &end["phase"]), (&"B".into(), &"E".into()));
        for key in ["event_id", "parent_id", "type", "name", "pid", "tid", "depth"] {
            assert_eq!((&begin[key], &end[key]), (&whole[key], &whole[key]), "{key} of {whole}");
        }
        for key in ["ret", "error", "duration_us"] {
            assert_eq!((begin.get(key), end.get(key)), (None, whole.get(key)), "{key} of {whole}");
            whole.as_object_mut().expect("an object").remove(key);
        }
        let ns = |value: &Value, scale: f64| (value.as_f64().expect("a number") * scale).round() as i64;
        assert_eq!(ns(&end["ts"], 1e9), ns(&begin["ts"], 1e9) + ns(&end["duration_us"], 1e3), "{end}");
        assert!(end["args"].is_null() && end["size"].is_null() && end["stack"].is_null());
        begin["phase"] = "X".into();
        assert_eq!(begin, whole);
    }
    assert!(halves.next().is_none());
}

/// Check that a recording without calls prints its launches live, joined to the GPU's work, and that a trace does not.
#[test]
fn launches_without_calls_have_live_lines() {
    let events = fixtures::events();
    let text = lines(&events, CallView::default());
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let launch = all.iter().find(|line| line["name"] == "kernel launch").expect("a launch");
    assert_eq!((&launch["type"], &launch["phase"]), (&"userspace".into(), &"i".into()));
    assert!(launch["tid"].is_u64() && launch["ts"].is_f64(), "{launch}");
    let of_it = |line: &&Value| line["type"] == "gpu" && line["correlation"] == launch["correlation"];
    assert!(all.iter().any(|line| of_it(&line)), "{text}");
    assert!(!lines(&trace::events(), CallView::default()).contains("kernel launch"));
}
