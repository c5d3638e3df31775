//! Keeps the monitor's cost within a budget (`--max-overhead`): if it is exceeded, launches, copies and errors are
//! counted only part of the time. Memory and the names of kernels need every call, so their functions stay watched.

use std::time::{Duration, Instant};

use collect::{Collector, calls::pausable::Pausable, process::procfs};

use super::state::State;

/// The kernel's time for one run of a probe, besides that of the BPF program: a call of a watched function takes two.
/// Measured on an H200 machine.
const TRAP_NS: u64 = 700;
/// The shortest time over which the cost is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// The longest time without these counts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// For benchmarks: the probes at launches are attached and removed in turns of so many milliseconds, whatever they cost, and the
/// times are printed.
const TURNS_VARIABLE: &str = "WARPSCOPE_TURNS";

const NOTE: &str = "launches, copies and errors are counted only part of the time, to stay within --max-overhead: \
    divide rates by the share of time not in warpscope_paused_seconds_total";

/// What watching took, and the time that the watched processes had.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    cost_ns: u64,
    cpu_ns: u64,
}

/// The budget, and the current window or pause.
pub struct Limit {
    percent: f64,
    since: Instant,
    before: Figures,
    /// While counts are paused: until when.
    until: Option<Instant>,
    /// The length of every window and pause, if the cost does not decide.
    turns: Option<Duration>,
}

impl Limit {
    /// Creates a limit, in percent of the CPU time of the watched processes.
    pub fn new(percent: f64) -> Self {
        let turns = std::env::var(TURNS_VARIABLE).ok().and_then(|given| given.parse().ok()).map(Duration::from_millis);
        Self { percent, since: Instant::now(), before: Figures::default(), until: None, turns }
    }

    /// The probes that are removed in a pause.
    pub fn pausable(&self) -> Pausable {
        if self.turns.is_some() { Pausable::launches() } else { Pausable::counts() }
    }

    /// Ends a pause that is over, or begins one if the last window exceeded the budget.
    pub fn advance(&mut self, collector: &mut Collector<State>) {
        let (now, window) = (Instant::now(), self.turns.unwrap_or(WINDOW));
        if self.until.is_some_and(|until| now < until) || (self.until.is_none() && now - self.since < window) {
            return;
        }
        let figures = figures(collector);
        let Collector { recorder, sink, trace: Some(trace), .. } = collector else { return };
        let Some(pausable) = &mut trace.libraries.pausable else { return };
        let begun = bpf::now();
        if self.until.take().is_some() {
            pausable.resume(recorder);
        } else {
            let (cost, cpu) = (figures.cost_ns - self.before.cost_ns, figures.cpu_ns.abs_diff(self.before.cpu_ns));
            if let Some(pause) = self.turns.or_else(|| pause_after(now - self.since, cost, cpu, self.percent)) {
                let removal = pausable.pause(recorder);
                sink.notes.add(NOTE.into());
                if let Some(removal) = removal.filter(|_| self.turns.is_some()) {
                    let _ = removal.join();
                }
                self.until = Some(Instant::now() + pause);
            }
        }
        if self.turns.is_some() {
            let turn = if self.until.is_some() { "pause" } else { "watch" };
            eprintln!("{turn}: attached or removed from {begun} to {}", bpf::now());
        }
        (self.since, self.before) = (Instant::now(), figures);
    }
}

/// Returns what has been spent so far.
fn figures(collector: &Collector<State>) -> Figures {
    let costs = collector.recorder.costs();
    let cost_ns = costs.iter().map(|cost| cost.ns + cost.runs * TRAP_NS).sum();
    let living = collector.sink.processes.values().filter(|known| !known.ended);
    let cpu_ns = living.filter_map(|known| procfs::cpu_ns(known.pid)).sum();
    Figures { cost_ns, cpu_ns }
}

/// Returns how long to pause after a window, so that the cost of both together is within the budget; `None` if that of
/// the window is.
fn pause_after(window: Duration, cost_ns: u64, cpu_ns: u64, percent: f64) -> Option<Duration> {
    // Processes that have just ended, or that do not use the CPU, have at least the time that passed.
    let cpu_ns = cpu_ns.max(window.as_nanos() as u64) as f64;
    let excess = cost_ns as f64 / cpu_ns * 100.0 / percent - 1.0;
    (excess > 0.0).then(|| window.mul_f64(excess.min(1e6)).clamp(WINDOW, LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window within the budget is followed by no pause, another one by one that brings the cost down to the budget.
    #[test]
    fn pauses_bring_the_cost_down_to_the_budget() {
        let (window, cpu) = (Duration::from_secs(1), 2_000_000_000);
        assert_eq!(pause_after(window, 0, cpu, 3.0), None);
        assert_eq!(pause_after(window, 60_000_000, cpu, 3.0), None);
        assert_eq!(pause_after(window, 240_000_000, cpu, 3.0), Some(Duration::from_secs(3)));
        assert_eq!(pause_after(window, 61_000_000, cpu, 3.0), Some(WINDOW));
        assert_eq!(pause_after(window, u64::MAX, cpu, 3.0), Some(LONGEST_PAUSE));
        assert_eq!(pause_after(window, 20_000_000, 0, 3.0), None, "an idle process has the time that passed");
    }
}
