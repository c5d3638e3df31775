//! The clocks of the hosts of recordings that are read as one.
//!
//! On one host, all recordings have the same clock, CLOCK_MONOTONIC. Clocks of different hosts are aligned by the wall clocks at the
//! start of each recording, which may differ by seconds. What ranks did together says more ([`crate::communication::clocks`]).

use crate::event::SessionId;

/// The clocks of all recordings. Empty if there is only one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clocks {
    /// The different clocks. The times of all are those of the first one.
    pub all: Vec<Clock>,
    /// Which of them each recording has.
    pub of_recording: Vec<u32>,
}

/// The clock of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    /// The host.
    pub host: String,
    /// What corrects its times.
    pub correction: Correction,
    /// By how much corrected times may still be wrong, compared with the first clock. `None` if nothing is known.
    pub bound: Option<u64>,
    /// The operations that the estimate is based on.
    pub operations: u64,
    /// The wall clocks agree with them, so nothing is corrected.
    pub wall_clock_fits: bool,
}

/// Turns the times of one clock into those of another: `time + offset + drift × (time − at)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Correction {
    /// A time in the middle.
    pub at: u64,
    /// What to add then, in nanoseconds.
    pub offset: f64,
    /// How much more to add for each nanosecond after it.
    pub drift: f64,
}

impl Correction {
    /// Returns the time of the other clock.
    pub fn apply(&self, time: u64) -> u64 {
        if *self == Self::default() {
            return time;
        }
        let since = time as i128 - i128::from(self.at);
        time.saturating_add_signed((self.offset + self.drift * since as f64).round() as i64)
    }

    /// Returns what turns times of the other clock into those of this one.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let scale = 1.0 + self.drift;
        Self { at: self.at, offset: -self.offset / scale, drift: -self.drift / scale }
    }

    /// Returns this correction followed by another one with the same middle.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        Self {
            at: self.at,
            offset: self.offset + next.offset + next.drift * self.offset,
            drift: self.drift + next.drift + self.drift * next.drift,
        }
    }
}

impl Clocks {
    /// Returns the number of the clock of a process.
    pub fn number(&self, session: SessionId) -> u32 {
        self.of_recording.get(session.recording()).copied().unwrap_or(0)
    }

    /// Whether there are several.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns by how much the time between two moments of two processes may be wrong: 0 if they have the same clock, and
    /// `u64::MAX` if nothing is known.
    pub fn error(&self, one: SessionId, other: SessionId) -> u64 {
        let clocks = [one, other].map(|session| self.number(session));
        if clocks[0] == clocks[1] {
            return 0;
        }
        let bounds = clocks.map(|clock| self.all.get(clock as usize).and_then(|clock| clock.bound));
        match bounds {
            [Some(one), Some(other)] => one.saturating_add(other),
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that corrections are exact far from zero, and that one after another is the same as both.
    #[test]
    fn corrections_follow_each_other() {
        const DAYS: u64 = 30 * 86_400 * 1_000_000_000;
        let one = Correction { at: DAYS, offset: -750_000_001.0, drift: 1e-4 };
        let two = Correction { at: DAYS, offset: 12_345.0, drift: -5e-5 };
        assert_eq!(Correction::default().apply(u64::MAX), u64::MAX);
        assert_eq!(one.apply(DAYS + 10_000), DAYS + 10_000 - 750_000_001 + 1);
        for time in [DAYS - 3_600_000_000_000, DAYS, DAYS + 3_600_000_000_000] {
            assert!(one.then(&two).apply(time).abs_diff(two.apply(one.apply(time))) <= 1);
            assert!(one.inverse().apply(one.apply(time)).abs_diff(time) <= 1);
        }
    }

    /// Check that the error between hosts is that of both, and that there is none on one host.
    #[test]
    fn errors_add_up() {
        let clock = |bound| Clock { bound, ..Clock::default() };
        let all = vec![clock(Some(0)), clock(Some(300)), clock(Some(50)), clock(None)];
        let clocks = Clocks { all, of_recording: vec![0, 1, 2, 3, 1] };
        let error = |one: u32, other: u32| clocks.error(SessionId(one << 24 | 5), SessionId(other << 24));
        assert_eq!([error(0, 0), error(1, 4), error(0, 1), error(2, 1), error(3, 0)], [0, 0, 300, 350, u64::MAX]);
        assert_eq!(Clocks::default().error(SessionId(0), SessionId(1 << 24)), 0);
    }
}
