//! The first line of lines of JSON: what was recorded, and when.

use model::event::{Mode, Start};
use serde::Serialize;

/// The line. `ts_ns` and `unix_ns` are the same moment: `ts` of the events of a trace counts from there.
#[derive(Serialize)]
pub(super) struct StartLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    ts_ns: u64,
    unix_ns: u64,
    version: &'a str,
    host: &'a str,
    command: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<String>,
    mode: Mode,
    frequency: u32,
}

impl<'a> StartLine<'a> {
    /// Returns the line, with the options that select what follows.
    pub(super) fn new(start: &'a Start, filters: Vec<String>) -> Self {
        Self {
            kind: "start",
            ts_ns: start.time,
            unix_ns: start.wall_clock,
            version: &start.version,
            host: &start.host,
            command: &start.command,
            filters,
            mode: start.mode,
            frequency: start.frequency,
        }
    }
}
