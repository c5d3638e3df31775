//! Traces in every output: golden files as in `golden.rs`, and what must hold whatever comes.

mod support;

use export::{Format, View, trace::Lines};
use model::event::Event;
use serde_json::Value;
use support::{START, check, trace};

fn lines(events: &[Event], colour: bool, filter: Option<&str>) -> String {
    let mut lines = Lines::new(colour, START, str::to_owned);
    if let Some(filter) = filter {
        lines = lines.filtered(probes::Selection::parse(&[filter.to_owned()], &[]).expect("a glob"));
    }
    let mut out = Vec::new();
    for event in events {
        lines.push(event, &mut out).expect("a line");
    }
    String::from_utf8(out).expect("UTF-8")
}

/// Check live lines: with colours, filtered, and that no name can do anything to the terminal.
#[test]
fn live_lines() {
    let events = trace::events();
    let plain = lines(&events, false, None);
    check("trace.live.txt", &plain);
    check("trace.live.colour.txt", &lines(&events, true, Some("cudaM*")));
    assert!(plain.chars().all(|c| c == '\n' || !c.is_control()));
    assert_eq!(lines(&trace::nothing(), true, None), "");
}

/// Check the lines of JSON: one object each, numbered, and every call that is shown.
#[test]
fn json_lines() {
    let events = trace::events();
    let text = support::export(Format::Jsonl, &events, View::default());
    check("trace.jsonl", &text);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers = lines.iter().filter_map(|line| line["event_id"].as_u64());
    assert!(numbers.eq(1..=lines.iter().filter(|line| !line["event_id"].is_null()).count() as u64));
    assert!(!text.contains("__cudaRegisterFunction"));
    let nothing = support::export(Format::Jsonl, &trace::nothing(), View::default());
    assert!(nothing.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

/// Check the time line: calls inside calls, arrows from the launch's call, and that hostile names stay names.
#[test]
fn time_line() {
    let text = support::export(Format::Chrome, &trace::events(), View::default());
    check("trace.json", &text);
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    let events = whole["traceEvents"].as_array().expect("events");
    let slices: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
    let span =
        |e: &Value| (e["ts"].as_f64().expect("ts"), e["ts"].as_f64().expect("ts") + e["dur"].as_f64().expect("dur"));
    // Viewers drop slices that cross.
    for a in &slices {
        for b in slices.iter().filter(|b| b["tid"] == a["tid"]) {
            let ((a0, a1), (b0, b1)) = (span(a), span(b));
            assert!(a1 <= b0 || b1 <= a0 || (a0 <= b0 && b1 <= a1) || (b0 <= a0 && a1 <= b1), "{a} crosses {b}");
        }
    }
    // An arrow begins in the call that launched.
    let tail = events.iter().find(|e| e["ph"] == "s" && e["id"] == 2).expect("an arrow");
    let at = tail["ts"].as_f64().expect("ts");
    let call = slices.iter().find(|e| e["name"] == "cudaLaunchKernel").expect("the call");
    assert!(call["tid"] == tail["tid"] && span(call).0 <= at && at <= span(call).1);
    let nothing = support::export(Format::Chrome, &trace::nothing(), View::default());
    assert!(serde_json::from_str::<Value>(&nothing).expect("JSON")["traceEvents"].is_array());
}
