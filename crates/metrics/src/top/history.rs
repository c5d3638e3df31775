//! A process's recent history, for sparklines.

use std::collections::VecDeque;

use crate::rates::{Pace, live_bytes};

/// Number of snapshots remembered.
const LENGTH: usize = 120;

/// Values of one process, the newest last.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) launches: VecDeque<u64>,
    pub(super) live: VecDeque<u64>,
    pub(super) copied: VecDeque<u64>,
}

impl History {
    pub(super) fn push(&mut self, pace: &Pace<'_>) {
        let add = |ring: &mut VecDeque<u64>, value: u64| {
            if ring.len() == LENGTH {
                ring.pop_front();
            }
            ring.push_back(value);
        };
        add(&mut self.launches, pace.launches() as u64);
        add(&mut self.live, live_bytes(pace.process));
        add(&mut self.copied, (pace.to_device() + pace.to_host()) as u64);
    }
}

/// Formats the last `width` values as bars; every value above 0 is visible.
pub(super) fn sparkline(values: &VecDeque<u64>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = values.iter().skip(values.len().saturating_sub(width));
    let most = shown.clone().copied().max().unwrap_or(0).max(1);
    let bar = |value: &u64| match value {
        0 => ' ',
        _ => BARS[((u128::from(*value) * 8).div_ceil(u128::from(most)) as usize).clamp(1, 8) - 1],
    };
    let text: String = shown.map(bar).collect();
    format!("{text:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that bars are relative to the largest value shown.
    #[test]
    fn bars_are_relative_to_the_largest() {
        assert_eq!(sparkline(&[0, 1, 50, 100].into(), 6), "   ▁▄█");
        assert_eq!(sparkline(&[9000, 0, 1, 2].into(), 2), "▄█");
        assert_eq!(sparkline(&[u64::MAX, u64::MAX - 1].into(), 2), "██");
        assert_eq!(sparkline(&VecDeque::new(), 3), "   ");
        assert_eq!(sparkline(&[1].into(), 0), "");
    }
}
