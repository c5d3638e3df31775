//! Random faults, one per recording. In every case nothing hangs, nothing is left behind, the target's own result is right,
//! and the recording can be read up to its last whole chunk.
//!
//! A round depends only on the seed and its number. The seed is printed; to run one round again:
//! `WARPSCOPE_FAULTS_SEED=7 WARPSCOPE_FAULTS_ROUND=123 ./test faults::a_few`.

mod fault;
mod round;

use std::{
    env,
    io::Write,
    panic::catch_unwind,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use round::Round;

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// Runs rounds, several at a time.
fn run(rounds: u64, seed: u64) {
    let seed = number("WARPSCOPE_FAULTS_SEED").unwrap_or(seed);
    let (first, end) = number("WARPSCOPE_FAULTS_ROUND").map_or((0, rounds), |round| (round, round + 1));
    // Not a print macro: those are hidden while a test passes.
    let say = |text: String| drop(std::io::stderr().write_all(text.as_bytes()));
    say(format!("faults: {} rounds, seed {seed}\n", end - first));
    let next = AtomicU64::new(first);
    let failed = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return;
            }
            let round = Round::new(seed, number);
            if catch_unwind(|| round.run()).is_err() {
                failed.lock().expect("no panic with the lock").push(format!("round {number}: {round:?}"));
            }
            if number % 100 == 99 {
                say(format!("faults: {} rounds\n", number + 1));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, |cpus| 2 * cpus.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().expect("all threads have ended");
    assert!(failed.is_empty(), "with WARPSCOPE_FAULTS_SEED={seed}:\n{}", failed.join("\n"));
}

/// Check a few rounds, the same in every run, so that the harness itself is known to work.
#[test]
fn a_few() {
    run(24, 1_794_776_666);
}

/// Check a thousand rounds, or `WARPSCOPE_FAULTS_ROUNDS`, different in every run, for `./test --full`.
#[test]
#[ignore = "takes many minutes: ./test --full runs it"]
fn a_thousand() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    run(number("WARPSCOPE_FAULTS_ROUNDS").unwrap_or(1_000), since.as_secs());
}
