//! Counts launches that are not recorded, by kernel.
//!
//! Threads count in tables of their own, mostly: a lock that no one else wants is cheap. The sender empties the tables.
//! A kernel is identified by the address of its name, which is read when it is first counted: once emptied, a table
//! forgets the addresses, because a module that is unloaded frees its names.

use core::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::names::{NAMES_SEEN, Named};
use crate::queue::QUEUE;
use crate::totals::{TOTALS, add};

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

/// Counts a launch by a thread of this shard. A kernel has a name; other work has none. If the table and the queue are full, the launch
/// is counted as dropped.
///
/// # Safety
/// `name` must be null or point to a C string.
pub unsafe fn count(shard: usize, work: u8, name: *const c_char) {
    let mut shard = lock(shard);
    let place = shard.place(name.addr(), work).or_else(|| {
        shard.send();
        shard.place(name.addr(), work)
    });
    let Some(slot) = place.map(|place| &mut shard.0[place]) else { return add(&TOTALS.dropped_launches, 1) };
    if slot.count == 0 {
        // SAFETY: the caller guarantees the string.
        let Some(id) = (unsafe { intern(name) }) else { return add(&TOTALS.dropped_launches, 1) };
        *slot = Slot { name: name.addr(), work, id, count: 0 };
    }
    slot.count += 1;
}

/// Returns the number of a name; 0 if it has none. `None` if the queue is full.
///
/// # Safety
/// `name` must be null or point to a C string.
unsafe fn intern(name: *const c_char) -> Option<u32> {
    if name.is_null() {
        return Some(0);
    }
    // SAFETY: the caller guarantees the string; no byte past its end or past the longest text is read.
    let text = unsafe { core::slice::from_raw_parts(name.cast(), libc::strnlen(name, wire::MAX_TEXT)) };
    match NAMES_SEEN.intern(text, |message| QUEUE.append(message, 0)) {
        Named::Id(id) => Some(id),
        Named::Full => {
            add(&TOTALS.nameless, 1);
            Some(0)
        }
        Named::Unsent => None,
    }
}

impl Shard {
    /// Returns the place of a kernel, or a free one; `None` if there is none near by.
    fn place(&self, name: usize, work: u8) -> Option<usize> {
        let first = name >> 3 ^ usize::from(work);
        let mut places = (0..8).map(|probe| (first + probe) % SLOTS);
        places.find(|place| {
            let slot = &self.0[*place];
            slot.count == 0 || slot.name == name && slot.work == work
        })
    }

    /// Queues all counts and empties the table. Counts that do not fit into the queue stay: returns false.
    fn send(&mut self) -> bool {
        for slot in self.0.iter_mut().filter(|slot| slot.count > 0) {
            let mut bytes = [0; wire::Counted::SIZE];
            wire::Counted { work: slot.work, name: slot.id, count: slot.count }.encode(&mut bytes);
            if !QUEUE.append(&bytes, 0) {
                return false;
            }
            *slot = EMPTY;
        }
        true
    }
}

/// Queues all counts; false if the queue is full.
pub fn send() -> bool {
    let mut all = true;
    for shard in 0..SHARDS {
        all &= lock(shard).send();
    }
    all
}
