//! Keeps the monitor's cost within a budget (`--max-overhead`): if it is exceeded, launches, copies and errors are
//! counted only part of the time. Memory and the names of kernels need every call, so their functions stay watched.

use std::{
    thread::JoinHandle,
    time::{Duration, Instant},
};

use collect::{Collector, process::procfs};

use super::state::State;

/// The kernel's time for one run of a probe, besides that of the BPF program: a call of a watched function takes two.
/// In a loop that does nothing else a trap takes 0.7 us on an H200 machine; in PyTorch, whose caches it disturbs, empty probes cost
/// about twice that.
const TRAP_NS: u64 = 1_400;
/// The shortest time over which the cost is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// The longest time without these counts.
const MAX_PAUSE: Duration = Duration::from_secs(60);

const NOTE: &str = "launches, copies and errors are counted only part of the time, to stay within --max-overhead: \
    divide rates by the share of time not in warpscope_paused_seconds_total";

/// What watching took so far, and the CPU time of the watched processes.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    cost_ns: u64,
    cpu_ns: u64,
}

impl Figures {
    /// Returns the cost since earlier figures, in percent of the CPU time.
    fn percent_since(&self, before: &Self, time: Duration) -> f64 {
        // Processes that have just ended, or that do not use the CPU, have at least the time that passed.
        let cpu_ns = self.cpu_ns.abs_diff(before.cpu_ns).max(time.as_nanos() as u64).max(1);
        self.cost_ns.saturating_sub(before.cost_ns) as f64 / cpu_ns as f64 * 100.0
    }
}

/// The budget, and the current window or pause.
pub struct Limit {
    percent: f64,
    since: Instant,
    before: Figures,
    /// The thread that removes the probes at the end of a window. This takes a while, which is part of the window.
    removal: Option<JoinHandle<()>>,
    /// While counts are paused: until when.
    until: Option<Instant>,
    /// The cost in percent during the last pause: some probes stay.
    rest: f64,
}

impl Limit {
    /// Creates a limit, in percent of the CPU time of the watched processes.
    pub fn new(percent: f64) -> Self {
        Self { percent, since: Instant::now(), before: Figures::default(), removal: None, until: None, rest: 0.0 }
    }

    /// Ends a pause that is over, or begins one if the last window exceeded the budget.
    pub fn advance(&mut self, collector: &mut Collector<State>) {
        let now = Instant::now();
        let is_over = match (&self.removal, self.until) {
            (Some(thread), _) => thread.is_finished(),
            (None, Some(until)) => now >= until,
            (None, None) => now - self.since >= WINDOW,
        };
        if !is_over {
            return;
        }
        let figures = figures(collector);
        let Collector { recorder, sink, trace: Some(trace), .. } = collector else { return };
        let Some(pausable) = &mut trace.libraries.pausable else { return };
        let (time, cost) = (now - self.since, figures.percent_since(&self.before, now - self.since));
        self.removal = None;
        let pause = pause_after(time, cost, self.rest, self.percent);
        if self.until.take().is_some() {
            self.rest = cost;
            pausable.resume(recorder);
        } else if !pausable.is_attached() {
            self.until = Some(now + pause.unwrap_or(WINDOW));
        } else if pause.is_some() {
            sink.notes.add(NOTE.into());
            self.removal = pausable.pause(recorder);
            return;
        }
        (self.since, self.before) = (now, figures);
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

/// Returns how long to pause after a window with this cost, so that the mean of both is within the budget, if a pause costs `rest`;
/// `None` if the window is within the budget. All in percent.
fn pause_after(window: Duration, cost: f64, rest: f64, budget: f64) -> Option<Duration> {
    let windows = if rest < budget { (cost - budget) / (budget - rest) } else { f64::INFINITY };
    (cost > budget).then(|| window.mul_f64(windows.min(1e6)).clamp(WINDOW, MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window within the budget is followed by no pause, another one by one that brings the cost down to the budget.
    #[test]
    fn pauses_bring_the_cost_down_to_the_budget() {
        let window = Duration::from_secs(1);
        assert_eq!(pause_after(window, 0.0, 0.0, 3.0), None);
        assert_eq!(pause_after(window, 3.0, 0.0, 3.0), None);
        assert_eq!(pause_after(window, 12.0, 0.0, 3.0), Some(Duration::from_secs(3)));
        assert_eq!(pause_after(window, 12.0, 1.5, 3.0), Some(Duration::from_secs(6)), "mean: (12 + 6 * 1.5) / 7 = 3");
        assert_eq!(pause_after(window, 3.1, 0.0, 3.0), Some(WINDOW));
        assert_eq!(pause_after(window, 1e9, 0.0, 3.0), Some(MAX_PAUSE));
        assert_eq!(pause_after(window, 4.0, 3.5, 3.0), Some(MAX_PAUSE), "no pause is long enough");
    }

    /// The cost relates to the CPU time of the processes, or to the time that passed if they used less.
    #[test]
    fn the_cost_is_a_share_of_the_time_used() {
        let (before, second) = (Figures { cost_ns: 5, cpu_ns: 7 }, Duration::from_secs(1));
        let after = |cpu_ns| Figures { cost_ns: 60_000_005, cpu_ns };
        assert_eq!(after(2_000_000_007).percent_since(&before, second), 3.0);
        assert_eq!(after(7).percent_since(&before, second), 6.0, "an idle process has the time that passed");
    }
}
