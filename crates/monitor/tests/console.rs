//! The console's blocks: golden files, and that they keep to width and height.

mod support;

use monitor::{
    console::{Look, block, in_place},
    snapshot::Snapshot,
};

/// Check a block in a pipe and one on a small terminal with colours.
#[test]
fn golden() {
    let (before, now) = (support::machine(1), support::machine(2));
    support::check("console.txt", &block(&now, Some(&before), Look { width: 130, height: None, colour: false }));
    support::check(
        "console.colour.txt",
        &block(&now, Some(&before), Look { width: 100, height: Some(24), colour: true }),
    );
    support::check("console.first.txt", &block(&before, None, Look { width: 80, height: None, colour: false }));
    support::check(
        "console.nothing.txt",
        &block(&Snapshot::default(), None, Look { width: 80, height: None, colour: false }),
    );
}

/// Check that no size of terminal is overrun, and that hostile names bring no control characters.
#[test]
fn sizes() {
    let mut now = support::machine(2);
    for place in 0..50 {
        let mut process = now.processes[place % 2].clone();
        (process.id, process.pid) = (100 + place as u32, 1_000_000 + place as u32);
        now.processes.push(process);
    }
    for width in [0, 20, 60, 80, 200] {
        for height in [1, 2, 3, 10, 24, 33, 50, 100] {
            let text = block(&now, Some(&support::machine(1)), Look { width, height: Some(height), colour: false });
            assert!(text.lines().count() < height.max(2), "{height} {}", text.lines().count());
            for line in text.lines() {
                assert!(line.chars().count() <= width.max(60), "{width}: {line}");
            }
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
        }
    }
    assert_eq!(in_place("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
}
