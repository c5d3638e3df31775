//! How long it takes to find the steps of a program, by the number of its launches.
//!
//! Two threads train in turns: a step has 300 launches from 15 functions below 40 frames that all have in common. Only the detector is
//! timed, in both of its passes, and not how a recording is read.

use std::time::{Duration, Instant};

use analysis::steps::{Code, Cutter, Found, Level, Sequence, Site};
use model::event::{Launch, ProcessId, StackId};

const COMMON: u64 = 40;
const FUNCTIONS: u64 = 15;
const SITES: u64 = 20;
const STEP: u64 = FUNCTIONS * SITES;

struct Program;

impl Code for Program {
    fn sites(&self, _: ProcessId, stack: StackId) -> Vec<Site> {
        let (function, place) = ((stack.0 - 1) / SITES, (stack.0 - 1) % SITES);
        let site = |id: u64, function: u64, place: u64| Site { id, function, place, is_exact: true };
        let common = (0..COMMON).map(|depth| site(depth, depth + 1, 0));
        common.chain([site(function, COMMON + 1, function), site(place, COMMON + 2 + function, place)]).collect()
    }

    fn has_start(&self, _: ProcessId) -> bool {
        true
    }
}

fn launches(count: u64) -> impl Iterator<Item = Launch> {
    (0..count).map(|n| Launch {
        process: ProcessId(1),
        tid: 1 + (n / STEP % 2) as u32,
        time: n,
        stack: StackId(1 + n % STEP),
        ..Launch::default()
    })
}

/// Returns the steps, and how long the two passes took.
fn run(count: u64) -> (usize, [Duration; 2]) {
    let begin = Instant::now();
    let mut sequence = Sequence::default();
    launches(count).for_each(|launch| sequence.push(&launch));
    let found = Found::new(sequence, &Program);
    let learned = begin.elapsed();
    let levels: Vec<&Level> = found.steps.iter().map(|index| &found.levels[*index]).collect();
    let mut cutter = Cutter::new(&found, &levels);
    launches(count).for_each(|launch| cutter.push(&launch));
    let steps = cutter.finish().len();
    (steps, [learned, begin.elapsed() - learned])
}

fn main() {
    for millions in [1, 10] {
        let (steps, [learned, cut]) = run(millions * 1_000_000);
        println!("{millions:>2} million launches: {steps} steps; found in {learned:.2?}, cut in {cut:.2?}");
    }
}
