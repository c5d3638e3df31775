//! What was seen on a host as JSON, written and read back. Files may come from anywhere: sizes are bounded.

use std::io;

use model::hang::Host;
use serde::{Deserialize, Serialize};

use super::job::Hang;

/// The version of the format.
const VERSION: u32 = 1;
/// The most bytes of a file, and the most hosts, processes, threads and frames of all files.
pub const MOST_BYTES: u64 = 64 << 20;
const MOST_HOSTS: usize = 1 << 14;
const MOST_PROCESSES: usize = 1 << 17;
const MOST_THREADS: usize = 1 << 20;
const MOST_FRAMES: usize = 1 << 12;

/// The written form.
#[derive(Serialize)]
struct Written<'a> {
    warpscope_hang: u32,
    #[serde(flatten)]
    hang: &'a Hang<'a>,
    hosts: &'a [Host],
}

/// What is read of it: conclusions are drawn again.
#[derive(Deserialize)]
struct Read {
    warpscope_hang: u32,
    hosts: Vec<Host>,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not the JSON of this command.
    #[error("it was not written by `warpscope hang`: {0}")]
    Parse(#[from] serde_json::Error),
    /// A newer format.
    #[error("it has version {0} of the format, and this warpscope reads version {VERSION}: use the one that wrote it")]
    Version(u32),
    /// It is too large.
    #[error("it has more {0} than are read")]
    TooMany(&'static str),
    /// Two files of one host.
    #[error("host {0} is in two files: give one for each host")]
    Twice(String),
}

/// Writes what was seen, and what follows from it.
pub fn write(out: &mut dyn io::Write, hang: &Hang<'_>, hosts: &[Host]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Written { warpscope_hang: VERSION, hang, hosts })?;
    writeln!(out)
}

/// Adds the hosts of a file to those of others.
pub fn read(bytes: &[u8], hosts: &mut Vec<Host>) -> Result<(), Error> {
    let read: Read = serde_json::from_slice(bytes)?;
    if read.warpscope_hang != VERSION {
        return Err(Error::Version(read.warpscope_hang));
    }
    for host in read.hosts {
        let same = |known: &Host| known.host == host.host && known.boot == host.boot;
        if hosts.iter().any(same) {
            return Err(Error::Twice(host.host));
        }
        hosts.push(host);
    }
    let processes = || hosts.iter().flat_map(|host| &host.processes);
    let threads = || processes().flat_map(|process| &process.threads);
    let limits = [
        ("hosts", hosts.len() > MOST_HOSTS),
        ("processes", processes().nth(MOST_PROCESSES).is_some()),
        ("threads", threads().nth(MOST_THREADS).is_some()),
        ("frames", threads().any(|thread| thread.frames.len() > MOST_FRAMES)),
    ];
    limits.into_iter().find(|(_, exceeded)| *exceeded).map_or(Ok(()), |(what, _)| Err(Error::TooMany(what)))
}
