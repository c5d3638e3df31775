//! Random choices of single threads.

use core::cell::Cell;

use crate::sys;

/// Chooses events at random: on average one in a given number. Loops in the program do not repeat the same choice.
pub struct Countdown {
    /// Events until the next choice.
    left: Cell<u32>,
    /// The mean distance for which it was drawn.
    mean: Cell<u32>,
    /// The state of the generator; 0 before its first use.
    state: Cell<u32>,
}

impl Countdown {
    /// Nothing drawn yet.
    pub const fn new() -> Self {
        Self { left: Cell::new(0), mean: Cell::new(0), state: Cell::new(0) }
    }

    /// Whether this event is chosen. The distances are uniform from 1 to `2 * mean - 1`.
    #[inline]
    pub fn is_due(&self, mean: u32) -> bool {
        if self.mean.get() != mean {
            self.draw(mean);
        }
        let left = self.left.get();
        if left > 1 {
            self.left.set(left - 1);
            return false;
        }
        self.draw(mean);
        true
    }

    /// Draws the distance to the next choice.
    #[cold]
    #[inline(never)]
    fn draw(&self, mean: u32) {
        let mut state = self.state.get();
        if state == 0 {
            state = (sys::now() as u32 ^ (core::ptr::from_ref(self).addr() >> 4) as u32) | 1;
        }
        // Xorshift, by Marsaglia.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        self.state.set(state);
        self.mean.set(mean);
        self.left.set(1 + state % (2 * mean.max(1) - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One event in 32 is chosen, whatever the period of the program's loop: every position of a loop of 8 or 32 events
    /// is chosen equally often.
    #[test]
    fn choices_do_not_follow_loops() {
        const EVENTS: u32 = 1 << 20;
        const MEAN: u32 = 32;
        for period in [8_u32, 32] {
            let countdown = Countdown::new();
            countdown.state.set(0x2545_f491);
            let mut chosen = vec![0_u32; period as usize];
            for event in 0..EVENTS {
                chosen[(event % period) as usize] += u32::from(countdown.is_due(MEAN));
            }
            let expected = f64::from(EVENTS / MEAN / period);
            for count in chosen {
                let error = (f64::from(count) - expected).abs() / expected;
                assert!(error < 0.15, "{count} of {expected} expected with a period of {period}");
            }
        }
    }

    /// With a mean of 1 every event is chosen.
    #[test]
    fn a_mean_of_one_chooses_everything() {
        let countdown = Countdown::new();
        assert!((0..100).all(|_| countdown.is_due(1)));
    }
}
