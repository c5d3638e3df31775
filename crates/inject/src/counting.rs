//! Counts launches that are not recorded, by kernel.
//!
//! Threads count in tables of their own, mostly: a lock that no one else wants is cheap. The sender empties the tables.
//! A kernel is identified by the address of its name, which is read when it is first counted: once emptied, a table
//! forgets the addresses, because a module that is unloaded frees its names.

use core::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::names::{NAMES_SEEN, Named};
use crate::queue::QUEUE;

const SHARDS: usize = 16;
const SLOTS: usize = 64;

#[derive(Clone, Copy)]
struct Slot {
    name: usize,
    work: u8,
    id: u32,
    count: u64,
}

const EMPTY: Slot = Slot { name: 0, work: 0, id: 0, count: 0 };

struct Shard([Slot; SLOTS]);

static COUNTS: [Mutex<Shard>; SHARDS] = [const { Mutex::new(Shard([EMPTY; SLOTS])) }; SHARDS];

fn lock(shard: usize) -> MutexGuard<'static, Shard> {
    COUNTS[shard % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a launch by a thread of this shard. A kernel has a name; other work has none.
///
/// # Safety
/// `name` must be null or point to a C string.
pub unsafe fn count(shard: usize, work: u8, name: *const c_char) {
    let mut shard = lock(shard);
    let place = name.addr() >> 3 ^ usize::from(work);
    for probe in 0..8 {
        let slot = &mut shard.0[(place + probe) % SLOTS];
        if slot.count > 0 && slot.name == name.addr() && slot.work == work {
            slot.count += 1;
            return;
        }
        if slot.count == 0 {
            // SAFETY: the caller guarantees the string.
            let id = unsafe { intern(name) };
            *slot = Slot { name: name.addr(), work, id, count: 1 };
            return;
        }
    }
    // SAFETY: the caller guarantees the string.
    let id = unsafe { intern(name) };
    shard.send();
    shard.0[place % SLOTS] = Slot { name: name.addr(), work, id, count: 1 };
}

/// Returns the number of a name; 0 if it has none.
///
/// # Safety
/// `name` must be null or point to a C string.
unsafe fn intern(name: *const c_char) -> u32 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: the caller guarantees the string; no byte past its end or past the longest text is read.
    let text = unsafe { core::slice::from_raw_parts(name.cast(), libc::strnlen(name, wire::MAX_TEXT)) };
    match NAMES_SEEN.intern(text, |message| QUEUE.append(message, 0)) {
        Named::Id(id) => id,
        Named::Full | Named::Unsent => 0,
    }
}

impl Shard {
    /// Queues all counts and empties the table. Counts that do not fit into the queue stay.
    fn send(&mut self) {
        for slot in self.0.iter_mut().filter(|slot| slot.count > 0) {
            let mut bytes = [0; wire::Counted::SIZE];
            wire::Counted { work: slot.work, name: slot.id, count: slot.count }.encode(&mut bytes);
            if QUEUE.append(&bytes, 0) {
                *slot = EMPTY;
            }
        }
    }
}

/// Queues all counts.
pub fn send() {
    (0..SHARDS).for_each(|shard| lock(shard).send());
}
