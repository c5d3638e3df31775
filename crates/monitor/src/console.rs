//! The console's view: tables like those of `top`, one block per interval. Names come last, so that long ones cost no
//! alignment.

use std::{cmp::Reverse, fmt::Write as _};

use export::{
    names::{clean, printable},
    short::short,
    units::{bytes, count, counted, time},
};

use crate::{
    clock::stamp,
    rates::{Pace, errors, live_bytes, peak_bytes},
    site::site,
    snapshot::{Device, Process, Snapshot},
};

/// Rows per table where there is no height to keep to.
const ROWS: usize = 10;
/// From here on there is room for the columns that matter less.
const WIDE: usize = 100;

/// How a block should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns; not less than 60 are used.
    pub width: usize,
    /// Lines, on a terminal.
    pub height: Option<usize>,
    /// With colours.
    pub colour: bool,
}

/// The state `now`, with rates since the snapshot `before`.
pub fn block(now: &Snapshot, before: Option<&Snapshot>, look: Look) -> String {
    let look = Look { width: look.width.max(60), ..look };
    let paces = Pace::of(now, before);
    let mut head = vec![title(now, look)];
    head.extend(now.devices.iter().map(|gpu| cut(&device(gpu), look.width)));
    let tables = [
        processes(&paces, look),
        kernels(&paces, look),
        copies(&paces),
        suspects(&paces, look),
        failures(&paces),
        losses(now),
    ];
    let tables: Vec<Table> = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();

    // As many rows per table as the height has room for; the first table may have twice as many.
    let height = |most: usize| {
        let lines = |(place, table): (usize, &Table)| 2 + table.shown(if place == 0 { 2 * most } else { most });
        head.len() + tables.iter().enumerate().map(lines).sum::<usize>()
    };
    let most =
        look.height.map_or(ROWS, |lines| (1..=ROWS.max(lines)).rev().find(|&most| height(most) < lines).unwrap_or(1));
    let mut text = String::new();
    for line in head {
        let _ = writeln!(text, "{line}");
    }
    for (place, table) in tables.iter().enumerate() {
        table.write(&mut text, if place == 0 { 2 * most } else { most }, look);
    }
    match look.height {
        // What still does not fit is left out from below.
        Some(lines) => {
            text.lines().take(lines.saturating_sub(1).max(1)).fold(String::new(), |text, line| text + line + "\n")
        }
        None => text + "\n",
    }
}

