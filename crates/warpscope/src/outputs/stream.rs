//! Writing to a device or FIFO without waiting for ever.

use std::{
    fs::File,
    io::{self, Write},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a reader may read nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// What can be written to a pipe that has room, whether it blocks or not (PIPE_BUF).
const PIECE: usize = 4096;

/// A writer that gives up when its reader reads nothing for [`PATIENCE`].
#[derive(Debug)]
pub struct Stream<'a> {
    file: &'a File,
    written: u64,
}

impl<'a> Stream<'a> {
    /// Writes to `file`.
    pub fn new(file: &'a File) -> Self {
        Self { file, written: 0 }
    }

    /// How many bytes were written.
    pub fn written(&self) -> u64 {
        self.written
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = [PollFd::new(self.file, PollFlags::OUT)];
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        if poll(&mut room, Some(&patience))? == 0 {
            let words = format!("its reader has read nothing for {} s", PATIENCE.as_secs());
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
