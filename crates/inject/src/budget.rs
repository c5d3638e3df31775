//! Decides how much is recorded, so that the cost stays within a budget.
//!
//! The steps form a ladder, from everything to least:
//!
//! ```text
//!   step     0     1     2   ...   6       7       8   ...
//!   stacks   all   1/2   1/4       1/64    1/16    1/16       of the recorded launches
//!   records  all   all   all       all     1/2     1/4        of the time; otherwise launches are counted
//! ```
//!
//! Everything here is pure: figures in, a step out.
//!
//! A higher step is taken at once, a lower one step by step, and only if it leaves a quarter of the budget unused.
//! Until CUPTI's time for a record is known (the difference between the median durations of launch calls with and
//! without records), 3 µs are assumed, so that a launch-bound program is windowed and the difference can be measured.
//! `WARPSCOPE_SAMPLING=RATE,SHARE` fixes the step for tests.

/// The highest step.
pub const LAST: u8 = LAST_RATE + LAST_SHARE;
const LAST_RATE: u8 = 6;
const LAST_SHARE: u8 = 6;
/// The rate of stacks where records are windowed.
const WINDOWED_RATE: u8 = 4;

/// Assumed until it is measured: CUPTI's time for the records of a launch. More than any that was seen.
const ASSUMED_RECORD_NS: u64 = 3_000;

/// What a step records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The logarithm to base 2 of the launches per stack.
    pub rate: u8,
    /// The same of the time per time in which records are taken.
    pub share: u8,
}

/// Returns what a step records.
pub const fn effort(step: u8) -> Effort {
    if step <= LAST_RATE {
        Effort { rate: step, share: 0 }
    } else {
        Effort { rate: WINDOWED_RATE, share: if step < LAST { step - LAST_RATE } else { LAST_SHARE } }
    }
}

/// Figures of the time since the last decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The time that the threads that launch had.
    pub time_ns: u64,
    /// Launches.
    pub launches: u64,
    /// Time of a callback pair without a stack, by launch.
    pub callback_ns: u64,
    /// Time of taking one stack.
    pub stack_ns: u64,
    /// Time of sending the records of one launch.
    pub sending_ns: u64,
    /// CUPTI's time for the records of one launch, if it was measured.
    pub record_ns: Option<u64>,
}

impl Figures {
    /// Returns the time by launch that a step would take.
    fn cost(&self, step: u8) -> u64 {
        let Effort { rate, share } = effort(step);
        let recorded = self.record_ns.unwrap_or(ASSUMED_RECORD_NS) + self.sending_ns;
        self.callback_ns + (((self.stack_ns >> rate) + recorded) >> share)
    }
}

/// Returns the next step: the lowest that fits into `percent` of the time, or the last. A lower step than the current
/// one must leave a quarter of the budget unused, so that the steps do not alternate, and is reached one by one.
pub fn next(step: u8, figures: &Figures, percent: f64) -> u8 {
    // Without launches nothing is known.
    if figures.launches == 0 {
        return step;
    }
    let allowed = figures.time_ns as f64 * percent / 100.0 / figures.launches as f64;
    let fits = |step: u8, part: f64| figures.cost(step) as f64 <= allowed * part;
    if fits(step, 1.0) {
        return if step > 0 && fits(step - 1, 0.75) { step - 1 } else { step };
    }
    (step..=LAST).find(|step| fits(*step, 1.0)).unwrap_or(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second with this many launches, at the costs of a launch-bound training step.
    fn figures(launches: u64) -> Figures {
        Figures {
            time_ns: 1_000_000_000,
            launches,
            callback_ns: 100,
            stack_ns: 1_400,
            sending_ns: 150,
            record_ns: Some(900),
        }
    }

    fn settle(mut step: u8, figures: &Figures) -> u8 {
        for _ in 0..20 {
            step = next(step, figures, 3.0);
        }
        step
    }

    /// The ladder goes from everything to least, and each step costs less than the one before at usual costs.
    #[test]
    fn each_step_costs_less() {
        assert_eq!(effort(0), Effort { rate: 0, share: 0 });
        let costs: Vec<u64> = (0..=LAST).map(|step| figures(1).cost(step)).collect();
        assert!(costs.windows(2).all(|pair| pair[1] < pair[0]), "{costs:?}");
    }

    /// A program with few launches is recorded completely; a faster one step by step less, within the budget.
    #[test]
    fn the_faster_the_program_the_higher_the_step() {
        assert_eq!(settle(0, &figures(10_000)), 0);
        let steps: Vec<u8> =
            [10_000, 15_000, 20_000, 26_000, 40_000, 80_000, 1_000_000].map(|n| settle(0, &figures(n))).into();
        assert!(steps.is_sorted() && steps[6] == LAST, "{steps:?}");
        for launches in [15_000, 26_000, 40_000, 80_000] {
            let figures = figures(launches);
            let cost = figures.cost(settle(0, &figures)) * launches;
            assert!(cost <= figures.time_ns * 3 / 100, "{launches}: {cost}");
        }
    }

    /// When the program slows down, the steps go down again, one at a time.
    #[test]
    fn steps_go_down_again() {
        let high = settle(0, &figures(80_000));
        assert_eq!(next(high, &figures(1_000), 3.0), high - 1);
        assert_eq!(settle(high, &figures(1_000)), 0);
        assert_eq!(next(high, &figures(0), 3.0), high, "nothing is known");
    }

    /// A constant rate settles: the step does not alternate, also where the cost is close to the budget.
    #[test]
    fn a_constant_rate_settles() {
        for launches in (5_000..200_000).step_by(500) {
            let figures = figures(launches);
            let settled = settle(0, &figures);
            assert_eq!(next(settled, &figures, 3.0), settled, "{launches}");
            let from_above = settle(LAST, &figures);
            assert_eq!(next(from_above, &figures, 3.0), from_above, "{launches}");
        }
    }

    /// Until CUPTI's cost is measured, a high one is assumed, so that a launch-bound program is windowed and it can be
    /// measured.
    #[test]
    fn an_unknown_cost_is_measured() {
        let unknown = Figures { record_ns: None, ..figures(20_000) };
        assert!(effort(settle(0, &unknown)).share > 0);
        assert_eq!(effort(settle(0, &Figures { record_ns: Some(0), ..figures(20_000) })).share, 0);
    }
}
