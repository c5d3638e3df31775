//! The stack of a thread that runs: one sample of a timer of its CPU time, with its registers and the memory of its stack, all of the same
//! moment. The thread is not stopped.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{perf, shared_memory::Shared};

/// CPU time until the sample.
const PERIOD_NS: u64 = 200_000;
/// The most bytes of a stack: a record has less than 64 KiB.
const STACK: u32 = 56 << 10;
const PAGE: usize = 4096;
/// Pages of the ring: the first sample fits.
const PAGES: usize = 16;
/// The kernel's numbers of rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, rip, and of r8 to r15.
const REGISTERS: u64 = 0xff_01ff;
/// The DWARF numbers of these, in this order; rip has none here.
const DWARF: [usize; 17] = [0, 3, 2, 1, 4, 5, 6, 7, IP, 8, 9, 10, 11, 12, 13, 14, 15];
const IP: usize = 16;
/// `data_head` of the ring's first page, as a number of words.
const DATA_HEAD: usize = 1024 / 8;
const RECORD_SAMPLE: u32 = 9;

/// A timer of one thread.
pub struct ThreadSampler {
    ring: Shared,
    _event: OwnedFd,
}

/// The stack of a thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserStack {
    /// The instruction pointer.
    pub ip: u64,
    /// The general registers, by DWARF number.
    pub general: [u64; 16],
    /// The memory of the stack, from the stack pointer on.
    pub bytes: Vec<u8>,
}

impl ThreadSampler {
    /// Starts a timer of a thread.
    pub fn start(tid: u32) -> io::Result<Self> {
        let event = perf::thread_clock(tid, PERIOD_NS, REGISTERS, STACK)?;
        let ring = Shared::map(&event, (1 + PAGES) * PAGE)?;
        Ok(Self { ring, _event: event })
    }

    /// Returns the first sample, once the thread has run for long enough.
    pub fn sample(&self) -> Option<UserStack> {
        let head: &AtomicU64 = self.ring.counter(DATA_HEAD);
        let written = usize::try_from(head.load(Ordering::Acquire)).ok()?.min(PAGES * PAGE);
        parse(self.ring.read(PAGE, written))
    }
}

/// `header { type: u32, misc: u16, size: u16 } abi registers... size bytes... used`
fn parse(records: &[u8]) -> Option<UserStack> {
    let word = |at: usize| Some(u64::from_le_bytes(records.get(at..at + 8)?.try_into().ok()?));
    let header = word(0)?;
    if header as u32 != RECORD_SAMPLE || word(8)? == 0 {
        return None;
    }
    let mut values = [0; 17];
    for (place, dwarf) in DWARF.into_iter().enumerate() {
        values[dwarf] = word(16 + 8 * place)?;
    }
    let (general, [ip]) = values.split_first_chunk::<16>()? else { return None };
    let size_at = 16 + 8 * DWARF.len();
    let size = usize::try_from(word(size_at)?).ok()?;
    let bytes = records.get(size_at + 8..(size_at + 8).checked_add(size)?)?;
    let used = usize::try_from(word(size_at + 8 + size).unwrap_or(0)).ok()?;
    Some(UserStack { ip: *ip, general: *general, bytes: bytes.get(..used)?.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that registers are put in DWARF order, and that a truncated record or one of another kind is no sample.
    #[test]
    fn samples_are_parsed() {
        let stack = [7_u8; 16];
        let mut words = vec![u64::from(RECORD_SAMPLE), 2];
        words.extend(100..117);
        words.push(16);
        let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        record.extend(stack);
        record.extend(8_u64.to_le_bytes());
        let sample = parse(&record).expect("a sample");
        assert_eq!((sample.ip, sample.general[0], sample.general[3], sample.general[7]), (108, 100, 101, 107));
        assert_eq!((sample.general[8], sample.general[15], sample.bytes), (109, 116, vec![7; 8]));
        assert_eq!(parse(&record[..40]), None);
        record[0] = 1;
        assert_eq!(parse(&record), None);
    }
}