/// A block that takes the place of the one before on a terminal: no flicker, since nothing is cleared before it is
/// written over.
pub fn in_place(block: &str) -> String {
    let lines: String = block.lines().map(|line| format!("{line}\x1b[K\r\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}

struct Table {
    title: &'static str,
    columns: String,
    rows: Vec<String>,
}

impl Table {
    /// Lines that it takes with at most so many rows: the last one says how many there are besides.
    fn shown(&self, most: usize) -> usize {
        self.rows.len().min(most.max(1))
    }

    fn write(&self, text: &mut String, most: usize, look: Look) {
        let (bold, dim, plain) = if look.colour { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        let columns = cut(self.columns.get(self.title.len()..).unwrap_or_default(), look.width - self.title.len());
        let _ = writeln!(text, "\n{bold}{}{plain}{dim}{columns}{plain}", self.title);
        let most = most.max(1);
        // Where there is room for one or two, a row says more than how many there are besides.
        let shown = if self.rows.len() > most && most > 2 { most - 1 } else { self.rows.len().min(most) };
        for row in &self.rows[..shown] {
            let _ = writeln!(text, "{}", cut(row.trim_end(), look.width));
        }
        if shown < self.rows.len() && shown < most {
            let _ = writeln!(text, "{dim}… and {} more{plain}", count((self.rows.len() - shown) as u64));
        }
    }
}

fn title(now: &Snapshot, look: Look) -> String {
    let (bold, plain) = if look.colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let living = now.processes.iter().filter(|process| !process.ended).count() as u64;
    let health = &now.health;
    let text = format!(
        "{}, {} of {} watched",
        counted(living, "GPU process", "GPU processes"),
        counted(health.functions, "function", "functions"),
        counted(health.libraries, "library", "libraries")
    );
    format!("{bold}{}{plain}  {}", stamp(now.unix_ns), cut(&text, look.width.saturating_sub(25)))
}

/// `GPU 0 NVIDIA H200   93 % busy   12.0 GiB of 141 GiB   412 W of 700 W   61 °C`.
fn device(device: &Device) -> String {
    let mut parts = vec![format!("GPU {} {}", device.index, printable(&device.name))];
    if device.lost {
        parts.push("lost: it does not answer any more".to_owned());
    }
    parts.extend(device.utilisation.map(|share| format!("{:.0} % busy", share * 100.0)));
    parts.extend(device.memory_used.map(|used| match device.memory_total {
        Some(total) => format!("{} of {}", bytes(used), bytes(total)),
        None => bytes(used),
    }));
    parts.extend(device.power.map(|watts| match device.power_limit {
        Some(limit) => format!("{watts:.0} W of {limit:.0} W"),
        None => format!("{watts:.0} W"),
    }));
    parts.extend(device.temperature.map(|degrees| format!("{degrees:.0} °C")));
    let rate = |name, rate: Option<u64>| rate.map(|rate| format!("PCIe {name} {}/s", bytes(rate)));
    parts.extend(rate("in", device.pcie_received));
    parts.extend(rate("out", device.pcie_sent));
    parts.extend(
        device.ecc_uncorrected.filter(|errors| *errors > 0).map(|errors| format!("{} uncorrected ECC", count(errors))),
    );
    parts.extend(device.xids.iter().map(|(xid, times)| format!("Xid {xid} x{times}")));
    parts.join("   ")
}

fn processes(paces: &[Pace<'_>], look: Look) -> Table {
    let row = |[pid, live, peak, launches, to_device, to_host, errors, name]: [&str; 8]| {
        let mut row = format!("{pid:>13}  {live:>9}");
        if look.width >= WIDE {
            let _ = write!(row, "  {peak:>9}");
        }
        let _ = write!(row, "  {launches:>10}  {to_device:>11}  {to_host:>11}");
        if look.width >= WIDE {
            let _ = write!(row, "  {errors:>7}");
        }
        row + "  " + name
    };
    let mut sorted: Vec<&Pace<'_>> = paces.iter().collect();
    sorted.sort_by_key(|pace| (Reverse(live_bytes(pace.process)), pace.process.pid));
    let rows = sorted.into_iter().map(|pace| {
        let process = pace.process;
        row([
            &process.pid.to_string(),
            &bytes(live_bytes(process)),
            &bytes(peak_bytes(process)),
            &rate(pace.launches()),
            &byte_rate(pace.to_device()),
            &byte_rate(pace.to_host()),
            &count(errors(process)),
            &who(process),
        ])
    });
    let columns = row(["pid", "live", "peak", "launches/s", "HtoD/s", "DtoH/s", "errors", "name"]);
    Table { title: "Processes", columns, rows: rows.collect() }
}

/// `python3 (alice) in 3f9a2c77d1e0`.
fn who(process: &Process) -> String {
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

fn kernels(paces: &[Pace<'_>], look: Look) -> Table {
    let row = |[pid, rate, launches, grid, block, name]: [&str; 6]| {
        let shapes = if look.width >= WIDE { format!("  {grid:>14}  {block:>9}") } else { String::new() };
        format!("{pid:>13}  {rate:>10}  {launches:>12}{shapes}  {name}")
    };
    let columns = row(["pid", "launches/s", "launches", "grid", "block", "kernel"]);
    let room = look.width.saturating_sub(columns.chars().count() - "kernel".len());
    let mut rows = Vec::new();
    for pace in paces {
        for (kernel, per_second) in pace.kernels() {
            let text = row([
                &pace.process.pid.to_string(),
                &rate(per_second),
                &count(kernel.launches),
                &shape(kernel.grid),
                &shape(kernel.block),
                &short(&clean(&kernel.name), room),
            ]);
            rows.push((per_second, kernel.launches, text));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)));
    Table { title: "Kernels", columns, rows: rows.into_iter().map(|(_, _, row)| row).collect() }
}

fn copies(paces: &[Pace<'_>]) -> Table {
    let columns =
        format!("{:>13}  {:>11}  {:>10}  {:>10}  {:>12}  direction", "pid", "rate", "bytes", "copies", "while copying");
    let mut rows = Vec::new();
    for pace in paces {
        for copies in &pace.process.copies {
            let of = |process: &Process| {
                let same = process
                    .copies
                    .iter()
                    .filter(|known| known.direction == copies.direction && known.asynchronous == copies.asynchronous);
                same.map(|known| known.moved.bytes).sum()
            };
            // A call that returns early says nothing of how fast its copy was.
            let speed = match copies.moved {
                moved if copies.asynchronous || moved.ns == 0 => "-".to_owned(),
                moved => byte_rate(moved.bytes as f64 * 1e9 / moved.ns as f64),
            };
            let mode = if copies.asynchronous { ", async" } else { "" };
            let row = format!(
                "{:>13}  {:>11}  {:>10}  {:>10}  {speed:>13}  {}{mode}",
                pace.process.pid,
                byte_rate(pace.per_second(of)),
                bytes(copies.moved.bytes),
                count(copies.moved.count),
                copies.direction
            );
            rows.push((copies.moved.bytes, row));
        }
    }
    rows.sort_by_key(|(moved, _)| Reverse(*moved));
    Table { title: "Copies", columns, rows: rows.into_iter().map(|(_, row)| row).collect() }
}

fn suspects(paces: &[Pace<'_>], look: Look) -> Table {
    let row = |[pid, live, growth, number, oldest, name]: [&str; 6]| {
        let number = if look.width >= WIDE { format!("  {number:>8}") } else { String::new() };
        format!("{pid:>13}  {live:>9}  {growth:>10}{number}  {oldest:>10}  {name}")
    };
    let mut rows = Vec::new();
    for pace in paces.iter().filter(|pace| !pace.process.ended) {
        for suspect in &pace.process.suspects {
            let sign = if suspect.growth < 0 { "-" } else { "+" };
            let growth = if suspect.growth == 0 { String::new() } else { bytes(suspect.growth.unsigned_abs()) };
            let mut name = site(&suspect.stack).unwrap_or("an unknown line".into()).into_owned();
            let _ = write!(name, ", {}", printable(&suspect.function));
            if !suspect.remark.is_empty() {
                let _ = write!(name, " ({})", suspect.remark);
            }
            let text = row([
                &pace.process.pid.to_string(),
                &bytes(suspect.bytes),
                &format!("{}{growth}", if growth.is_empty() { "-" } else { sign }),
                &count(suspect.count),
                &time(u64::try_from(suspect.oldest.as_nanos()).unwrap_or(u64::MAX)),
                &name,
            ]);
            rows.push((!suspect.remark.is_empty(), Reverse(suspect.growth.max(0)), Reverse(suspect.bytes), text));
        }
    }
    rows.sort();
    let columns = row(["pid", "live", "growth", "count", "oldest", "allocated by"]);
    Table { title: "Memory", columns, rows: rows.into_iter().map(|(_, _, _, row)| row).collect() }
}

fn failures(paces: &[Pace<'_>]) -> Table {
    let columns = format!("{:>13}  {:>8}  {:>8}  result", "pid", "calls", "new");
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
            let row = format!("{:>13}  {:>8}  {:>8}  {name}", pace.process.pid, count(failed.count), count(fresh));
            rows.push((Reverse(fresh), Reverse(failed.count), row));
        }
    }
    rows.sort();
    Table { title: "Errors", columns, rows: rows.into_iter().map(|(_, _, row)| row).collect() }
}

fn losses(now: &Snapshot) -> Table {
    let lost = now.health.lost.iter().filter(|(_, calls)| *calls > 0);
    let lost = lost
        .map(|(map, calls)| format!("{} not counted: no room in the map of {map}", counted(*calls, "call", "calls")));
    let notes = now.health.notes.iter().map(|note| printable(note).into_owned());
    Table { title: "Notes", columns: String::new(), rows: lost.chain(notes).collect() }
}

/// Something per second; small numbers keep a decimal.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        none if none <= 0.0 => "-".to_owned(),
        small if small < 9.95 => format!("{small:.1}"),
        large => count(large.round() as u64),
    }
}

pub(crate) fn byte_rate(per_second: f64) -> String {
    if per_second < 0.5 { "-".to_owned() } else { bytes(per_second as u64) + "/s" }
}

/// `128x4`: sizes of 1 at the end say nothing.
pub(crate) fn shape(sizes: [u32; 3]) -> String {
    match sizes {
        [0, 0, 0] => "-".to_owned(),
        [x, 0 | 1, 0 | 1] => x.to_string(),
        [x, y, 0 | 1] => format!("{x}x{y}"),
        [x, y, z] => format!("{x}x{y}x{z}"),
    }
}

pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        text.chars().take(most.saturating_sub(1)).collect::<String>() + "…"
    }
}
