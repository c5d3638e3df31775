//! Keeps the cost within a budget: measures it, chooses the next step ([`crate::budget`]), and switches records on and off.
//!
//! The budget refers to the CPU time of the process, but at least to the elapsed time, and at most to the elapsed time
//! multiplied by the number of threads that launched: other busy threads do not make launches cheaper. The library
//! decides by itself, because it has all figures and reacts within a quarter of a second. Windows have random lengths,
//! so that a loop of the program does not always meet the same choice.

use crate::budget::{self, Effort, Figures};
use crate::totals::Begun;
use crate::{cost, sampling, subscription, sys, totals};

/// Time between two decisions.
const DECISION: u64 = 250_000_000;
/// The mean lengths of the windows in which records are taken: the rarer they are, the shorter, down to the last.
const WINDOWS: [u64; 4] = [20_000_000, 20_000_000, 10_000_000, 5_000_000];
/// How much longer the pause after a window may be because the window ended late.
const MOST_LATE: u64 = 1_000_000_000;
/// CUPTI's time to call a callback, as measured with an H200 and CUPTI 13.0.
const CALLBACK_NS: u64 = 140;
/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// The counters at a decision.
#[derive(Clone, Copy)]
struct Counters {
    time: u64,
    begun: Begun,
    cost: wire::Cost,
    callbacks: u64,
    launches: u64,
    records: u64,
}

impl Counters {
    fn now() -> Self {
        let totals = totals::snapshot();
        Self {
            time: sys::now(),
            begun: Begun::now(),
            cost: cost::snapshot(),
            callbacks: cost::callbacks(),
            launches: totals.launches,
            records: totals.kernels + totals.copies + totals.memsets,
        }
    }

    /// Returns the time since an earlier decision that the program had for its launches: that of the threads that
    /// launched, as far as they used the CPU, but at least the time that passed.
    fn time_since(&self, before: &Self) -> u64 {
        let (passed, threads) = (self.time - before.time, self.begun.active_since(&before.begun));
        let cpu = self.cost.process_ns.saturating_sub(before.cost.process_ns);
        cpu.clamp(passed, passed.saturating_mul(threads.max(1)))
    }
}

/// The sender's part of limiting the cost.
pub struct Limiter {
    percent: Option<f64>,
    step: u8,
    effort: Effort,
    before: Counters,
    decide_at: u64,
    switch_at: u64,
    started: u64,
    /// When records were last switched.
    switched: u64,
    /// Time in which records were on, up to then.
    recorded: u64,
    random: u64,
}

impl Limiter {
    /// Creates the limiter that the environment requests.
    pub fn new() -> Option<Self> {
        let (percent, fixed) = sampling::from_environment();
        let now = sys::now();
        let step = 0;
        let effort = match fixed {
            Some((rate, share)) => Effort { rate: rate.min(15), share: share.min(10) },
            None => {
                percent?;
                budget::effort(step)
            }
        };
        Some(Self {
            percent: if fixed.is_some() { None } else { percent },
            step,
            effort,
            before: Counters::now(),
            decide_at: if fixed.is_some() { NEVER } else { now + DECISION },
            switch_at: if effort.share == 0 { NEVER } else { now },
            started: now,
            switched: now,
            recorded: 0,
            random: now | 1,
        })
    }

    /// Applies the first step, before the first launch.
    pub fn begin(&self) {
        sampling::set_rate(self.effort.rate);
        sampling::limit();
    }

    /// When [`Self::act`] is due.
    pub fn due(&self) -> u64 {
        self.decide_at.min(self.switch_at)
    }

    /// Does what is due.
    pub fn act(&mut self) {
        sampling::tick();
        let now = sys::now();
        if now >= self.decide_at {
            self.decide();
            self.decide_at = now + DECISION;
        }
        if now >= self.switch_at {
            self.switch();
        }
    }

    fn decide(&mut self) {
        let Some(percent) = self.percent else { return };
        let counters = Counters::now();
        let before = core::mem::replace(&mut self.before, counters);
        let launches = counters.launches - before.launches;
        let callbacks = (counters.cost.callbacks_ns - before.cost.callbacks_ns)
            .saturating_sub(counters.cost.stacks_ns - before.cost.stacks_ns)
            .saturating_add((counters.callbacks - before.callbacks).saturating_mul(CALLBACK_NS));
        let figures = Figures {
            time_ns: counters.time_since(&before),
            launches,
            callback_ns: callbacks / launches.max(1),
            stack_ns: cost::mean_stack(),
            sending_ns: counters.cost.sender_ns.saturating_sub(before.cost.sender_ns)
                / (counters.records - before.records).max(1),
            record_ns: cost::record_cost(),
        };
        self.step = budget::next(self.step, &figures, percent);
        self.effort = budget::effort(self.step);
        sampling::set_rate(self.effort.rate);
        if self.effort.share == 0 && sampling::is_recording() {
            self.switch_at = NEVER;
        } else if self.switch_at == NEVER {
            self.switch_at = sys::now();
        }
    }

    /// Begins or ends a window.
    fn switch(&mut self) {
        let on = sampling::is_recording();
        if on && self.effort.share == 0 {
            self.switch_at = NEVER;
            return;
        }
        let now = sys::now();
        if subscription::switch(!on) {
            self.recorded += if on { now - self.switched } else { 0 };
            self.switched = now;
            let window = WINDOWS[usize::from(self.effort.share).min(WINDOWS.len() - 1)];
            let pauses = (1 << self.effort.share) - 1;
            // The share stays right if a busy machine ended the window late.
            let late = now.saturating_sub(self.switch_at).saturating_mul(pauses).min(MOST_LATE);
            let (mean, late) = if on { (window * pauses, late) } else { (window, 0) };
            self.switch_at = now + late + mean / 2 + self.random() % mean.max(1);
        } else {
            self.switch_at = now + 1_000_000;
        }
    }

    /// Xorshift, by Marsaglia.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Returns how much of the time was recorded.
    pub fn report(&self) -> wire::Sampling {
        let now = sys::now();
        let open = if sampling::is_recording() { now - self.switched } else { 0 };
        wire::Sampling { recorded_ns: self.recorded + open, whole_ns: now - self.started }
    }
}
