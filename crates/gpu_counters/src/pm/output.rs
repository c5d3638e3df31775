//! The pipe to warpscope. Samples that do not fit into it are dropped and counted: sampling must not wait.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use super::record::{Record, SIZE};

/// Records in one write: no more than `PIPE_BUF` bytes, which are written whole or not at all.
const AT_ONCE: usize = libc::PIPE_BUF / SIZE;
/// How long a record that must arrive may wait.
const PATIENCE_MS: libc::c_int = 2000;

/// The pipe.
pub struct Output {
    pipe: OwnedFd,
    pending: Vec<u8>,
    dropped: u64,
}

/// The reader is gone.
pub struct Closed;

impl Output {
    /// Writes to this pipe, which must not block.
    pub fn new(pipe: OwnedFd) -> Self {
        Self { pipe, pending: Vec::with_capacity(AT_ONCE * SIZE), dropped: 0 }
    }

    /// Writes a sample, or keeps it until there are some.
    pub fn sample(&mut self, record: &Record) -> Result<(), Closed> {
        self.pending.extend_from_slice(&record.encode());
        if self.pending.len() >= AT_ONCE * SIZE { self.flush() } else { Ok(()) }
    }

    /// Writes the samples that are kept.
    pub fn flush(&mut self) -> Result<(), Closed> {
        if !self.pending.is_empty() && !self.write(&self.pending)? {
            self.dropped += (self.pending.len() / SIZE) as u64;
        }
        self.pending.clear();
        if self.dropped > 0 && self.write(&Record::Dropped { count: self.dropped }.encode())? {
            self.dropped = 0;
        }
        Ok(())
    }

    /// Writes a record that must arrive, after the samples before it.
    pub fn record(&mut self, record: &Record) -> Result<(), Closed> {
        self.flush()?;
        let bytes = record.encode();
        while !self.write(&bytes)? {
            let mut wait = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
            // SAFETY: one valid entry.
            if unsafe { libc::poll(&mut wait, 1, PATIENCE_MS) } == 0 {
                return Err(Closed);
            }
        }
        Ok(())
    }

    /// Writes all bytes or none; `false` if they do not fit now.
    fn write(&self, bytes: &[u8]) -> Result<bool, Closed> {
        loop {
            // SAFETY: the bytes are valid for their length.
            let written = unsafe { libc::write(self.pipe.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
            match io::Error::last_os_error().kind() {
                _ if written == bytes.len() as isize => return Ok(true),
                io::ErrorKind::WouldBlock if written < 0 => return Ok(false),
                io::ErrorKind::Interrupted if written < 0 => {}
                _ => return Err(Closed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, os::fd::FromRawFd};

    use super::*;
    use crate::pm::record::Numbers;

    fn pipe() -> (File, OwnedFd) {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which are owned from then on.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC), 0);
            (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        }
    }

    /// Check that samples beyond the pipe's capacity are dropped, and that the next records say how many.
    #[test]
    fn dropped_samples_are_counted() {
        let (mut reader, writer) = pipe();
        let mut output = Output::new(writer);
        let sample = Record::Sample { gpu: 0, start: 1, end: 2, values: Numbers::default() };
        for _ in 0..10_000 {
            assert!(output.sample(&sample).is_ok() && output.flush().is_ok());
        }
        let mut bytes = vec![0; 10_000 * SIZE];
        let length = reader.read(&mut bytes).expect("samples");
        assert_eq!(length % SIZE, 0, "only whole records");
        assert!(output.record(&Record::End).is_ok());
        let rest = reader.read(&mut bytes[length..]).expect("the last records");
        let records: Vec<Record> = bytes[..length + rest]
            .chunks_exact(SIZE)
            .map(|r| Record::decode(r.first_chunk().expect("a record")).expect("valid"))
            .collect();
        let arrived = records.iter().filter(|record| **record == sample).count() as u64;
        assert_eq!(records[records.len() - 2..], [Record::Dropped { count: 10_000 - arrived }, Record::End]);
    }

    /// Check that a closed pipe is noticed.
    #[test]
    fn a_closed_pipe_is_an_error() {
        let (reader, writer) = pipe();
        drop(reader);
        assert!(Output::new(writer).record(&Record::Ready).is_err());
    }
}
