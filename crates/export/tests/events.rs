//! Counted events in every output: exact, separate from time and from each other.

mod support;

use analysis::{EventView, View};
use export::Format;
use fixtures::{check, counted::events};
use model::event::{CounterId, Event};

fn view(counter: u32, by_count: bool) -> View {
    View { event: Some(EventView { counter: CounterId(counter), by_count }), ..View::default() }
}

/// Returns the weights of all lines.
fn weights(folded: &str) -> Vec<u64> {
    folded.lines().map(|line| line.rsplit_once(' ').expect("a weight").1.parse().expect("a number")).collect()
}

/// Check that folded stacks of an event have its own amounts without conversion, and that time does not include them.
#[test]
fn folded() {
    let events = events();
    let by_weight = support::export(Format::Folded, &events, view(0, false));
    let mut amounts = weights(&by_weight);
    amounts.sort_unstable();
    assert_eq!(amounts, [100, 4096]);
    assert!(by_weight.lines().all(|line| line.contains(";malloc ")), "{by_weight}");
    let mut counts = weights(&support::export(Format::Folded, &events, view(0, true)));
    counts.sort_unstable();
    assert_eq!(counts, [2, 4]);
    let writes = support::export(Format::Folded, &events, view(1, false));
    assert_eq!(weights(&writes), [7]);
    assert!(writes.contains(";[event syscalls:sys_enter_write] 7"), "{writes}");
    let time = |events: &[Event]| support::export(Format::Folded, events, View::default());
    assert_eq!(time(&events), time(&fixtures::events()));
}

/// Check the SVG, the lines and the summary of events.
#[test]
fn golden() {
    let events = events();
    check!("event.svg", &support::export(Format::Svg, &events, view(0, false)));
    let lines = support::export(Format::Jsonl, &events, View::default());
    let ours = |line: &&str| line.contains("\"type\":\"event\"") || line.contains("\"type\":\"hits\"");
    check!("event.jsonl", &lines.lines().filter(ours).map(|line| format!("{line}\n")).collect::<String>());
}
