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
