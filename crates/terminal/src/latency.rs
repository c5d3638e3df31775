//! Durations as a row of bars for each function, on one logarithmic axis.
//!
//! ```text
//!                       ╷1 µs        ╷10 µs       ╷100 µs
//!   cudaLaunchKernel        ▁█▅▂▁                ▁
//! ```

use std::fmt::Write as _;

use model::histogram::{BUCKETS, bucket};
use text::units;

/// Maximum number of columns of bars.
const MOST: usize = 64;

/// Draws the axis, and a row of bars for each histogram, given as (from, count) pairs. The axis begins and ends at a
/// power of ten.
pub(super) fn chart(histograms: &[&[(u64, u64)]], width: usize) -> (String, Vec<String>) {
    let used = || histograms.iter().flat_map(|h| h.iter().map(|(from, _)| bucket(*from)));
    let (Some(lowest), Some(highest)) = (used().min(), used().max()) else { return (String::new(), Vec::new()) };
    let decades: Vec<(usize, String)> =
        (2..12).map(|power| 10_u64.pow(power)).map(|ns| (bucket(ns), tick(ns))).collect();
    let first = decades.iter().rev().find(|(at, _)| *at <= lowest).map_or(0, |(at, _)| *at);
    let last = decades.iter().find(|(at, _)| *at > highest).map_or(BUCKETS - 1, |(at, _)| *at);
    let per_column = (last - first + 1).div_ceil(width.saturating_sub(8).clamp(8, MOST));
    let column = |bucket: usize| (bucket - first) / per_column;
    let rows = histograms.iter().map(|histogram| {
        let mut counts = vec![0_u64; column(last) + 1];
        for (from, count) in *histogram {
            let sum = &mut counts[column(bucket(*from))];
            *sum = sum.saturating_add(*count);
        }
        bars(&counts)
    });
    let rows = rows.collect();
    let mut axis = String::new();
    let mut length = 0;
    for (at, label) in decades.iter().filter(|(at, _)| (first..=last).contains(at)) {
        if column(*at) >= length {
            let _ = write!(axis, "{:blanks$}╷{label} ", "", blanks = column(*at) - length);
            length = axis.chars().count();
        }
    }
    (axis, rows)
}

/// Formats a power of ten without trailing zeros after the decimal point.
fn tick(ns: u64) -> String {
    units::time(ns).replace(".00", "").replace(".0", "")
}

fn bars(counts: &[u64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let bar = |count: &u64| match *count {
        0 => ' ',
        count => LEVELS[((count as f64 / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    counts.iter().map(bar).collect()
}
