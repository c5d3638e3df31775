//! `.folded`: `process;frame;frame;[GPU_Kernel] name weight`, one line per distinct stack, in microseconds; for a
//! counted event, its hits or their weight; for GPU memory, bytes.
//!
//! The format of flamegraph.pl, inferno, speedscope and many others.

use std::io::{self, Write};

use analysis::{Flames, flame_tree::View};

/// Writes the stacks of a profile, sorted by line. Stacks with a weight of zero, or of less than a whole microsecond
/// after rounding, are omitted; the total of the rest is the true total, rounded once.
pub fn write(flames: &Flames<'_>, view: View, out: &mut dyn Write) -> io::Result<()> {
    let flame = flames.of(view);
    let amounts: Vec<u64> = flame.lines.iter().map(|line| line.weight.amount).collect();
    // Counted events and bytes are written without conversion.
    let weights = if view.event.is_some() || view.memory.is_some() { amounts } else { microseconds(&amounts) };
    let mut lines: Vec<String> = flame
        .lines
        .iter()
        .zip(weights)
        .filter(|(_, weight)| *weight > 0)
        .map(|(line, weight)| format!("{} {weight}\n", line.frames.join(";")))
        .collect();
    lines.sort_unstable();
    lines.iter().try_for_each(|line| out.write_all(line.as_bytes()))?;
    out.flush()
}

/// Converts nanoseconds to whole microseconds, such that the sum of the results is the rounded sum: all are rounded
/// down, and the missing units are given, one each, to those that lost most (largest remainder; among equals, the
/// first).
pub fn microseconds(nanoseconds: &[u64]) -> Vec<u64> {
    let total: u128 = nanoseconds.iter().map(|&ns| u128::from(ns)).sum();
    let mut rounded: Vec<u64> = nanoseconds.iter().map(|ns| ns / 1000).collect();
    let missing = (total + 500) / 1000 - rounded.iter().map(|&us| u128::from(us)).sum::<u128>();
    let mut order: Vec<usize> = (0..nanoseconds.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(nanoseconds[at] % 1000));
    for &at in order.iter().take(missing as usize) {
        rounded[at] += 1;
    }
    rounded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that many small weights keep their total, where rounding each would lose or double it.
    #[test]
    fn rounds_the_total_once() {
        assert_eq!(microseconds(&[400; 5]), [1, 1, 0, 0, 0]);
        assert_eq!(microseconds(&[600; 5]), [1, 1, 1, 0, 0]);
        assert_eq!(microseconds(&[1_999, 1, 2_500]), [2, 0, 3]);
        assert_eq!(microseconds(&[499]), [0]);
        assert_eq!(microseconds(&[]), [0; 0]);
        assert_eq!(microseconds(&[u64::MAX; 3]).len(), 3);
    }
}
