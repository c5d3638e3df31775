//! The steps of a recording, slowest first.

use crate::steps::warm_up_of;
use model::profile::Profile;

use super::rows::{Cell, Rows};

/// What only some recordings have.
const OPTIONAL: [&str; 5] = ["launching_ns", "waiting_ns", "communication_ns", "cpu_ns", "memory"];

/// Returns one row for each step. Those of the warm-up, and the last one of a loop, which ends with its GPU work, say so.
pub fn steps(profile: &Profile) -> Rows {
    let start = profile.recording().start.as_ref().map_or(0, |start| start.time);
    let mut rows: Vec<(u64, Vec<Cell>)> = Vec::new();
    for series in profile.steps.iter().flat_map(|steps| &steps.series) {
        let warm_up = warm_up_of(series);
        let pid = profile.processes.get(&series.process).map_or(0, |info| info.pid);
        for (index, step) in series.steps.iter().enumerate() {
            let note = match step {
                _ if index < warm_up => "warm-up",
                step if !step.is_followed => "last",
                _ => "",
            };
            let numbers = [
                Cell::Count(step.number),
                Cell::Ns(step.ns()),
                Cell::Ns(step.busy_ns),
                Cell::Ns(step.idle_ns()),
                Cell::Ns(step.launching_ns),
                Cell::Ns(step.waiting_ns),
                Cell::Ns(step.work.kernel_ns),
                Cell::Ns(step.work.communication_ns),
                Cell::Ns(step.work.copy_ns),
                Cell::Bytes(step.work.copy_bytes),
                Cell::Ns(step.cpu_ns),
                Cell::Bytes(step.memory_bytes),
                Cell::Count(step.work.launches),
                Cell::Count(step.work.kernels),
                Cell::Ns(step.start.saturating_sub(start)),
            ];
            let texts = [note, &pid.to_string(), &series.tid.to_string(), &series.place];
            rows.push((step.ns(), numbers.into_iter().chain(texts.map(|text| Cell::Text(text.to_owned()))).collect()));
        }
    }
    rows.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let columns = [
        "step",
        "ns",
        "busy_ns",
        "idle_ns",
        "launching_ns",
        "waiting_ns",
        "kernel_ns",
        "communication_ns",
        "copy_ns",
        "copied",
        "cpu_ns",
        "memory",
        "launches",
        "kernels",
        "start_ns",
        "note",
        "pid",
        "tid",
        "place",
    ];
    let is_zero = |cell: &Cell| matches!(cell, Cell::Ns(0) | Cell::Bytes(0));
    let is_shown = |at: usize| !OPTIONAL.contains(&columns[at]) || rows.iter().any(|(_, row)| !is_zero(&row[at]));
    let shown: Vec<usize> = (0..columns.len()).filter(|at| is_shown(*at)).collect();
    let row = |(_, row): &(u64, Vec<Cell>)| shown.iter().map(|at| row[*at].clone()).collect();
    Rows { columns: shown.iter().map(|at| columns[*at]).collect(), rows: rows.iter().map(row).collect() }
}
