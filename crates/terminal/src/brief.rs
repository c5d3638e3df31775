//! The summary in at most 60 lines, for logs, pull requests and programs: what is missing, what the recording cost, then where to
//! look next.

use analysis::{
    findings::{Evidence, Gain},
    summary::{Cost, Summary},
};
use text::units::{count, counted, percent, time};

use crate::document::{Document, Form};

/// The most findings.
const FINDINGS: usize = 4;
/// The most sentences of the ledger, and the most notes.
const LOSSES: usize = 6;
const NOTES: usize = 3;
/// The most GPUs.
const DEVICES: usize = 4;
/// The most rows of a table of GPU time, and of CPU time.
const ROWS: usize = 5;
const FUNCTIONS: usize = 3;

/// Returns a summary in at most 60 lines, which do not depend on the terminal.
pub fn brief(s: &Summary, form: Form) -> String {
    let mut document = Document::new(form);
    document.title(&if s.command.is_empty() { "running processes".to_owned() } else { s.command.join(" ") });
    let mut parts = vec![format!("{} recorded", time(s.wall_ns)), counted(s.processes, "process", "processes")];
    parts.extend(s.cut_off.then(|| "cut off".to_owned()));
    parts.extend(s.status.and_then(text::ending));
    parts.extend(s.part_note.clone());
    document.line(&parts.join(", "));
    losses(&mut document, s);
    findings(&mut document, s);
    work(&mut document, s);
    document.finish()
}

fn losses(document: &mut Document, s: &Summary) {
    document.section("Losses and overhead");
    let rest = |all: usize, most: usize| (all > most).then(|| format!("{} more: report --by ledger", all - most));
    let notes = s.notes.iter().filter(|note| s.part_note.as_ref() != Some(*note));
    let ledger = s.ledger.iter().take(LOSSES - 1).cloned().chain(rest(s.ledger.len(), LOSSES - 1));
    let notes = notes.clone().take(NOTES - 1).cloned().chain(rest(notes.count(), NOTES - 1));
    let cost = s.cost.as_ref().and_then(Cost::sentence);
    for sentence in
        ledger.chain(s.no_gpu_work.map(|why| format!("no GPU work was recorded: {why}"))).chain(notes).chain(cost)
    {
        document.item(&sentence, &[]);
    }
}

fn findings(document: &mut Document, s: &Summary) {
    document.section("Where to look next");
    for finding in s.findings.iter().take(FINDINGS) {
        let place = finding.place.as_ref().map(|place| match &*place.file {
            "" => format!("at {}", place.frame),
            file => format!("at {} in {file}", place.frame),
        });
        let of = |gain: Gain| format!("gains at most {} of the recorded time", percent(gain.ns, s.wall_ns));
        let facts: Vec<String> = place.into_iter().chain(finding.gain.map(of)).collect();
        let evidence: Vec<String> = finding.evidence.iter().map(Evidence::text).collect();
        let below = [facts.join("; "), evidence.join(", "), format!("try: {}", finding.advice)];
        let below: Vec<String> = below.into_iter().filter(|line| !line.is_empty()).collect();
        document.item(&format!("{}: {}", finding.kind.name(), finding.title), &below);
    }
    if s.findings.is_empty() {
        document.item("no finding: no rule of docs/findings.md applies", &[]);
    }
}

fn work(document: &mut Document, s: &Summary) {
    let working: Vec<_> = s.devices.iter().filter(|device| device.streams > 0).collect();
    if !working.is_empty() {
        document.section("GPUs");
        let row = |device: &&analysis::summary::Device| {
            let cells = vec![percent(device.busy_ns, s.wall_ns), time(device.busy_ns), count(device.kernels)];
            (cells, format!("{} {}", device.label, device.name))
        };
        let rows: Vec<_> = working.iter().take(DEVICES).map(row).collect();
        document.table(&["busy", "time", "kernels", "GPU"], &rows);
    }
    if !s.top_kernels.is_empty() {
        document.section("Kernels");
        let kernel = |kernel: &analysis::summary::Kernel| {
            (vec![share(kernel.share), time(kernel.ns), count(kernel.count)], kernel.name.clone())
        };
        let rows: Vec<_> = s.top_kernels.iter().take(ROWS).map(kernel).collect();
        document.table(&["of GPU time", "time", "runs", "kernel"], &rows);
    }
    if !s.top_lines.is_empty() {
        document.section("Paths");
        let path = |path: &analysis::summary::Path| {
            (vec![share(path.share), time(path.ns), count(path.count)], path.path.join(" > "))
        };
        let rows: Vec<_> = s.top_lines.iter().take(ROWS).map(path).collect();
        document.table(&["of GPU time", "time", "runs", "path"], &rows);
    }
    if !s.top_functions.is_empty() {
        document.section("CPU functions");
        let function = |function: &analysis::summary::Function| {
            (vec![share(function.share), time(function.ns), count(function.samples)], function.name.clone())
        };
        let rows: Vec<_> = s.top_functions.iter().take(FUNCTIONS).map(function).collect();
        document.table(&["of CPU time", "time", "samples", "function"], &rows);
    }
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
