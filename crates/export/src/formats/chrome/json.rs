//! The array of events in the file.

use std::io::{self, Write};

use crate::formats::json_object::{Object, write_object};

/// What is written at once.
const BLOCK: usize = 64 << 10;

/// Writes events one at a time, with commas between them.
pub(super) struct Json<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    first: bool,
}

impl<'a> Json<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, buffer: Vec::with_capacity(2 * BLOCK), first: true }
    }

    /// Writes an event with these members.
    pub fn event(&mut self, members: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.buffer.extend_from_slice(b",\n");
        }
        write_object(&mut self.buffer, members);
        if self.buffer.len() >= BLOCK { self.write_out() } else { Ok(()) }
    }

    /// Returns the file, to which all events have been written.
    pub fn file(&mut self) -> io::Result<&mut dyn Write> {
        self.write_out()?;
        Ok(self.out)
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
