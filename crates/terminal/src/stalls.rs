//! Stall reasons in the summary.

use analysis::summary::Summary;
use text::{
    short::shortened,
    units::{count, share},
};

use crate::page::{Page, TextStyle};

/// The number of lines of the table.
const LINES: usize = 10;

impl Page {
    /// Writes the lines of kernels with the most GPU time, and why their warps waited there.
    pub(crate) fn stalls(&mut self, s: &Summary) {
        let Some(stalls) = s.stalls.as_ref().filter(|stalls| !stalls.lines.is_empty()) else { return };
        self.heading("Stalls", "of GPU", &format!("{:>7}  {:<27}  line and kernel", "samples", "stall"));
        for line in stalls.lines.iter().take(LINES) {
            let gpu_share = share(line.stalled.ns, s.gpu_time_ns);
            let row = self.row(TextStyle::Magenta, line.stalled.ns, gpu_share, s.gpu_time_ns);
            let stall = format!("{} {:.0} %", line.stalled.stall, line.stalled.stall_share * 100.0);
            let place = if line.line.is_empty() { "[no line information]" } else { &line.line };
            let name = shortened(&format!("{place}  {}", line.kernel), self.rest(40));
            self.line(&format!("{row}  {:>7}  {stall:<27}  {name}", count(line.stalled.samples)));
        }
        let mut shown: Vec<(&str, &str)> = Vec::new();
        for line in stalls.lines.iter().take(LINES).filter(|line| !line.stalled.meaning.is_empty()) {
            if !shown.contains(&(line.stalled.stall.as_str(), line.stalled.meaning)) {
                shown.push((&line.stalled.stall, line.stalled.meaning));
            }
        }
        for (stall, meaning) in shown {
            let text = self.ink(TextStyle::Dim, &format!("{stall}: {meaning}"));
            self.line(&text);
        }
    }
}
