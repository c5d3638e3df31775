//! The memory of one process by address.

pub mod client;

use std::{fmt::Write as _, sync::Arc, time::Duration};

use serde_json::json;
use text::{
    names::printable,
    units::{bytes, counted, time},
};

use crate::snapshot::{Frame, Space, nanoseconds, site::site};

/// The last line of a map with incomplete names.
pub const INCOMPLETE: &str = "Some lines are still being resolved; request the map again.";

/// Live allocations of a process.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The process.
    pub pid: u32,
    /// Its short name.
    pub comm: String,
    /// Its user.
    pub user: String,
    /// Its allocations, by address; bounded.
    pub allocations: Vec<Allocation>,
    /// Omitted allocations: their number and bytes.
    pub left_out: (u64, u64),
    /// Names are still being resolved.
    pub incomplete: bool,
}

/// A live allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Its address or handle.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Its memory space.
    pub space: Space,
    /// Its age.
    pub age: Duration,
    /// The function that allocated it.
    pub function: Arc<str>,
    /// Frames, outermost first; empty if the stack is unknown.
    pub stack: Arc<[Frame]>,
}

impl Map {
    /// Returns the number of live allocations, and their bytes.
    fn totals(&self) -> (u64, u64) {
        let (more, more_bytes) = self.left_out;
        let bytes = self.allocations.iter().fold(more_bytes, |sum, allocation| sum.saturating_add(allocation.bytes));
        (self.allocations.len() as u64 + more, bytes)
    }

    /// Returns the map as JSON, with exact sizes and whole stacks, outermost frame first.
    pub fn json(&self) -> String {
        let allocation = |allocation: &Allocation| {
            json!({
                "address": format!("{:#x}", allocation.address),
                "bytes": allocation.bytes,
                "kind": allocation.space.name(),
                "age_ns": nanoseconds(allocation.age),
                "function": &*allocation.function,
                "line": site(&allocation.stack),
                "stack": allocation.stack.iter().map(|frame| &*frame.name).collect::<Vec<_>>(),
            })
        };
        let (live, live_bytes) = self.totals();
        let map = json!({
            "pid": self.pid,
            "name": self.comm,
            "user": self.user,
            "live_allocations": live,
            "live_bytes": live_bytes,
            "allocations": self.allocations.iter().map(allocation).collect::<Vec<_>>(),
            "omitted_allocations": self.left_out.0,
            "omitted_bytes": self.left_out.1,
            "incomplete": self.incomplete,
        });
        format!("{map}\n")
    }

    /// Formats the map: a title and a row for each allocation.
    pub fn text(&self) -> String {
        let ((more, more_bytes), (count, sum)) = (self.left_out, self.totals());
        let mut text = format!(
            "{} ({}), pid {}: {}, {}\n\n",
            printable(&self.comm),
            printable(&self.user),
            self.pid,
            counted(count, "live allocation", "live allocations"),
            bytes(sum)
        );
        if !self.allocations.is_empty() {
            let _ = writeln!(text, "{:>18}  {:>9}  {:<7}  {:>8}  allocated by", "address", "size", "kind", "age");
        }
        for allocation in &self.allocations {
            let line = site(&allocation.stack).unwrap_or("[unknown line]".into());
            let _ = writeln!(
                text,
                "{:>#18x}  {:>9}  {:<7}  {:>8}  {line}, {}",
                allocation.address,
                bytes(allocation.bytes),
                allocation.space.name(),
                time(nanoseconds(allocation.age)),
                printable(&allocation.function)
            );
        }
        if more > 0 {
            let _ = writeln!(text, "… and {}, {}", counted(more, "smaller one", "smaller ones"), bytes(more_bytes));
        }
        if self.incomplete {
            let _ = writeln!(text, "\n{INCOMPLETE}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the text, and that hostile names stay on their line.
    #[test]
    fn the_map_is_formatted() {
        let allocation = |address, bytes, stack: &[&str]| Allocation {
            address,
            bytes,
            space: Space::Device,
            age: Duration::from_secs(58),
            function: "cudaMalloc".into(),
            stack: stack.iter().copied().map(Frame::from).collect(),
        };
        let map = Map {
            pid: 7,
            comm: "tr\nain".into(),
            user: "alice".into(),
            allocations: vec![
                allocation(0x7f00_0000_0000, 1 << 20, &["_start", "step (train.py:17)", "cudaMalloc"]),
                allocation(0x7f00_0010_0000, 4096, &[]),
            ],
            left_out: (3, 30),
            incomplete: true,
        };
        let expected = "tr ain (alice), pid 7: 5 live allocations, 1.00 MiB\n\n           \
             address       size  kind          age  allocated by\n    \
             0x7f0000000000   1.00 MiB  device     58.0 s  train.py:17 step, cudaMalloc\n    \
             0x7f0000100000   4.00 KiB  device     58.0 s  [unknown line], cudaMalloc\n… and 3 smaller ones, 30 B\n\n\
             Some lines are still being resolved; request the map again.\n";
        assert_eq!(map.text(), expected);
        let read: serde_json::Value = serde_json::from_str(&map.json()).expect("JSON");
        assert_eq!((&read["name"], &read["live_bytes"]), (&json!("tr\nain"), &json!((1 << 20) + 4096 + 30)));
        let allocation = &read["allocations"][0];
        assert_eq!((&allocation["address"], &allocation["bytes"]), (&json!("0x7f0000000000"), &json!(1 << 20)));
        assert_eq!(
            (&allocation["line"], &allocation["age_ns"]),
            (&json!("train.py:17 step"), &json!(58_000_000_000_u64))
        );
        assert_eq!(allocation["stack"], json!(["_start", "step (train.py:17)", "cudaMalloc"]));
        assert_eq!((&read["allocations"][1]["line"], &read["incomplete"]), (&json!(null), &json!(true)));
        let none = Map { pid: 7, comm: "a".into(), user: "b".into(), ..Map::default() };
        assert_eq!(none.text(), "a (b), pid 7: 0 live allocations, 0 B\n\n");
    }
}
