//! Traces in every output: golden files as in `golden.rs`, and invariants that hold for any input.

mod support;

use std::{collections::BTreeSet, io};

use export::{
    Events, Flames, Format, Summary, View,
    trace::{Form, Lines},
};
use model::event::Event;
use serde_json::Value;
use support::{START, check, trace};

fn lines(events: &[Event], form: Form, filter: Option<&str>) -> String {
    let mut lines = Lines::new(form, START, str::to_owned);
    if let Some(filter) = filter {
        lines = lines.filtered(text::pattern::Selection::parse(&[filter.to_owned()], &[]).expect("a glob"));
    }
    let mut out = Vec::new();
    for event in events {
        lines.push(event, &mut out).expect("a line");
    }
    String::from_utf8(out).expect("UTF-8")
}

/// Check live lines: in colour, filtered, and that no name can inject terminal control characters.
#[test]
fn live_lines_are_coloured_filtered_and_safe() {
    let events = trace::events();
    let plain = lines(&events, Form::Text { colour: false }, None);
    check("trace.live.txt", &plain);
    check("trace.live.colour.txt", &lines(&events, Form::Text { colour: true }, Some("cudaM*")));
    assert!(plain.chars().all(|c| c == '\n' || !c.is_control()));
    assert_eq!(lines(&trace::nothing(), Form::Text { colour: true }, None), "");
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
    let live = lines(&events, Form::Json, None);
    let live: Vec<Value> = live.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let sorted = |lines: Vec<Value>| lines.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(live.len(), whole.len());
    assert_eq!(sorted(live), sorted(whole));
}

/// Check the JSON lines: one object each, numbered, with parents in the same file, and every displayed call.
#[test]
fn json_lines() {
    let events = trace::events();
    let text = support::export(Format::Jsonl, &events, View::default());
    check("trace.jsonl", &text);
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
    check("trace.json", &text);
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

fn report(events: &[Event], colour: bool, width: usize) -> String {
    let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events.iter().cloned())) };
    export::report(&Flames::new(&support::fold(events)), &mut open, colour, width).expect("a report")
}

fn numbers(events: &[Event]) -> Value {
    let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events.iter().cloned())) };
    let summary = Summary::with_events(&Flames::new(&support::fold(events)), &mut open, 100).expect("a summary");
    serde_json::to_value(summary).expect("JSON")
}

/// Check the report: its numbers, and its text at three widths without overlong lines.
#[test]
fn reports() {
    let events = trace::events();
    check("trace.report.txt", &report(&events, false, 120));
    check("trace.report.colour.txt", &report(&events, true, 80));
    check("trace.sums.txt", &report(&trace::sums(), false, 100));
    check("trace.nothing.txt", &report(&trace::nothing(), false, 80));
    let numbers = numbers(&events)["trace"].clone();
    check("trace.report.json", &(serde_json::to_string_pretty(&numbers).expect("JSON") + "\n"));
    for width in [80, 100, 140] {
        // The ledger's sentences are not truncated.
        let text = report(&events, false, width);
        let table = text.split("\nmatched").next().expect("a table");
        for line in table.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
}

/// Check that no recording stops an output: with events missing, in any order, with any numbers.
#[test]
fn broken_recordings_do_not_stop_outputs() {
    let events = trace::events();
    let mut cases = vec![events.iter().rev().cloned().collect::<Vec<_>>()];
    for left_out in 0..events.len() {
        let mut some = events.clone();
        some.remove(left_out);
        cases.push(some);
    }
    cases.push(events.iter().cloned().map(extreme).collect());
    for events in cases.iter().map(Vec::as_slice).chain([&[][..]]) {
        lines(events, Form::Text { colour: true }, None);
        report(events, false, 80);
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

/// Returns the event with the largest possible numbers.
fn extreme(event: Event) -> Event {
    match event {
        Event::Call(call) => Event::Call(model::event::Call {
            depth: u8::MAX,
            start: u64::MAX - call.start % 2,
            end: call.end.max(u64::MAX * u64::from(call.tid == 901)),
            result: u64::MAX,
            words: vec![u64::MAX; 11],
            payload: vec![0xff; 3],
            ..call
        }),
        Event::Switch(switch) => Event::Switch(model::event::Switch { start: u64::MAX, end: 1, ..switch }),
        Event::Activity(activity) => {
            Event::Activity(model::event::Activity { start: 1, end: u64::MAX, device: u32::MAX, ..activity })
        }
        other => other,
    }
}
