//! Golden files: every format of one recording, byte for byte. `BLESS=1 cargo test -p export` rewrites them; review the
//! difference before committing.

mod support;

use analysis::View;
use export::Format;
use fixtures::check;

/// Check each format of the whole recording.
#[test]
fn whole_recording() {
    let events = fixtures::events();
    for (name, format) in [
        ("server.folded", Format::Folded),
        ("server.svg", Format::Svg),
        ("server.json", Format::Chrome),
        ("server.jsonl", Format::Jsonl),
        ("server.cpu.txt", Format::CpuText),
    ] {
        check!(name, &support::export(format, &events, View::default()));
    }
}

/// Check that each part of a flame graph can be written separately.
#[test]
fn parts_can_be_written_separately() {
    let events = fixtures::events();
    check!("server.gpu.folded", &support::export(Format::Folded, &events, View { cpu: false, ..View::default() }));
    check!("server.cpu.folded", &support::export(Format::Folded, &events, View { gpu: false, ..View::default() }));
}

/// Check that an empty recording gives valid files that say so.
#[test]
fn empty_recordings_give_valid_files() {
    let events = &fixtures::events()[..2];
    check!("nothing.svg", &support::export(Format::Svg, events, View::default()));
    check!("nothing.json", &support::export(Format::Chrome, events, View::default()));
    assert_eq!(support::export(Format::Folded, events, View::default()), "");
    assert_eq!(support::export(Format::CpuText, events, View::default()), "");
}
