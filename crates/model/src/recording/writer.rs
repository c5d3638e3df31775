//! Writes a recording.

use std::io::{self, Write};

use super::{
    encode::Encoder,
    layout::{CHUNK_FULL, CHUNK_HEADER, EVENTS, HEADER, MAGIC, RECORD_MOST, VERSION, checksum},
};
use crate::event::Event;

/// Writing a recording failed.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot write the recording beyond its first {written} bytes: {source}; these stay readable, later events are lost"
)]
pub struct WriteError {
    /// Bytes written in complete chunks before the error.
    pub written: u64,
    /// The system error.
    pub source: io::Error,
}

/// Writes events to a recording.
///
/// Events are collected in a chunk, which is written at 128 KiB or on [`Writer::flush`]. Call that regularly, so that a
/// crash loses seconds and not minutes.
///
/// An error is returned once. Afterwards the writer writes nothing more and counts events in [`Writer::dropped`]: even
/// with a full disk, the profile that is folded at the same time is still useful.
pub struct Writer<W> {
    to: W,
    encoder: Encoder,
    /// Events in the current chunk.
    gathered: u64,
    written: u64,
    dropped: u64,
    failed: bool,
    chunk: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts a recording: writes the header.
    pub fn new(mut to: W) -> Result<Self, WriteError> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..10].copy_from_slice(&VERSION.0.to_le_bytes());
        header[10..12].copy_from_slice(&VERSION.1.to_le_bytes());
        to.write_all(&header).map_err(|source| WriteError { written: 0, source })?;
        Ok(Self {
            to,
            encoder: Encoder::default(),
            gathered: 0,
            written: HEADER as u64,
            dropped: 0,
            failed: false,
            chunk: Vec::new(),
        })
    }

    /// Appends an event.
    pub fn push(&mut self, event: &Event) -> Result<(), WriteError> {
        if self.failed {
            self.dropped += 1;
            return Ok(());
        }
        let before = self.encoder.out.len();
        self.encoder.push(event);
        if self.encoder.out.len() - before > RECORD_MOST {
            // Only records with a length grow this long, and those do not change the chunk's tables.
            self.encoder.out.truncate(before);
            self.dropped += 1;
            return Ok(());
        }
        self.gathered += 1;
        if self.encoder.out.len() >= CHUNK_FULL { self.write_chunk() } else { Ok(()) }
    }

    /// Writes the current chunk, and flushes it to the system.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.write_chunk()?;
        if self.failed {
            return Ok(());
        }
        self.to.flush().map_err(|source| self.fail(source))
    }

    /// Writes the rest and returns the underlying writer.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        Ok(self.to)
    }

    /// Returns the bytes written so far, in complete chunks.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of events missing from the recording: after an error, or too large for a chunk (8 MiB).
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn write_chunk(&mut self) -> Result<(), WriteError> {
        if self.encoder.out.is_empty() || self.failed {
            return Ok(());
        }
        // Below 2^32: the chunk is written as soon as it is full, and the last record is bounded.
        let length = self.encoder.out.len() as u32;
        self.chunk.clear();
        self.chunk.extend_from_slice(&EVENTS);
        self.chunk.extend_from_slice(&length.to_le_bytes());
        self.chunk.extend_from_slice(&checksum(EVENTS, length, &self.encoder.out).to_le_bytes());
        debug_assert_eq!(self.chunk.len(), CHUNK_HEADER);
        self.chunk.extend_from_slice(&self.encoder.out);
        self.to.write_all(&self.chunk).map_err(|source| self.fail(source))?;
        self.written += self.chunk.len() as u64;
        self.gathered = 0;
        self.encoder.begin();
        Ok(())
    }

    fn fail(&mut self, source: io::Error) -> WriteError {
        self.failed = true;
        self.dropped += self.gathered;
        WriteError { written: self.written, source }
    }
}
