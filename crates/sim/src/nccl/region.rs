//! The memory that the members of a communicator share: a file in memory of the process that made the communicator's id, which the
//! others open by its number there.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::{Outcome, result};

/// The most members of a communicator.
pub const MOST_RANKS: usize = 64;
/// How many operations of a communicator may be under way, and messages of a pair.
const SLOTS: usize = 64;
const MESSAGES: usize = 16;

/// Something that a member has noted about the operation with this number.
#[repr(C)]
#[derive(Default)]
pub struct Note {
    /// The number of the operation and one more.
    number: AtomicU64,
    time: AtomicU64,
}

impl Note {
    fn write(&self, number: u64, time: u64) {
        self.time.store(time, Ordering::Relaxed);
        self.number.store(number + 1, Ordering::Release);
    }

    fn read(&self, number: u64) -> Option<u64> {
        (self.number.load(Ordering::Acquire) > number).then(|| self.time.load(Ordering::Relaxed))
    }
}

/// What a member of a communicator notes when it is split.
#[repr(C)]
struct Split {
    number: AtomicU64,
    color: AtomicI32,
    key: AtomicI32,
    /// The id of the new communicator, written by its first member.
    made: AtomicU64,
    process: AtomicU32,
    descriptor: AtomicI32,
}

/// The shared memory; all zeros at first.
#[repr(C)]
pub struct Region {
    joined: AtomicU32,
    /// Counts changes, for those that wait.
    changes: AtomicU32,
    aborted: AtomicU32,
    operations: [[Note; MOST_RANKS]; SLOTS],
    /// By sender, receiver and number: the sender's note and the receiver's.
    messages: [[[[Note; 2]; MESSAGES]; MOST_RANKS]; MOST_RANKS],
    splits: [[Split; MOST_RANKS]; 4],
}

/// A communicator's id (`ncclUniqueId`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u64; 16]);

const MAGIC: u64 = 0x7773_6e63_636c;

impl UniqueId {
    /// Makes shared memory.
    pub fn make() -> Outcome<Self> {
        let mut hash = [0_u8; 8];
        // SAFETY: a valid buffer; the name is terminated.
        let fd = unsafe {
            libc::getrandom(hash.as_mut_ptr().cast(), hash.len(), 0);
            libc::memfd_create(c"warpscope-sim-nccl".as_ptr(), libc::MFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(result::SYSTEM_ERROR);
        }
        // SAFETY: the descriptor is new.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size_of::<Region>() as u64).map_err(|_| result::SYSTEM_ERROR)?;
        // It stays open for the others.
        Ok(Self::of(std::process::id(), file.into_raw_fd(), u64::from_ne_bytes(hash) | 1))
    }

    fn of(process: u32, descriptor: i32, hash: u64) -> Self {
        let mut words = [0; 16];
        words[..4].copy_from_slice(&[MAGIC, process.into(), descriptor as u64, hash]);
        Self(words)
    }

    /// Returns the number of the communicator.
    pub fn hash(&self) -> u64 {
        self.0[3]
    }

    /// Maps the shared memory; it is never unmapped.
    pub fn open(&self) -> Outcome<&'static Region> {
        let [MAGIC, process, descriptor, ..] = self.0 else { return Err(result::INVALID_ARGUMENT) };
        let path = format!("/proc/{process}/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| result::SYSTEM_ERROR)?;
        let (size, protection) = (size_of::<Region>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping of a file of this size.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(result::SYSTEM_ERROR);
        }
        // SAFETY: it is large enough, aligned to pages, consists of atomics, for which all bytes are values, and stays mapped.
        Ok(unsafe { &*at.cast::<Region>() })
    }
}

impl Region {
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.futex(libc::FUTEX_WAKE, i32::MAX as u32);
    }

    fn futex(&self, operation: i32, value: u32) {
        let nothing: *const c_void = std::ptr::null();
        // SAFETY: the word is valid; every outcome is handled by checking again.
        unsafe { libc::syscall(libc::SYS_futex, self.changes.as_ptr(), operation, value, nothing, nothing, 0) };
    }

