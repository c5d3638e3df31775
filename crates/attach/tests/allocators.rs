//! Attaches to programs whose threads allocate all the time, with several allocators: no thread may get stuck.
//!
//! `ALLOCATOR_ROUNDS` sets the number of rounds.

#[path = "../../../tests/support/coverage.rs"]
mod coverage;
mod support;

use std::{env, path::Path, process::Command, time::Duration};

use support::{Program, attach, compile, library};

/// Attaches to a new program in each round: the C library keeps the stacks of threads that have ended, so that only the first
/// thread that is created in a program needs memory. Every thread must make progress after it.
fn visit(program: &mut Command) {
    let library = library();
    let rounds: u32 = env::var("ALLOCATOR_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let mut program = Program::of(program);
        let result = attach(&program, &library, c"entry", &[1]).load();
        assert_eq!(program.answer(), "alive\n", "round {round}: {result:?}");
        let loaded = result.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(loaded.result, 1 << 32 | u64::from(program.pid()), "round {round}");
        longest = longest.max(loaded.stopped);
    }
    println!("{rounds} rounds, longest stop {longest:?}");
}

/// The same with an allocator that is loaded before all other libraries.
fn visit_with(allocator: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    visit(Command::new(compile(folder.path(), "churn.c", &[])).env("LD_PRELOAD", allocator));
}

/// The allocator with nested locks, as a library.
fn visit_nesting(options: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    visit_with(&compile(folder.path(), "nesting.c", &[&["-shared", "-fPIC"], options].concat()));
}

/// Check an allocator that waits for a lock while it holds another.
#[test]
fn nested_locks() {
    visit_nesting(&[]);
}

/// Check the same for an allocator that sleeps until a lock is free.
#[test]
fn nested_locks_with_sleeps() {
    visit_nesting(&["-DSLEEPS"]);
}

/// Check the same if the allocator is linked into the program.
#[test]
fn nested_locks_in_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nesting.c");
    let options = [source.to_str().expect("text"), "-DSLEEPS"];
    visit(&mut Command::new(compile(folder.path(), "churn.c", &options)));
}

/// Check the allocator of the C library.
#[test]
fn allocator_of_the_c_library() {
    let folder = tempfile::tempdir().expect("a folder");
    visit(&mut Command::new(compile(folder.path(), "churn.c", &[])));
}

/// Check an allocator of this system, if it is installed.
fn visit_installed(name: &str) {
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    match directories.map(|directory| Path::new(directory).join(name)).into_iter().find(|path| path.exists()) {
        Some(path) => visit_with(&path),
        None => coverage::not_covered(&format!("attaching to programs with {name}, which is not installed")),
    }
}

/// Check jemalloc.
#[test]
fn jemalloc() {
    visit_installed("libjemalloc.so.2");
}

/// Check tcmalloc.
#[test]
fn tcmalloc() {
    visit_installed("libtcmalloc_minimal.so.4");
}

/// Check mimalloc.
#[test]
fn mimalloc() {
    visit_installed("libmimalloc.so.2");
}
