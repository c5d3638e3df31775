//! The metrics that are sampled, as CUPTI names them.

use std::ffi::CStr;

/// What CUPTI's value is, and how it becomes hundredths of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Percent.
    Percent,
    /// Bytes per second, which become MiB per second.
    Bytes,
}

impl Kind {
    /// Returns hundredths of the unit. A value that is no number counts as 0.
    pub fn hundredths(self, value: f64) -> u32 {
        let unit = match self {
            Self::Percent => 1.0,
            Self::Bytes => 1_048_576.0,
        };
        (value / unit * 100.0).round() as u32
    }
}

/// CUPTI's metrics. The place of each is its number in records. Those that a GPU does not have, or that would need a second
/// pass beside the ones before, are left out there.
pub const METRICS: [(&CStr, Kind); 12] = [
    (c"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", Kind::Percent),
    (c"sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed", Kind::Percent),
    (c"sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed", Kind::Percent),
    (c"dram__read_throughput.avg.pct_of_peak_sustained_elapsed", Kind::Percent),
    (c"dram__write_throughput.avg.pct_of_peak_sustained_elapsed", Kind::Percent),
    (c"dram__bytes.sum.per_second", Kind::Bytes),
    (c"sm__warps_active_realtime.avg.pct_of_peak_sustained_active", Kind::Percent),
    (c"gr__cycles_active.avg.pct_of_peak_sustained_elapsed", Kind::Percent),
    (c"pcie__read_bytes.sum.per_second", Kind::Bytes),
    (c"pcie__write_bytes.sum.per_second", Kind::Bytes),
    (c"nvlrx__bytes.sum.per_second", Kind::Bytes),
    (c"nvltx__bytes.sum.per_second", Kind::Bytes),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the units, and that odd values become numbers.
    #[test]
    fn values_become_hundredths() {
        assert_eq!([97.444, 0.0, -1.0, f64::NAN].map(|value| Kind::Percent.hundredths(value)), [9744, 0, 0, 0]);
        assert_eq!(Kind::Bytes.hundredths(3.0 * 1_048_576.0), 300);
        assert_eq!(Kind::Bytes.hundredths(f64::INFINITY), u32::MAX);
    }
}
