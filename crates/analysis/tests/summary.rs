//! The numbers of recordings, byte for byte. `BLESS=1 cargo test -p analysis` rewrites the golden files; review the
//! difference before committing.

use std::io;

use analysis::{Events, Flames, Summary};
use fixtures::{check, counted, events, fold, trace};
use model::event::Event;
use serde::Serialize;

fn summary(events: &[Event]) -> Summary {
    let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events.iter().cloned())) };
    Summary::with_events(&Flames::new(&fold(events)), &mut open).expect("a summary")
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("JSON") + "\n"
}

/// Check the numbers of a recording.
#[test]
fn recordings() {
    check!("summary.json", &json(&summary(&events())));
    check!("event.json", &json(&summary(&counted::events()).events));
}

/// Check the numbers of a trace.
#[test]
fn traces() {
    let numbers = serde_json::to_value(summary(&trace::events())).expect("JSON");
    check!("trace.report.json", &json(&numbers["trace"]));
}
