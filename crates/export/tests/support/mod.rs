//! The formats of the recordings of `fixtures`, and readers of formats.
#![allow(dead_code, reason = "each test file uses its part of it")]

#[path = "../../../../tests/support/coverage.rs"]
pub mod coverage;
pub mod html;
pub mod parquet;
pub mod perfetto;
pub mod pprof;
pub mod proto;
pub mod sql;

use std::io;

use analysis::{Events, Flames, View};
use export::Format;
use fixtures::fold;
use model::event::Event;

/// Returns the recording in a format.
pub fn bytes(format: Format, events: &[Event], view: View) -> Vec<u8> {
    let mut out = Vec::new();
    let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events.iter().cloned())) };
    export::write(format, &Flames::new(&fold(events)), view, &mut open, &mut out).expect("export");
    out
}

/// Returns the recording in a format, as text.
pub fn export(format: Format, events: &[Event], view: View) -> String {
    String::from_utf8(bytes(format, events, view)).expect("UTF-8")
}

/// Decompresses gzip.
pub fn gunzip(gz: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(gz), &mut bytes).expect("gzip");
    bytes
}
