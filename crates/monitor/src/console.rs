//! The console output: tables like those of `top`, one block per interval. Names come last, so that long ones do not
//! break the alignment. Lines and tables are limited to the size of a terminal; in a pipe or a file they are complete.

pub(crate) mod display;
mod table;
mod tables;

use std::fmt::Write as _;

use text::{
    names::printable,
    units::{bytes, count, counted},
};

pub use self::table::BlockStyle;
use self::table::Table;
pub(crate) use self::table::cut;
pub(crate) use self::tables::{byte_rate, rate, shape, speed, unseen_text};
use crate::snapshot::{Device, Snapshot, rates::Pace, utc::stamp};

/// Formats the state `now`, with rates since the snapshot `before`.
pub fn block(now: &Snapshot, before: Option<&Snapshot>, look: BlockStyle) -> String {
    let look = BlockStyle { width: look.width.map(|width| width.max(60)), ..look };
    let paces = Pace::of(now, before);
    let mut head = vec![title(now, look)];
    head.extend(now.devices.iter().map(|gpu| cut(&device(gpu), look.width)));
    let tables = tables::all(now, &paces, look);
    let tables: Vec<Table> = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();

    // Show as many rows per table as fit into the height; the first table may have twice as many.
    let height = |most: usize| {
        let lines = |(place, table): (usize, &Table)| 2 + table.shown(if place == 0 { 2 * most } else { most });
        head.len() + tables.iter().enumerate().map(lines).sum::<usize>()
    };
    // In a pipe or a file tables are complete.
    let most =
        look.height.map_or(usize::MAX / 2, |lines| (1..=lines).rev().find(|&most| height(most) < lines).unwrap_or(1));
    let mut text = String::new();
    for line in head {
        let _ = writeln!(text, "{line}");
    }
    for (place, table) in tables.iter().enumerate() {
        table.write(&mut text, if place == 0 { 2 * most } else { most }, look);
    }
    match look.height {
        // If it still does not fit, the last lines are dropped.
        Some(lines) => {
            text.lines().take(lines.saturating_sub(1).max(1)).fold(String::new(), |text, line| text + line + "\n")
        }
        None => text + "\n",
    }
}

/// Formats a block that overwrites the previous one on a terminal. Nothing is cleared before it is overwritten, so it
/// does not flicker.
pub fn in_place(block: &str) -> String {
    let lines: String = block.lines().map(|line| format!("{line}\x1b[K\r\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}

fn title(now: &Snapshot, look: BlockStyle) -> String {
    let (bold, plain) = if look.colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let living = now.processes.iter().filter(|process| !process.ended).count() as u64;
    let health = &now.health;
    let text = format!(
        "{}, {} of {} watched",
        counted(living, "GPU process", "GPU processes"),
        counted(health.functions, "function", "functions"),
        counted(health.libraries, "library", "libraries")
    );
    format!("{bold}{}{plain}  {}", stamp(now.unix_ns), cut(&text, look.width.map(|width| width - 25)))
}

/// `GPU 0 NVIDIA H200   93 % busy   12.0 GiB of 141 GiB   412 W of 700 W   61 °C`.
fn device(device: &Device) -> String {
    let mut parts = vec![format!("GPU {} {}", device.index, printable(&device.name))];
    if device.lost {
        parts.push("lost: the GPU no longer responds".to_owned());
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
