//! The tables of a block. Columns whose values are not counted are omitted.

use std::{cmp::Reverse, fmt::Write as _};

use text::{
    names::{clean, printable},
    short::short,
    units::{bytes, count, counted, time},
};

use super::table::{BlockStyle, Table, cut};
use crate::snapshot::{
    Copies, Kinds, Process, Snapshot, Suspect, nanoseconds,
    rates::{Pace, errors, live_bytes, peak_bytes},
    site::site,
};

/// The longest kernel name if nothing limits a line: template names can have any length.
const MAX_NAME_LENGTH: usize = 1000;

/// Returns all tables in order; some may be empty.
pub(super) fn all(now: &Snapshot, paces: &[Pace<'_>], look: BlockStyle) -> [Table; 7] {
    [
        processes(paces, now.kinds, look),
        memory(paces, look),
        kernels(paces, look),
        copies(paces, look),
        suspects(paces, look),
        failures(paces),
        notes(now),
    ]
}

/// A cell: whether its column is shown, the column's width, and the text.
type Cell<'a> = (bool, usize, &'a str);

/// Right-aligned cells, followed by a name of any length.
fn row(cells: &[Cell<'_>], name: &str) -> String {
    let shown = cells.iter().filter(|(shown, ..)| *shown);
    let cells: String = shown.map(|(_, width, text)| format!("{text:>width$}  ")).collect();
    cells + name
}

fn processes(paces: &[Pace<'_>], kinds: Kinds, look: BlockStyle) -> Table {
    let wide = look.wide();
    let row = |[pid, live, peak, launches, to_device, to_host, errors]: [&str; 7], name: &str| {
        let cells = [
            (true, 13, pid),
            (kinds.memory, 9, live),
            (kinds.memory && wide, 9, peak),
            (kinds.launches, 10, launches),
            (kinds.copies, 11, to_device),
            (kinds.copies, 11, to_host),
            (kinds.errors && wide, 7, errors),
        ];
        row(&cells, name)
    };
    let mut sorted: Vec<&Pace<'_>> = paces.iter().collect();
    sorted.sort_by_key(|pace| (Reverse(live_bytes(pace.process)), pace.process.pid));
    let rows = sorted.into_iter().map(|pace| {
        let process = pace.process;
        let cells = [
            &*process.pid.to_string(),
            &bytes(live_bytes(process)),
            &bytes(peak_bytes(process)),
            &rate(pace.launches()),
            &byte_rate(pace.to_device()),
            &byte_rate(pace.to_host()),
            &count(errors(process)),
        ];
        row(cells, &identity(process))
    });
    let columns = row(["pid", "live", "peak", "launches/s", "HtoD/s", "DtoH/s", "errors"], "name");
    Table { title: "Processes", columns, rows: rows.collect() }
}

/// `python3 (alice) in 3f9a2c77d1e0`.
fn identity(process: &Process) -> String {
    let mut name = printable(&process.comm).into_owned();
    if !process.user.is_empty() {
        let _ = write!(name, " ({})", printable(&process.user));
    }
    if !process.container.is_empty() {
        let _ = write!(name, " in {}", printable(&process.container));
    }
    if process.ended {
        name.push_str(", ended");
    }
    name
}

fn memory(paces: &[Pace<'_>], look: BlockStyle) -> Table {
    let wide = look.wide();
    let row = |[pid, live, peak, allocations, failed, frees, failed_frees]: [&str; 7], space: &str| {
        let cells = [
            (true, 13, pid),
            (true, 9, live),
            (wide, 9, peak),
            (true, 11, allocations),
            (true, 7, failed),
            (true, 11, frees),
            (true, 7, failed_frees),
        ];
        row(&cells, space)
    };
    let mut rows = Vec::new();
    for pace in paces {
        for memory in &pace.process.memory {
            let cells = [
                &*pace.process.pid.to_string(),
                &bytes(memory.live_bytes),
                &bytes(memory.peak_bytes),
                &count(memory.allocations),
                &count(memory.failed),
                &count(memory.frees),
                &count(memory.failed_frees),
            ];
            let mut space = memory.space.name().to_owned();
            if memory.untracked > 0 {
                let _ = write!(space, ", {} not tracked", counted(memory.untracked, "allocation", "allocations"));
            }
            rows.push((Reverse(memory.live_bytes), row(cells, &space)));
        }
        if let Some((all, unseen)) = pace.unseen_memory() {
            let cells = [&*pace.process.pid.to_string(), &bytes(unseen), "-", "-", "-", "-", "-"];
            rows.push((Reverse(unseen), row(cells, &unseen_text(all))));
        }
    }
    rows.sort();
    let columns = row(["pid", "live", "peak", "allocations", "failed", "frees", "failed"], "space");
    Table { title: "Memory", columns, rows: rows.into_iter().map(|(_, row)| row).collect() }
}

/// Explains memory whose allocation was not seen, as a part of what the driver counts.
pub(crate) fn unseen_text(all: u64) -> String {
    format!("unseen: allocated before, or the driver's own, of {} that the driver counts", bytes(all))
}

fn kernels(paces: &[Pace<'_>], look: BlockStyle) -> Table {
    let row = |[pid, rate, launches, grid, block]: [&str; 5], name: &str| {
        let wide = look.wide();
        row(&[(true, 13, pid), (true, 10, rate), (true, 12, launches), (wide, 14, grid), (wide, 9, block)], name)
    };
    let columns = row(["pid", "launches/s", "launches", "grid", "block"], "kernel");
    let room = look.width.map(|width| width.saturating_sub(columns.chars().count() - "kernel".len()));
    let mut rows = Vec::new();
    for pace in paces {
        for (kernel, per_second) in pace.kernels() {
            let name = clean(&kernel.name);
            let name = room.map_or_else(|| cut(&name, Some(MAX_NAME_LENGTH)), |room| short(&name, room));
            let cells = [
                &*pace.process.pid.to_string(),
                &rate(per_second),
                &count(kernel.launches),
                &shape(kernel.grid),
                &shape(kernel.block),
            ];
            rows.push((per_second, kernel.launches, row(cells, &name)));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)));
    Table { title: "Kernels", columns, rows: rows.into_iter().map(|(_, _, row)| row).collect() }
}

fn copies(paces: &[Pace<'_>], look: BlockStyle) -> Table {
    let row = |[pid, rate, per_second, moved, number, speed]: [&str; 6], name: &str| {
        let cells = [
            (true, 13, pid),
            (true, 11, rate),
            (look.wide(), 10, per_second),
            (true, 10, moved),
            (true, 10, number),
            (true, 13, speed),
        ];
        row(&cells, name)
    };
    let columns = row(["pid", "rate", "copies/s", "bytes", "copies", "while in call"], "direction");
    let mut rows = Vec::new();
    for pace in paces {
        for copies in &pace.process.copies {
            let (bytes_per_second, per_second) = pace.copies(copies);
            let mode = if copies.asynchronous { ", async" } else { "" };
            let cells = [
                &*pace.process.pid.to_string(),
                &byte_rate(bytes_per_second),
                &rate(per_second),
                &bytes(copies.moved.bytes),
                &count(copies.moved.count),
                &speed(copies),
            ];
            rows.push((copies.moved.bytes, row(cells, &format!("{}{mode}", copies.direction))));
        }
    }
    rows.sort_by_key(|(moved, _)| Reverse(*moved));
    Table { title: "Copies", columns, rows: rows.into_iter().map(|(_, row)| row).collect() }
}

/// Returns bytes per second spent in the calls, which includes waiting for earlier work of the stream. Calls that return
/// before the copy is done are not counted.
pub(crate) fn speed(copies: &Copies) -> String {
    match copies.moved {
        moved if copies.asynchronous || moved.ns == 0 => "-".to_owned(),
        moved => byte_rate(moved.bytes as f64 * 1e9 / moved.ns as f64),
    }
}

fn suspects(paces: &[Pace<'_>], look: BlockStyle) -> Table {
    let row = |[pid, live, growth, number, oldest]: [&str; 5], name: &str| {
        let wide = look.wide();
        row(&[(true, 13, pid), (true, 9, live), (true, 10, growth), (wide, 8, number), (true, 10, oldest)], name)
    };
    let mut rows = Vec::new();
    for pace in paces.iter().filter(|pace| !pace.process.ended) {
        for (suspect, mut name) in pace.process.suspects.iter().zip(names(&pace.process.suspects)) {
            let sign = if suspect.growth < 0 { "-" } else { "+" };
            let growth = match suspect.growth {
                0 => "-".to_owned(),
                growth => format!("{sign}{}", bytes(growth.unsigned_abs())),
            };
            if !suspect.remark.is_empty() {
                let _ = write!(name, " ({})", suspect.remark);
            }
            let cells = [
                &*pace.process.pid.to_string(),
                &bytes(suspect.bytes),
                &growth,
                &count(suspect.count),
                &time(nanoseconds(suspect.oldest)),
            ];
            let text = row(cells, &name);
            rows.push((!suspect.remark.is_empty(), Reverse(suspect.growth.max(0)), Reverse(suspect.bytes), text));
        }
    }
    rows.sort();
    let columns = row(["pid", "live", "growth", "count", "oldest"], "allocated by");
    Table { title: "Suspects", columns, rows: rows.into_iter().map(|(_, _, _, row)| row).collect() }
}

/// Returns the line and function of each suspect. Those with the same line differ in a caller, which is added.
fn names(suspects: &[Suspect]) -> Vec<String> {
    let name = |suspect: &Suspect| {
        let unknown = if suspect.resolving { "[resolving]" } else { "[unknown line]" };
        format!("{}, {}", site(&suspect.stack).unwrap_or(unknown.into()), printable(&suspect.function))
    };
    let mut names: Vec<String> = suspects.iter().map(name).collect();
    let frame = |place: usize, depth: usize| suspects[place].stack.iter().rev().nth(depth).map(|frame| &*frame.name);
    for depth in 0..suspects.iter().map(|suspect| suspect.stack.len()).max().unwrap_or(0) {
        let is_ambiguous = |place: usize| {
            (0..names.len()).any(|other| names[other] == names[place] && frame(other, depth) != frame(place, depth))
        };
        let ambiguous: Vec<usize> = (0..names.len()).filter(|place| is_ambiguous(*place)).collect();
        for place in ambiguous {
            let _ = write!(names[place], ", from {}", frame(place, depth).map_or("outside".into(), printable));
        }
    }
    names
}

fn failures(paces: &[Pace<'_>]) -> Table {
    let row =
        |[pid, calls, new]: [&str; 3], name: &str| row(&[(true, 13, pid), (true, 8, calls), (true, 8, new)], name);
    let mut rows = Vec::new();
    for pace in paces {
        for failed in &pace.process.errors {
            let of = |process: &Process| {
                let same =
                    process.errors.iter().find(|known| known.function == failed.function && known.code == failed.code);
                same.map_or(0, |known| known.count)
            };
            let fresh = pace.gained(of);
            let name = format!("{} from {}", printable(&failed.code), printable(&failed.function));
            let text = row([&pace.process.pid.to_string(), &count(failed.count), &count(fresh)], &name);
            rows.push((Reverse(fresh), Reverse(failed.count), text));
        }
    }
    rows.sort();
    let columns = row(["pid", "calls", "new"], "result");
    Table { title: "Errors", columns, rows: rows.into_iter().map(|(_, _, row)| row).collect() }
}

fn notes(now: &Snapshot) -> Table {
    let lost = now.health.lost.iter().filter(|(_, calls)| *calls > 0);
    let lost =
        lost.map(|(map, calls)| format!("{} not counted: the {map} map is full", counted(*calls, "call", "calls")));
    let notes = now.health.notes.iter().map(|note| printable(note).into_owned());
    Table { title: "Notes", columns: String::new(), rows: lost.chain(notes).collect() }
}

/// Formats a rate per second; small values keep a decimal.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        none if none <= 0.0 => "-".to_owned(),
        small if small < 9.95 => format!("{small:.1}"),
        large => count(large.round() as u64),
    }
}

/// Formats bytes per second.
pub(crate) fn byte_rate(per_second: f64) -> String {
    if per_second < 0.5 { "-".to_owned() } else { bytes(per_second as u64) + "/s" }
}

/// Formats sizes such as `128x4`, without trailing sizes of 1.
pub(crate) fn shape(sizes: [u32; 3]) -> String {
    match sizes {
        [0, 0, 0] => "-".to_owned(),
        [x, 0 | 1, 0 | 1] => x.to_string(),
        [x, y, 0 | 1] => format!("{x}x{y}"),
        [x, y, z] => format!("{x}x{y}x{z}"),
    }
}
