//! Reads the kernel's mapping records: which files are mapped as code, where, and when.
//!
//! They contain the file's name at the time of mapping, so its functions can be resolved after the process has exited.
//! Each CPU has a separate ring; [`Mappings::drain`] merges them by time.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use crate::{
    Error, Result, perf,
    shared_memory::Shared,
    shares::{Share, Shares},
};

/// The most and the fewest data pages of one CPU's ring: powers of two. The kernel lets every user lock 129 pages per
/// CPU (`perf_event_mlock_kb`); more requires CAP_IPC_LOCK or a higher limit on locked memory.
const PAGES: usize = 256;
const LEAST_PAGES: usize = 8;
const PAGE: usize = 4096;
/// A ring with less free space may have lost a record: the fields, and a path of 4096 bytes.
const LONGEST_RECORD: usize = 4224;

const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_MMAP2: u32 = 10;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_BUILD_ID: u16 = 1 << 14;
const PROT_EXEC: u32 = 4;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapEvent {
    /// The process executes a new program: earlier mappings are gone.
    Exec {
        /// The process.
        pid: u32,
        /// When.
        time: u64,
    },
    /// A file was mapped executable.
    Mapped(Mapped),
}

/// A file was mapped executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The process.
    pub pid: u32,
    /// When.
    pub time: u64,
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file's path as the process sees it.
    pub path: String,
    /// The file's build id, if the kernel provides it.
    pub build_id: Vec<u8>,
}

impl MapEvent {
    /// The mapping, if it is one.
    pub fn mapped(&self) -> Option<&Mapped> {
        match self {
            Self::Mapped(mapped) => Some(mapped),
            Self::Exec { .. } => None,
        }
    }

    fn time(&self) -> u64 {
        match self {
            Self::Exec { time, .. } => *time,
            Self::Mapped(mapped) => mapped.time,
        }
    }
}

/// Watches all mappings on the machine.
#[derive(Debug)]
pub struct Mappings {
    rings: Vec<Ring>,
    scratch: Vec<u8>,
    shares: Shares,
    /// Nothing is read until then: a process maps files faster than its share allows.
    rest: Option<Instant>,
    refused: u64,
    unparsed: u64,
}

impl Mappings {
    /// Starts watching. Each process is limited to its share.
    pub fn watch(share: Share) -> Result<Self> {
        let cpus = perf::online_cpus()?;
        let mut pages = PAGES;
        loop {
            let open = |cpu: &u32| Ring::open(*cpu, pages).map_err(|source| (*cpu, source));
            match cpus.iter().map(open).collect() {
                Ok(rings) => {
                    let shares = Shares::new(share);
                    return Ok(Self { rings, scratch: Vec::new(), shares, rest: None, refused: 0, unparsed: 0 });
                }
                Err((_, error)) if error.raw_os_error() == Some(libc::EPERM) && pages > LEAST_PAGES => pages /= 2,
                Err((cpu, source)) => return Err(Error::Mappings { cpu, source }),
            }
        }
    }

    /// Returns the descriptors that become readable when something was mapped.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let rings = if self.rests(Instant::now()) { &[] } else { &self.rings[..] };
        rings.iter().map(|ring| ring.fd.as_raw_fd())
    }

    fn rests(&self, now: Instant) -> bool {
        self.rest.is_some_and(|until| now < until)
    }

    /// Returns everything since the last call, by time. Nothing while the reader pauses; what does not fit into the
    /// rings meanwhile is lost and counted.
    pub fn drain(&mut self) -> Vec<MapEvent> {
        let mut events = Vec::new();
        let begun = Instant::now();
        if self.rests(begun) {
            self.rings.iter_mut().filter(|ring| ring.is_full(ring.waiting())).for_each(|ring| ring.count_lost(0));
            return events;
        }
        let mut refused = 0;
        for ring in &mut self.rings {
            let full = ring.read(&mut self.scratch);
            let counted = parse_all(&self.scratch, &mut self.shares, &mut events);
            // The record of a loss comes only with the next mapping that fits; the kernel's own count is current.
            if full || counted.lost > 0 {
                ring.count_lost(counted.lost);
            }
            self.unparsed += counted.unparsed;
            refused += counted.refused;
        }
        self.refused += refused;
        self.rest = (refused > 0).then(|| begun + begun.elapsed() * (1 + self.shares.rest()));
        events.sort_by_key(MapEvent::time);
        events
    }

    /// Returns the number of records that did not fit, or exceeded the share of their process, since the start.
    pub fn lost(&self) -> u64 {
        self.refused + self.rings.iter().map(|ring| ring.lost).sum::<u64>()
    }

    /// Returns the number of records that could not be parsed, since the start.
    pub fn unparsed(&self) -> u64 {
        self.unparsed
    }
}

/// Counts of a ring's records that are not events.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Records that did not fit.
    lost: u64,
    /// Records that exceeded the share of their process.
    refused: u64,
    unparsed: u64,
}

#[derive(Debug)]
struct Ring {
    fd: OwnedFd,
    /// One control page, then the data.
    memory: Shared,
    /// Bytes of data.
    data: usize,
    /// Records that did not fit.
    lost: u64,
}

impl Ring {
    // Offsets in the control page, `struct perf_event_mmap_page`.
    const HEAD: usize = 1024;
    const TAIL: usize = 1032;

