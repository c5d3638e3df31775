//! Console blocks: golden files, and the limits of width and height.

mod support;

use monitor::{
    console::{BlockStyle, block, in_place},
    snapshot::{Frame, Kernel, Kinds, Process, Snapshot, Suspect},
};

/// Check a block in a pipe and a colored one on a small terminal.
#[test]
fn blocks_match_golden_files() {
    let (before, now) = (support::machine(1), support::machine(2));
    support::check("console.txt", &block(&now, Some(&before), BlockStyle { width: None, height: None, colour: false }));
    support::check(
        "console.colour.txt",
        &block(&now, Some(&before), BlockStyle { width: Some(100), height: Some(24), colour: true }),
    );
    support::check(
        "console.first.txt",
        &block(&before, None, BlockStyle { width: Some(80), height: None, colour: false }),
    );
    support::check(
        "console.nothing.txt",
        &block(&Snapshot::default(), None, BlockStyle { width: Some(80), height: None, colour: false }),
    );
}

/// Check that values which are not counted appear in no table: a column of zeroes would be misleading.
#[test]
fn only_counted_values_are_shown() {
    let none = Kinds { memory: false, launches: false, graphs: false, copies: false, sets: false, errors: false };
    let look = BlockStyle { width: None, height: None, colour: false };
    let columns = |kinds: Kinds| {
        let now = Snapshot { kinds, ..support::machine(2) };
        let text = block(&now, Some(&support::machine(1)), look);
        let row = text.lines().find(|line| line.starts_with("Processes")).expect("a table").to_owned();
        row.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(columns(none), "pid name");
    assert_eq!(columns(Kinds { memory: true, ..none }), "pid live peak name");
    assert_eq!(columns(Kinds { launches: true, ..none }), "pid launches/s name");
    assert_eq!(columns(Kinds { copies: true, ..none }), "pid HtoD/s DtoH/s name");
    assert_eq!(columns(Kinds { errors: true, ..none }), "pid errors name");
}

/// Check that output fits every terminal size, and that hostile names produce no control characters.
#[test]
fn output_fits_the_terminal() {
    let mut now = support::machine(2);
    for place in 0..50 {
        let mut process = now.processes[place % 2].clone();
        (process.id, process.pid) = (100 + place as u32, 1_000_000 + place as u32);
        now.processes.push(process);
    }
    for width in [0, 20, 60, 80, 200] {
        for height in [1, 2, 3, 10, 24, 33, 50, 100] {
            let text = block(
                &now,
                Some(&support::machine(1)),
                BlockStyle { width: Some(width), height: Some(height), colour: false },
            );
            assert!(text.lines().count() < height.max(2), "{height} {}", text.lines().count());
            for line in text.lines() {
                assert!(line.chars().count() <= width.max(60), "{width}: {line}");
            }
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
        }
    }
    assert_eq!(in_place("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
}

/// Check that suspects with the same line are distinguished by their callers, as far as necessary.
#[test]
fn suspects_differ_by_their_callers() {
    let suspect = |stack: &[&str]| Suspect {
        bytes: 1,
        function: "cudaMalloc".into(),
        stack: stack.iter().copied().map(Frame::from).collect(),
        ..Suspect::default()
    };
    let suspects = vec![
        suspect(&["main", "load", "grow (pool.c:7)", "cudaMalloc"]),
        suspect(&["main", "step", "grow (pool.c:7)", "cudaMalloc"]),
        suspect(&["init", "step", "grow (pool.c:7)", "cudaMalloc"]),
        suspect(&["main", "open", "cudaMalloc"]),
        Suspect { resolving: true, ..suspect(&[]) },
        suspect(&[]),
    ];
    let now =
        Snapshot { processes: vec![Process { id: 1, pid: 7, suspects, ..Process::default() }], ..Snapshot::default() };
    let text = block(&now, None, BlockStyle { width: None, height: None, colour: false });
    let rows =
        text.lines().skip_while(|line| !line.starts_with("Suspects")).skip(1).take_while(|line| !line.is_empty());
    let mut names: Vec<&str> = rows.filter_map(|row| row.rsplit("  ").next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "[resolving], cudaMalloc",
            "[unknown line], cudaMalloc",
            "grow (pool.c:7), cudaMalloc, from load",
            "grow (pool.c:7), cudaMalloc, from step, from init",
            "grow (pool.c:7), cudaMalloc, from step, from main",
            "open, cudaMalloc",
        ]
    );
}

/// Check that tables are complete where no terminal limits them.
#[test]
fn tables_without_a_height_are_complete() {
    let kernel = |number: u64| Kernel { name: format!("k{number}").into(), launches: 1, ..Kernel::default() };
    let process = |pid| Process { id: pid, pid, kernels: (0..100).map(kernel).collect(), ..Process::default() };
    let now = Snapshot { processes: (1..=30).map(process).collect(), ..Snapshot::default() };
    let text = block(&now, None, BlockStyle { width: None, height: None, colour: false });
    assert!(!text.contains('…'), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with("k99")).count(), 30);
}
