//! Attaches to real processes, compiled here from C. Needs the right to trace them.

mod support;

use std::time::Duration;

use support::{Program, attach, library};

/// Check 1,000 visits to a program with 32 threads that check their registers and system calls.
#[test]
fn thousand_rounds_do_no_harm() {
    let program = Program::start("busy.c", &[]);
    let library = library();
    let before = program.descriptors();
    let mut longest = Duration::ZERO;
    for round in 0..1000 {
        let loaded = attach(&program, &library, c"entry", &[1, 2, 3]).load();
        let loaded = loaded.unwrap_or_else(|error| panic!("round {round}, longest stop {longest:?}: {error}"));
        assert_eq!(loaded.result, 6 << 32 | u64::from(program.pid()), "round {round}");
        longest = longest.max(loaded.stopped);
    }
    println!("longest stop: {longest:?}");
    program.wait_for_threads(33);
    assert_eq!(program.descriptors(), before);
    assert!(program.finish().starts_with("ok "));
}
