//! The array of events in the file.

use std::io::{self, Write};

use serde::Serialize;

/// Writes events one at a time, with commas between them.
pub(super) struct Json<'a> {
    pub out: &'a mut dyn Write,
    pub buffer: Vec<u8>,
    pub first: bool,
}

impl Json<'_> {
    pub fn event(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.buffer.clear();
        if !std::mem::take(&mut self.first) {
            self.buffer.extend_from_slice(b",\n");
        }
        serde_json::to_writer(&mut self.buffer, event)?;
        self.out.write_all(&self.buffer)
    }
}