    fn open(cpu: u32, pages: usize) -> io::Result<Self> {
        let data = pages * PAGE;
        let fd = perf::mapping_events(cpu)?;
        Ok(Self { memory: Shared::map(&fd, PAGE + data)?, fd, data, lost: 0 })
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        self.memory.counter(offset / size_of::<u64>())
    }

    /// Moves all new bytes into `out`. Returns whether the ring was so full that a record may not have fitted.
    fn read(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        let tail = self.position(Self::TAIL).load(Ordering::Relaxed);
        let length = self.waiting();
        let start = tail as usize % self.data;
        // The kernel does not write between tail and head.
        let first = length.min(self.data - start);
        out.extend_from_slice(self.memory.read(PAGE + start, first));
        out.extend_from_slice(self.memory.read(PAGE, length - first));
        self.position(Self::TAIL).store(tail.wrapping_add(length as u64), Ordering::Release);
        self.is_full(length)
    }

    /// Returns the number of bytes that can be read.
    fn waiting(&self) -> usize {
        let head = self.position(Self::HEAD).load(Ordering::Acquire);
        let tail = self.position(Self::TAIL).load(Ordering::Relaxed);
        head.wrapping_sub(tail).min(self.data as u64) as usize
    }

    /// Whether a record may not have fitted beside this many bytes.
    fn is_full(&self, bytes: usize) -> bool {
        self.data - bytes < LONGEST_RECORD
    }

    /// Updates the number of records that did not fit. `reported` ones are added if the count cannot be read.
    fn count_lost(&mut self, reported: u64) {
        self.lost = perf::lost_records(&self.fd).unwrap_or(self.lost + reported);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Parses whole records; returns how many the kernel reports as lost, and how many are invalid. A record of an
/// impossible length makes the rest unreadable and counts once.
fn parse_all(mut bytes: &[u8], shares: &mut Shares, events: &mut Vec<MapEvent>) -> Counted {
    let mut counted = Counted::default();
    while let (Some(kind), Some(misc_and_size)) = (u32_at(bytes, 0), u32_at(bytes, 4)) {
        let (misc, size) = (misc_and_size as u16, (misc_and_size >> 16) as usize);
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= 8) else { break };
        bytes = rest;
        let parsed = match kind {
            RECORD_LOST => u64_at(record, 16).map(|lost| counted.lost += lost),
            RECORD_COMM if misc & MISC_COMM_EXEC != 0 => match (u32_at(record, 8), u64_at(record, size - 8)) {
                (Some(pid), Some(time)) => {
                    events.push(MapEvent::Exec { pid, time });
                    Some(())
                }
                _ => None,
            },
            RECORD_MMAP2 if u32_at(record, 64).is_some_and(|protection| protection & PROT_EXEC == 0) => Some(()),
            RECORD_MMAP2 => match (u32_at(record, 8), u64_at(record, size - 8)) {
                // Before anything is allocated, so that it stays cheap for any number of records.
                (Some(pid), Some(time)) if !shares.take(pid, time) => {
                    counted.refused += 1;
                    Some(())
                }
                _ => parse_mapping(record, misc).map(|mapped| events.push(MapEvent::Mapped(mapped))),
            },
            _ => Some(()),
        };
        counted.unparsed += u64::from(parsed.is_none());
    }
    counted.unparsed += u64::from(!bytes.is_empty());
    counted
}

/// `PERF_RECORD_MMAP2`: header 8, pid, tid, addr 16, len 24, pgoff 32, then device, inode and generation or the build
/// id (size 40, bytes 44..64), prot 64, flags 68, file name 72; at the end of the record tid and time.
fn parse_mapping(record: &[u8], misc: u16) -> Option<Mapped> {
    let build_id = if misc & MISC_BUILD_ID != 0 {
        let length = usize::from(*record.get(40)?).min(20);
        record.get(44..44 + length)?.to_vec()
    } else {
        Vec::new()
    };
    let name = record.get(72..record.len().checked_sub(16)?)?;
    let length = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Some(Mapped {
        pid: u32_at(record, 8)?,
        time: u64_at(record, record.len() - 8)?,
        start: u64_at(record, 16)?,
        length: u64_at(record, 24)?,
        offset: u64_at(record, 32)?,
        path: String::from_utf8_lossy(&name[..length]).into_owned(),
        build_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = 8 + body.len() as u16;
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
    }

    /// Check that invalid records are counted, and that those after them are still read as long as lengths are valid.
    #[test]
    fn invalid_records_are_counted() {
        let exec = record(RECORD_COMM, MISC_COMM_EXEC, &[7; 24]);
        let short = record(RECORD_MMAP2, 0, &[0xff; 60]);
        let lost = record(RECORD_LOST, 0, &[[0; 8], 5_u64.to_ne_bytes()].concat());
        let mut events = Vec::new();
        let shares = &mut Shares::new(Share::DAEMON);
        let all = [&exec[..], &short, &lost, &exec].concat();
        assert_eq!(parse_all(&all, shares, &mut events), Counted { lost: 5, unparsed: 1, ..Counted::default() });
        assert_eq!(events.len(), 2);
        assert_eq!(
            parse_all(&record(RECORD_LOST, 0, &[]), shares, &mut events),
            Counted { unparsed: 1, ..Counted::default() }
        );
        assert_eq!(
            parse_all(&[9, 0, 0, 0, 0, 0, 0, 0], shares, &mut events),
            Counted { unparsed: 1, ..Counted::default() }
        );
        assert_eq!(parse_all(&[], shares, &mut events), Counted::default());
    }
}
