//! The recent past of processes and GPUs, for graphs.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::snapshot::{
    Snapshot,
    rates::{Pace, live_bytes},
};

/// Number of snapshots remembered: five minutes at the default interval.
pub(super) const LENGTH: usize = 300;

/// Values, the newest last.
pub(super) type Ring = VecDeque<u64>;

/// What is remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) processes: HashMap<u32, History>,
    /// How busy each GPU was, in thousandths, by index.
    pub(super) busy: HashMap<u32, Ring>,
    /// When the snapshots were taken.
    times: Ring,
    /// The number of snapshots so far, including those that are no longer remembered.
    snapshots: usize,
}

/// Values of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) launches: Ring,
    pub(super) live: Ring,
    pub(super) copied: Ring,
}

/// What one bar shows if it stands for several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    Mean,
    Largest,
}

fn add(ring: &mut Ring, value: u64) {
    if ring.len() == LENGTH {
        ring.pop_front();
    }
    ring.push_back(value);
}

impl Past {
    /// Adds a snapshot. Only what it contains is remembered.
    pub(super) fn push(&mut self, now: &Snapshot, before: Option<&Snapshot>) {
        add(&mut self.times, now.time_ns);
        self.snapshots += 1;
        for pace in Pace::of(now, before) {
            let history = self.processes.entry(pace.process.id).or_default();
            add(&mut history.launches, pace.launches() as u64);
            add(&mut history.live, live_bytes(pace.process));
            add(&mut history.copied, (pace.to_device() + pace.to_host()) as u64);
        }
        for device in &now.devices {
            if let Some(share) = device.utilisation {
                add(self.busy.entry(device.index).or_default(), (share.clamp(0.0, 1.0) * 1e3) as u64);
            }
        }
        let living: HashSet<u32> = now.processes.iter().map(|process| process.id).collect();
        self.processes.retain(|id, _| living.contains(id));
        let present: HashSet<u32> = now.devices.iter().map(|device| device.index).collect();
        self.busy.retain(|index, _| present.contains(index));
    }

    /// Returns the time from the first snapshot to the last, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        let ends = self.times.front().zip(self.times.back());
        ends.map_or(0, |(first, last)| last.saturating_sub(*first))
    }

    /// Returns `width` bars for the time of all snapshots, the newest last. The limits between bars stay with their
    /// snapshots, so a graph moves but does not flicker.
    pub(super) fn bars(&self, ring: &Ring, width: usize, bar: Bar) -> Vec<u64> {
        let each = self.times.len().div_ceil(width.max(1)).max(1);
        let first = self.snapshots - ring.len();
        let mut bars: VecDeque<Vec<u64>> = VecDeque::new();
        for (number, value) in (first..).zip(ring) {
            match bars.back_mut() {
                Some(last) if number % each > 0 => last.push(*value),
                _ => bars.push_back(vec![*value]),
            }
        }
        let height = |values: &Vec<u64>| match bar {
            Bar::Largest => values.iter().copied().max().unwrap_or(0),
            Bar::Mean => {
                let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
                sum.div_ceil(values.len().max(1) as u128) as u64
            }
        };
        let missing = width.saturating_sub(bars.len());
        let skipped = bars.len().saturating_sub(width);
        std::iter::repeat_n(0, missing).chain(bars.iter().skip(skipped).map(height)).collect()
    }

    /// Returns how busy some GPUs were on average.
    pub(super) fn mean_busy(&self, gpus: &[u32]) -> Option<Ring> {
        let rings: Vec<&Ring> = gpus.iter().filter_map(|index| self.busy.get(index)).collect();
        let length = rings.iter().map(|ring| ring.len()).min()?;
        let back = |age: usize| rings.iter().map(|ring| ring[ring.len() - 1 - age]).sum::<u64>() / rings.len() as u64;
        Some((0..length).rev().map(back).collect())
    }
}

/// Formats the last `width` values as bars; every value above 0 is visible.
pub(super) fn sparkline(values: &Ring, width: usize) -> String {
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
    use crate::snapshot::{Device, Process};

    /// Check that bars are relative to the largest value shown.
    #[test]
    fn bars_are_relative_to_the_largest() {
        assert_eq!(sparkline(&[0, 1, 50, 100].into(), 6), "   ▁▄█");
        assert_eq!(sparkline(&[9000, 0, 1, 2].into(), 2), "▄█");
        assert_eq!(sparkline(&[u64::MAX, u64::MAX - 1].into(), 2), "██");
        assert_eq!(sparkline(&Ring::new(), 3), "   ");
        assert_eq!(sparkline(&[1].into(), 0), "");
    }

    /// A machine whose process launches as many kernels in each second as the second has a number.
    fn past(seconds: u64) -> Past {
        let mut past = Past::default();
        let mut before: Option<Snapshot> = None;
        for second in 1..=seconds {
            let process = Process { id: 1, other_launches: second * (second + 1) / 2, ..Process::default() };
            let device = |index, share| Device { index, utilisation: Some(share), ..Device::default() };
            let now = Snapshot {
                time_ns: second * 1_000_000_000,
                processes: vec![process],
                devices: vec![device(0, 1.0), device(3, 0.5)],
                ..Snapshot::default()
            };
            past.push(&now, before.as_ref());
            before = Some(now);
        }
        past
    }

    /// Check that memory is bounded, and that the past of what has ended is forgotten.
    #[test]
    fn past_is_bounded() {
        let mut past = past(1000);
        let lengths = |past: &Past| (past.times.len(), past.processes[&1].launches.len(), past.busy[&3].len());
        assert_eq!(lengths(&past), (LENGTH, LENGTH, LENGTH));
        assert_eq!(past.span_ns(), (LENGTH as u64 - 1) * 1_000_000_000);
        assert_eq!(past.processes[&1].launches.back(), Some(&1000));
        past.push(&Snapshot::default(), None);
        assert!(past.processes.is_empty() && past.busy.is_empty());
    }

    /// Check that all values are in a graph of any width, and that each stays in its bar when the graph moves.
    #[test]
    fn graphs_cover_all_values() {
        let (young, old) = (past(3), past(1000));
        let bars = |past: &Past, width, bar| past.bars(&past.processes[&1].launches, width, bar);
        assert_eq!(bars(&young, 5, Bar::Largest)[..3], [0, 0, 0][..]);
        assert_eq!(bars(&young, 5, Bar::Largest)[3..], [2, 3]);
        // Numbers 700 to 999, in bars of ten: the last bar has the values of seconds 991 to 1000.
        assert_eq!(bars(&old, 30, Bar::Largest).last(), Some(&1000));
        assert_eq!(bars(&old, 30, Bar::Mean).last(), Some(&996));
        assert_eq!(bars(&old, 30, Bar::Largest)[0], 710);
        let moved = past(1001);
        assert_eq!(bars(&moved, 30, Bar::Largest)[28..], [1000, 1001]);
        assert!(bars(&old, 0, Bar::Mean).is_empty());
    }

    /// Check that several GPUs are shown by their mean, and unknown ones not at all.
    #[test]
    fn gpus_are_averaged() {
        let past = past(2);
        assert_eq!(past.mean_busy(&[3]), Some([500, 500].into()));
        assert_eq!(past.mean_busy(&[0, 3, 7]), Some([750, 750].into()));
        assert_eq!(past.mean_busy(&[7]), None);
    }
}