    /// Waits until there is an answer; `None` if the communicator was aborted.
    pub fn wait<T>(&self, answer: impl Fn() -> Option<T>) -> Option<T> {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            if let Some(answer) = answer() {
                return Some(answer);
            }
            if self.aborted.load(Ordering::Acquire) != 0 {
                return None;
            }
            self.futex(libc::FUTEX_WAIT, changes);
        }
    }

    /// Waits until all have joined.
    pub fn join(&self, ranks: u32) {
        self.joined.fetch_add(1, Ordering::AcqRel);
        self.changed();
        self.wait(|| (self.joined.load(Ordering::Acquire) >= ranks).then_some(()));
    }

    /// Ends all that waits.
    pub fn abort(&self) {
        self.aborted.store(1, Ordering::Release);
        self.changed();
    }

    /// Notes when a member could start an operation.
    pub fn begin(&self, rank: usize, number: u64, time: u64) {
        self.operations[number as usize % SLOTS][rank].write(number, time);
        self.changed();
    }

    /// Returns when the last member could start an operation, if all have noted it.
    pub fn begun(&self, ranks: usize, number: u64) -> Option<u64> {
        let notes = &self.operations[number as usize % SLOTS][..ranks];
        notes.iter().try_fold(0, |latest, note| Some(note.read(number)?.max(latest)))
    }

    /// Notes when one side could start a message: the sender (0) or the receiver (1).
    pub fn begin_message(&self, [from, to]: [usize; 2], side: usize, number: u64, time: u64) {
        self.messages[from][to][number as usize % MESSAGES][side].write(number, time);
        self.changed();
    }

    /// Returns when one side could start a message.
    pub fn begun_message(&self, [from, to]: [usize; 2], side: usize, number: u64) -> Option<u64> {
        self.messages[from][to][number as usize % MESSAGES][side].read(number)
    }

    /// Splits a communicator of `ranks` members, the same for all those with the same color, by key. Returns the id of the own
    /// part, its size, and the rank in it; `None` with a negative color.
    pub fn split(
        &self,
        rank: usize,
        ranks: usize,
        number: u64,
        color: i32,
        key: i32,
    ) -> Outcome<Option<(UniqueId, u32, u32)>> {
        let notes = &self.splits[number as usize % self.splits.len()][..ranks];
        let own = &notes[rank];
        own.color.store(color, Ordering::Relaxed);
        own.key.store(key, Ordering::Relaxed);
        own.made.store(0, Ordering::Relaxed);
        own.number.store(number + 1, Ordering::Release);
        self.changed();
        let all = || notes.iter().all(|note| note.number.load(Ordering::Acquire) > number).then_some(());
        self.wait(all).ok_or(result::INVALID_USAGE)?;
        if color < 0 {
            return Ok(None);
        }
        let mut members: Vec<(i32, usize)> = (0..ranks)
            .filter(|member| notes[*member].color.load(Ordering::Relaxed) == color)
            .map(|member| (notes[member].key.load(Ordering::Relaxed), member))
            .collect();
        members.sort_unstable();
        let place = members.iter().position(|(_, member)| *member == rank).ok_or(result::SYSTEM_ERROR)?;
        let first = &notes[members[0].1];
        if place == 0 {
            let UniqueId([_, process, descriptor, hash, ..]) = UniqueId::make()?;
            first.process.store(process as u32, Ordering::Relaxed);
            first.descriptor.store(descriptor as i32, Ordering::Relaxed);
            first.made.store(hash, Ordering::Release);
            self.changed();
        }
        let made = || Some(first.made.load(Ordering::Acquire)).filter(|hash| *hash != 0);
        let hash = self.wait(made).ok_or(result::INVALID_USAGE)?;
        let (process, descriptor) = (first.process.load(Ordering::Relaxed), first.descriptor.load(Ordering::Relaxed));
        Ok(Some((UniqueId::of(process, descriptor, hash), members.len() as u32, place as u32)))
    }
}
