//! What limits kernels in the summary, by hardware counters of single launches.

use analysis::{limits::Limit, summary::Summary};
use text::{
    short::shortened,
    units::{count, counted, percent, time},
};

use crate::page::{Page, TextStyle};

/// The number of rows of the table.
const ROWS: usize = 10;

impl Page {
    /// Writes what limits the kernels with the most time.
    pub(crate) fn limits(&mut self, s: &Summary) {
        let Some(limits) = &s.limits else { return };
        let columns =
            format!("{:<17}  {:>6} {:>6} {:>8} {:>8}", "limited by", "peak %", "DRAM %", "tensor %", "measured");
        self.heading("Kernels by limit", "of GPU", &columns);
        for row in limits.kernels.iter().take(ROWS) {
            let start = self.row(TextStyle::Blue, row.ns, row.share, s.gpu_time_ns);
            let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
            let name = shortened(&format!("{} < {}", row.kernel, row.line.frame), self.rest(53));
            self.line(&format!(
                "{start}  {:<17}  {:>6} {:>6} {:>8} {:>8}  {name}",
                row.limit.text(),
                number(row.of_peak),
                number(row.dram),
                number(row.tensor),
                count(row.measured),
            ));
        }
        if let Some(first) = limits.kernels.first().filter(|row| row.limit != Limit::NotMeasured) {
            let line = self.ink(TextStyle::Dim, &format!("the first: {}", first.meaning));
            self.line(&line);
        }
        let mut text = format!(
            "{} measured in {}; {} of the kernels' time is judged",
            counted(limits.measured, "launch", "launches"),
            time(limits.took_ns),
            percent(limits.judged_ns, limits.kernel_ns),
        );
        for (number, what) in [
            (limits.disturbed, "did not run alone and are left out"),
            (limits.lost, "have no values"),
            (limits.communication, "were of communication kernels, which are not measured"),
        ] {
            if number > 0 {
                text += &format!("; {} {what}", counted(number, "launch", "launches"));
            }
        }
        let line = self.ink(TextStyle::Dim, &text);
        self.line(&line);
    }
}
