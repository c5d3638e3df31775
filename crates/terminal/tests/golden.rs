//! The text of recordings, byte for byte. `BLESS=1 cargo test -p terminal` rewrites the golden files; review the difference
//! before committing.

use std::io;

use analysis::{Events, Flames, Summary, trace::live::Live};
use fixtures::{START, check, counted, events, fold, trace};
use model::event::Event;
use terminal::{Form, Lines};
use text::pattern::Selection;

fn report(events: &[Event], colour: bool, width: usize) -> String {
    let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events.iter().cloned())) };
    terminal::report(&Flames::new(&fold(events)), &mut open, colour, width).expect("a report")
}

fn lines(events: &[Event], colour: bool, filter: Option<&str>) -> String {
    let mut live = Live::new(str::to_owned);
    if let Some(filter) = filter {
        live = live.filtered(Selection::parse(&[filter.to_owned()], &[]).expect("a glob"));
    }
    let mut lines = Lines::new(live, START, colour);
    let mut out = Vec::new();
    for event in events {
        lines.push(event, &mut out).expect("a line");
    }
    String::from_utf8(out).expect("UTF-8")
}

/// Check the summary, also on a narrow terminal with colours.
#[test]
fn summary() {
    let events = events();
    check!("summary.txt", &report(&events, false, 120));
    check!("summary.colour.txt", &report(&events, true, 80));
    check!("summary.narrow.txt", &report(&events, false, 60));
    check!("nothing.txt", &report(&events[..2], false, 100));
}

/// Check the brief summary, which has at most 60 lines and no control characters, in both forms.
#[test]
fn brief() {
    let of = |events: &[Event], form| terminal::brief(&Summary::of(&Flames::new(&fold(events))), form);
    check!("brief.txt", &of(&events(), Form::Text));
    check!("brief.md", &of(&events(), Form::Markdown));
    for form in [Form::Text, Form::Markdown] {
        let text = of(&fixtures::absurd_weights(), form);
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    for profile in [fold(&events()), fold(&fixtures::absurd_weights())] {
        let mut summary = Summary::of(&Flames::new(&profile));
        let more = |ledger: &[String]| ledger.iter().cycle().take(50).cloned().collect();
        (summary.ledger, summary.notes) = (more(&summary.ledger), more(&summary.ledger));
        summary.findings =
            summary.findings.iter().cycle().take(if summary.findings.is_empty() { 0 } else { 9 }).cloned().collect();
        assert!(terminal::brief(&summary, Form::Text).lines().count() <= 60);
    }
}

/// Check that absurdly large numbers do not stop the text.
#[test]
fn absurd_weights() {
    assert!(report(&fixtures::absurd_weights(), true, 0).contains("matched 97.77 %"));
}

/// Check the part about counted events.
#[test]
fn counted_events() {
    let text = report(&counted::events(), false, 120);
    let from = text.find("Event malloc").expect("the events");
    check!("event.txt", &text[from..text.find("note:").expect("what follows them")]);
}

/// Check live lines: in colour, filtered, and that no name can inject terminal control characters.
#[test]
fn live_lines_are_coloured_filtered_and_safe() {
    let events = trace::events();
    let plain = lines(&events, false, None);
    check!("trace.live.txt", &plain);
    check!("trace.live.colour.txt", &lines(&events, true, Some("cudaM*")));
    assert!(plain.chars().all(|c| c == '\n' || !c.is_control()));
    assert_eq!(lines(&trace::nothing(), true, None), "");
}

/// Check the report of a trace at three widths, without overlong lines.
#[test]
fn traces() {
    let events = trace::events();
    check!("trace.report.txt", &report(&events, false, 120));
    check!("trace.report.colour.txt", &report(&events, true, 80));
    check!("trace.sums.txt", &report(&trace::sums(), false, 100));
    check!("trace.nothing.txt", &report(&trace::nothing(), false, 80));
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

/// Check that no trace stops the text: with events missing, in any order, with any numbers.
#[test]
fn broken_traces_have_text() {
    for events in trace::broken() {
        lines(&events, true, None);
        report(&events, false, 80);
    }
}
