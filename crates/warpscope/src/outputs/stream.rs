//! Writes to a device or FIFO without blocking forever.

use std::{
    fs::File,
    io::{self, Write},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a reader may be idle.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The size that can be written to a pipe that has room, blocking or not (PIPE_BUF).
const PIECE: usize = 4096;

/// A writer that gives up if its reader reads nothing for [`TIMEOUT`].
#[derive(Debug)]
pub struct Stream<'a> {
    file: &'a File,
    written: u64,
}

impl<'a> Stream<'a> {
    /// Creates a writer to `file`.
    pub fn new(file: &'a File) -> Self {
        Self { file, written: 0 }
    }

    /// Returns the number of bytes written.
    pub fn written(&self) -> u64 {
        self.written
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = [PollFd::new(self.file, PollFlags::OUT)];
        let patience = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        if poll(&mut room, Some(&patience))? == 0 {
            let words = format!("its reader has read nothing for {} s", TIMEOUT.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        let written = self.file.write(&bytes[..bytes.len().min(PIECE)])?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
