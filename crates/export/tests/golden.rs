//! Golden files: every format of one recording, byte for byte. `BLESS=1 cargo test -p export` rewrites them; review the
//! difference before committing.

mod support;

use analysis::{Flames, View};
use export::{Format, Summary, summary::render};
use support::check;

/// Check each format of the whole recording.
#[test]
fn whole_recording() {
    let events = support::events();
    for (name, format) in [
        ("server.folded", Format::Folded),
        ("server.svg", Format::Svg),
        ("server.json", Format::Chrome),
        ("server.jsonl", Format::Jsonl),
        ("server.cpu.txt", Format::CpuText),
    ] {
        check(name, &support::export(format, &events, View::default()));
    }
}

/// Check that each part of a flame graph can be written separately.
#[test]
fn parts_can_be_written_separately() {
    let events = support::events();
    check("server.gpu.folded", &support::export(Format::Folded, &events, View { cpu: false, ..View::default() }));
    check("server.cpu.folded", &support::export(Format::Folded, &events, View { gpu: false, ..View::default() }));
}

/// Check the summary: its numbers, its text, and its text on a narrow terminal with colours.
#[test]
fn summary() {
    let summary = Summary::of(&Flames::new(&support::fold(&support::events())));
    check("summary.json", &(serde_json::to_string_pretty(&summary).expect("JSON") + "\n"));
    check("summary.txt", &render(&summary, false, 120));
    check("summary.colour.txt", &render(&summary, true, 80));
    check("summary.narrow.txt", &render(&summary, false, 60));
}

/// Check that an empty recording gives valid files that say so.
#[test]
fn empty_recordings_give_valid_files() {
    let events = &support::events()[..2];
    check("nothing.svg", &support::export(Format::Svg, events, View::default()));
    check("nothing.json", &support::export(Format::Chrome, events, View::default()));
    check("nothing.txt", &render(&Summary::of(&Flames::new(&support::fold(events))), false, 100));
    assert_eq!(support::export(Format::Folded, events, View::default()), "");
    assert_eq!(support::export(Format::CpuText, events, View::default()), "");
}
