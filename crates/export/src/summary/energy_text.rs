//! Energy and counters of GPUs in the summary.

use text::units::{count, energy, percent, time};

use super::numbers::Summary;
use crate::terminal_text::{Ink, Page, shortened};

/// The number of rows of the table.
const ROWS: usize = 10;

impl Page {
    /// Writes the energy of each GPU, and the kernels that used the most.
    pub(super) fn energy(&mut self, s: &Summary) {
        let Some(summary) = &s.energy else { return };
        self.heading_of("Energy", "energy", &format!("{:>7}  {:>7}", "runs", "power"));
        let whole = summary.gpus.iter().fold(0_u64, |sum, gpu| sum.saturating_add(gpu.total_uj));
        for row in summary.kernels.iter().take(ROWS) {
            let start = self.row_of(Ink::Green, (row.energy_uj, whole), row.share, &energy(row.energy_uj));
            let runs = if row.count == 0 { String::new() } else { count(row.count) };
            let power = row.watts().map(|watts| format!("{watts:.0} W")).unwrap_or_default();
            let gpu = if summary.gpus.len() > 1 { format!("  GPU {}", row.gpu) } else { String::new() };
            let name = shortened(&row.name, self.rest(20 + gpu.len()));
            self.line(&format!("{start}  {runs:>7}  {power:>7}  {name}{gpu}"));
        }
        for gpu in &summary.gpus {
            let text = format!(
                "GPU {}: {} by NVML's counter, {:.0} W on average; kernels {}, idle {} ({})",
                gpu.label,
                energy(gpu.total_uj),
                gpu.watts().unwrap_or(0.0),
                energy(gpu.kernels_uj),
                energy(gpu.idle_uj),
                percent(gpu.idle_uj, gpu.total_uj),
            );
            let line = self.ink(Ink::Dim, &text);
            self.line(&line);
        }
        for sentence in &summary.meaning {
            let line = self.ink(Ink::Dim, sentence);
            self.line(&line);
        }
    }

    /// Writes the means and maxima of the performance monitors.
    pub(super) fn counters(&mut self, s: &Summary) {
        let Some(first) = s.counters.first() else { return };
        let title = self.ink(Ink::Bold, "Counters");
        let columns = format!("{:>9}  {:>9}  GPM (NVML), every {}", "mean", "max", time(first.interval_ns));
        let line = format!("{title}{}", self.ink(Ink::Dim, &columns));
        self.text.push('\n');
        self.line(&line);
        for sum in &s.counters {
            let (mean, max, unit) = (sum.mean, sum.max, sum.unit.text());
            self.line(&format!("{:>17.1}  {:>9.1}  {unit:<5}  GPU {} {}", mean, max, sum.gpu, sum.metric));
        }
    }
}
