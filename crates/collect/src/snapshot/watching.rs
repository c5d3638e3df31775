//! Looks at threads again and again: how much of each stack stays the same?
//!
//! ```text
//!   main ── step ── all_reduce ── wait      the stack at first
//!   ─────────────────────────────>          the stack pointer never came back to `step`
//!                ^  ~~~~~~~~~~~~~           may have changed
//!                returned?
//! ```
//!
//! A thread that has not been scheduled has not moved. Of one that ran, looks show only where it was each time: a loop that spends most of
//! its time in one call looks as if it never left it. So the returns of that call are counted, by a breakpoint of the CPU: at the
//! instruction behind it, or for a call from Python to Python at the word that says where the calling function is.

use std::{
    collections::HashMap,
    io, thread,
    time::{Duration, Instant},
};

use bpf::{Breakpoint, ThreadState, Threads};

use super::{
    taking::{Taken, python},
    target::Target,
};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(5);
/// A stack pointer further away belongs to another stack: that of a signal handler, or of a coroutine.
const FAR: u64 = 64 << 20;

/// What was seen of a thread after its stack was taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    /// It ran.
    pub ran: bool,
    /// It ended.
    pub ended: bool,
    /// The highest stack pointer: frames above it may not have been left.
    pub highest: u64,
    /// How many outermost Python frames stayed the same.
    pub python: usize,
    /// How often its call returned, if that was counted.
    pub returned: Option<u64>,
}

/// What happens when a call returns that a thread is in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Return {
    /// The thread executes the instruction at this address, and the stack pointer is this one.
    To(u64, u64),
    /// It writes to this address, where the calling Python function has its position; the function has this index.
    Line(u64, usize),
}

/// Counts the returns of one call.
struct Counter {
    of: Return,
    breakpoint: Breakpoint,
    /// The thread had left it before the counter was set.
    left: bool,
}

impl Counter {
    fn set(tid: u32, of: Return) -> io::Result<Self> {
        let breakpoint = match of {
            Return::To(address, _) => Breakpoint::on_instruction(tid, address),
            Return::Line(address, _) => Breakpoint::on_write(tid, address),
        };
        Ok(Self { of, breakpoint: breakpoint?, left: false })
    }

    /// Checks, once it is set, that the thread is still in the call. Python frames from `first_same` on are the same as before.
    fn check(&mut self, target: &Target, state: &ThreadState, first_same: usize) {
        self.left = match self.of {
            Return::To(to, sp) => {
                let inside = sp.checked_sub(state.general[7]).is_some_and(|depth| depth > 0 && depth < FAR);
                !inside || target.memory.word(sp.wrapping_sub(8)) != to
            }
            Return::Line(_, caller) => caller < first_same,
        };
    }
}

/// Watches threads for a time. `returns` has the calls that they are in. Also returns why returns could not be counted.
pub(super) fn watch(
    threads: &Threads,
    targets: &[Target],
    taken: &[Taken],
    returns: &[Option<Return>],
    time: Duration,
) -> bpf::Result<(Vec<Watched>, Option<io::Error>)> {
    let mut refused = None;
    let mut counters: Vec<Option<Counter>> = Vec::new();
    for (taken, of) in taken.iter().zip(returns) {
        counters.push(of.and_then(|of| match Counter::set(taken.state.tid, of) {
            Ok(counter) => Some(counter),
            Err(why) => {
                // A thread that has ended meanwhile is none of its reasons.
                refused = Some(why).filter(|why| why.raw_os_error() != Some(libc::ESRCH)).or(refused.take());
                None
            }
        }));
    }
    let until = Instant::now() + time;
    let mut first = true;
    let mut watched: Vec<Watched> = taken
        .iter()
        .map(|taken| Watched {
            ran: taken.state.runs != 0 || taken.native.is_none(),
            ended: false,
            highest: taken.native.as_ref().map_or(u64::MAX, |native| native.registers.sp()),
            python: taken.python.frames.len(),
            returned: None,
        })
        .collect();
    loop {
        let states: HashMap<(u32, u32), _> =
            threads.states()?.into_iter().map(|state| ((state.pid, state.tid), state)).collect();
        let mut pythons: HashMap<usize, HashMap<u64, u64>> = HashMap::new();
        for ((taken, watched), counter) in taken.iter().zip(&mut watched).zip(&mut counters) {
            let target = &targets[taken.target];
            let Some(state) = states.get(&(target.pid, taken.state.tid)) else {
                watched.ended = true;
                continue;
            };
            watched.ran |= state.runs != 0 || state.switches != taken.state.switches;
            if !watched.ran {
                continue;
            }
            let sp = state.general[7];
            if sp.abs_diff(watched.highest) < FAR {
                watched.highest = watched.highest.max(sp);
            }
            if watched.python > 0 {
                let of_process = pythons.entry(taken.target).or_insert_with(|| target.python_threads());
                let now = python(target, of_process, state.thread_pointer);
                // A stack that could not be read proves nothing.
                if now.whole {
                    watched.python = watched.python.min(taken.python.common(&now));
                }
            }
            if let Some(counter) = counter.as_mut().filter(|_| first) {
                counter.check(target, state, taken.python.frames.len() - watched.python);
            }
        }
        first = false;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        thread::sleep(left.min(EVERY));
    }
    for (watched, counter) in watched.iter_mut().zip(&counters) {
        let hits = counter.as_ref().and_then(|counter| Some(counter.breakpoint.hits().ok()? + u64::from(counter.left)));
        watched.returned = hits;
    }
    Ok((watched, refused))
}
