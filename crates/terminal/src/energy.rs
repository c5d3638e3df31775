//! Energy and counters of GPUs in the summary, and what limits kernels by the latter.

use analysis::summary::Summary;
use analysis::verdicts::VerdictSummary;
use model::{
    gpu_counters::Source,
    verdict::{MIN_DOMINANT, Verdict},
};
use text::{
    short::shortened,
    units::{count, counted, energy, percent, time},
};

use crate::page::{Page, TextStyle};

/// The number of rows of the table.
const ROWS: usize = 10;

impl Page {
    /// Writes the energy of each GPU, and the kernels that used the most.
    pub(crate) fn energy(&mut self, s: &Summary) {
        let Some(summary) = &s.energy else { return };
        self.heading_of("Energy", "of all", "energy", &format!("{:>7}  {:>7}", "runs", "power"));
        let whole = summary.gpus.iter().fold(0_u64, |sum, gpu| sum.saturating_add(gpu.total_uj));
        for row in summary.kernels.iter().take(ROWS) {
            let start = self.row_of(TextStyle::Green, (row.energy_uj, whole), row.share, &energy(row.energy_uj));
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
            let line = self.ink(TextStyle::Dim, &text);
            self.line(&line);
        }
        for sentence in &summary.meaning {
            let line = self.ink(TextStyle::Dim, sentence);
            self.line(&line);
        }
    }

    /// Writes the means and maxima of the performance monitors.
    pub(crate) fn counters(&mut self, s: &Summary) {
        let Some(first) = s.counters.first() else { return };
        let title = self.ink(TextStyle::Bold, "Counters");
        let source = match first.source {
            Source::Pm => "PM sampling (CUPTI)",
            Source::Gpm => "GPM (NVML)",
        };
        let columns = format!("{:>9}  {:>9}  {source}, every {}", "mean", "max", time(first.interval_ns));
        let line = format!("{title}{}", self.ink(TextStyle::Dim, &columns));
        self.text.push('\n');
        self.line(&line);
        for sum in &s.counters {
            let (mean, max, unit) = (sum.mean, sum.max, sum.unit.text());
            self.line(&format!("{:>17.1}  {:>9.1}  {unit:<5}  GPU {} {}", mean, max, sum.gpu, sum.metric));
        }
    }

    /// Writes what limits each kernel.
    pub(crate) fn verdicts(&mut self, s: &Summary) {
        let Some(VerdictSummary { kernels, samples }) = &s.kernels_by_counters else { return };
        let columns = format!(
            "{:<13}  {:>5} {:>8} {:>6} {:>7} {:>8}",
            "verdict", "SM %", "tensor %", "DRAM %", "issue %", "samples"
        );
        self.heading("Kernels by counters", "of GPU", &columns);
        for row in kernels.iter().take(ROWS) {
            let start = self.row(TextStyle::Blue, row.ns, row.share, s.gpu_time_ns);
            let percent = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
            let name = shortened(&row.kernel, self.rest(58));
            self.line(&format!(
                "{start}  {:<13}  {:>5} {:>8} {:>6} {:>7} {:>8}  {name}",
                row.verdict.text(),
                percent(row.sm_active),
                percent(row.tensor),
                percent(row.dram),
                percent(row.issued),
                count(row.shared_samples.unwrap_or(row.samples)),
            ));
        }
        let late = match samples.late_ns {
            0 => String::new(),
            ns => format!("; {} of operations was reported too late to count", time(ns)),
        };
        let text = format!(
            "{}: {} of one kernel alone, {} of one kernel for at least {MIN_DOMINANT} % of the busy time, {} of several \
             operations, {} of a part of a kernel, {} idle{late}",
            counted(samples.samples, "sample", "samples"),
            count(samples.of_kernels),
            count(samples.mostly),
            count(samples.shared),
            count(samples.partial),
            count(samples.idle),
        );
        let line = self.ink(TextStyle::Dim, &text);
        self.line(&line);
        let shown = kernels.iter().take(ROWS);
        let others = shown
            .filter_map(|row| row.others_share)
            .fold(None, |most: Option<f64>, share| Some(most.map_or(share, |most| most.max(share))));
        if let Some(others) = others {
            let text = format!(
                "kernels without samples of their own are judged by those that they had nearly to themselves: others had up \
                 to {:.0} % of the busy time, and the values may differ by as much",
                (100.0 * others).ceil()
            );
            let line = self.ink(TextStyle::Dim, &text);
            self.line(&line);
        }
        if kernels.iter().all(|row| row.verdict == Verdict::NotMeasured) && samples.shared + samples.mostly > 0 {
            let text = "no kernel can be judged: kernels that are shorter than a sample alternate; repeat the kernel in \
                        question in a loop of some milliseconds, or use --stalls";
            let line = self.ink(TextStyle::Yellow, text);
            self.line(&line);
        }
    }
}
