//! Reports launches whose stacks the thread recognised, without the probe ([`wire::launches`]).
//!
//! A launch is a few stores. It goes through the probe if anything that the probe would find out is not known here: the
//! native or the Python stack, or the call that handed over the thread's work.
//!
//! - The native stack is known if its words are ([`crate::known_stacks`]).
//! - The Python stack is known if its hash is one that the probe has confirmed: the collector publishes those, with
//!   their ids. A native stack without a frame of the interpreter has no Python frames. That is how autograd's threads
//!   are recognised, which do not hold the interpreter's lock.
//! - The call that handed over the thread's work is in a map of the BPF programs, one word for each process image. The
//!   map is frozen, so that a process cannot change what others read.
//!
//! The probe remains for new stacks, a thread's first launch, full slots, graph nodes, and `trace`.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use wire::launches::{ABANDONED, BYTES, HANDED, Handed, Header, Launch, Slot, cause, free, offset, written};

use crate::shared::Shared;
use crate::{known_stacks, lifecycle, sys};

/// How often a thread tries to claim a place: others may be faster.
const MOST_TRIES: usize = 64;

const HANDED_BYTES: usize = HANDED * size_of::<Handed>();

static MEMORY: Shared<Header> = Shared::new(BYTES, libc::PROT_READ | libc::PROT_WRITE);
static CALLS: Shared<Handed> = Shared::new(HANDED_BYTES, libc::PROT_READ);

thread_local! {
    /// The session in which the thread launched last, and its thread id.
    static THREAD: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    /// When the launch in progress began.
    static BEGAN: Cell<u64> = const { Cell::new(0) };
}

/// A launch begins now.
pub fn begin() {
    BEGAN.set(sys::now());
}

/// This time does not belong to the launch in progress.
pub fn exclude(nanoseconds: u64) {
    BEGAN.set(BEGAN.get() + nanoseconds);
}

/// Returns how long the launch took that ends now.
pub fn end() -> u64 {
    sys::now().saturating_sub(BEGAN.get())
}

/// Maps what is behind a descriptor, which the caller keeps: the memory for launches, if it has the right size and cannot
/// shrink, or the BPF map of calls that hand over work.
pub fn open(descriptor: i32) {
    // No launch shall wait for a page.
    if sys::is_sealed(descriptor, BYTES) {
        MEMORY.open(descriptor, libc::MAP_POPULATE);
    } else if sys::is_anonymous(descriptor) {
        CALLS.open(descriptor, libc::MAP_POPULATE);
    }
}

/// Releases what is shared at the end of a session.
pub fn close() {
    MEMORY.close();
    CALLS.close();
}

/// Reports a launch with a recognised native stack and the hash of its Python frames, unless it has none
/// (`without_python`). `ids` and `took` are those of the marker. Returns false if it must go through the probe.
pub extern "C" fn report(ids: u64, work: u32, stack: u64, python: u64, without_python: u64, took: u64) -> bool {
    if stack == 0 || work & 0xff == wire::WORK_NODE {
        return false;
    }
    let Some((image, python)) = known_stacks::without_probe(python, without_python != 0) else { return false };
    let (memory, calls) = (MEMORY.get(), CALLS.get());
    if memory.is_null() || calls.is_null() {
        return false;
    }
    let session = lifecycle::session();
    let (last, tid) = THREAD.get();
    if last != session {
        // The probe notes which threads launch.
        // SAFETY: only reads the thread id.
        THREAD.set((session, unsafe { libc::gettid() } as u32));
        return false;
    }
    // SAFETY: a mapping of this many, which is never unmapped.
    let handed = |place: usize| unsafe { &*calls.add(place & (HANDED - 1)) };
    let own = handed(image as usize);
    if own.image.load(Ordering::Acquire) != image || own.pools.load(Ordering::Acquire) != 0 {
        return false;
    }
    let reported = handed(0).calls.load(Ordering::Acquire) != 0;
    let Some(cause) = cause(own.calls.load(Ordering::Acquire), reported) else { return false };
    // SAFETY: only reads the number of the CPU.
    let cpu = unsafe { libc::sched_getcpu() } as u32;
    let (correlation, previous, time) = (ids as u32, (ids >> 32) as u32, BEGAN.get());
    // SAFETY: the mapping begins with a header, and is never unmapped.
    unsafe { write(memory, Launch { correlation, work, tid, cpu, cause, time, stack, python, previous, took }) }
}

/// Writes a launch to the next slot; false if it is not free.
///
/// # Safety
/// `memory` must have [`BYTES`] bytes that are laid out as [`wire::launches`] says.
unsafe fn write(memory: *mut Header, launch: Launch) -> bool {
    // SAFETY: as the caller guarantees.
    let next = unsafe { &(*memory).next };
    for _ in 0..MOST_TRIES {
        let place = next.load(Ordering::Relaxed);
        // SAFETY: the slot of any place is within the memory.
        let slot = unsafe { &*memory.byte_add(offset(place)).cast::<Slot>() };
        let state = slot.state.load(Ordering::Acquire);
        if state < free(place) {
            return false;
        }
        let claims =
            || next.compare_exchange_weak(place, place.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if state == ABANDONED {
            // Passed over: it belongs to the thread that claimed it.
            claims();
        } else if state == free(place) && claims() {
            for (to, word) in slot.words.iter().zip(launch.encode()) {
                to.store(word, Ordering::Relaxed);
            }
            slot.state.store(written(place), Ordering::Release);
            prefetch(memory.wrapping_byte_add(offset(place.wrapping_add(1))));
            return true;
        }
    }
    false
}

/// Fetches the slot of the next launch for writing: warpscope has it in its own cache, and a launch would wait for it.
fn prefetch(slot: *const Header) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: has no effect but on the cache, at any address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(slot.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::sync::atomic::AtomicU64;
    use wire::launches::SLOTS;

    /// Check that threads that write at once never share a slot, that a full memory refuses exactly what does not fit, and
    /// that each thread's launches keep their order.
    #[test]
    fn every_launch_is_written_or_refused() {
        const THREADS: u32 = 4;
        const EACH: u32 = 100_000;
        let layout = Layout::from_size_align(BYTES, 4096).unwrap();
        // SAFETY: not empty.
        let memory = unsafe { alloc_zeroed(layout) } as usize;
        let refused = AtomicU64::new(0);
        let running = AtomicU64::new(THREADS.into());
        let mut last = [0; THREADS as usize];
        let mut read = 0_u64;
        std::thread::scope(|scope| {
            for tid in 0..THREADS {
                let (refused, running) = (&refused, &running);
                scope.spawn(move || {
                    for correlation in 1..=EACH {
                        let launch = Launch {
                            correlation,
                            work: 1,
                            tid,
                            cpu: 0,
                            cause: 0,
                            time: 0,
                            stack: 3,
                            python: correlation.into(),
                            previous: 0,
                            took: 0,
                        };
                        // SAFETY: the memory is that large, and all zeros.
                        if !unsafe { write(ptr::with_exposed_provenance_mut(memory), launch) } {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            loop {
                let finished = running.load(Ordering::SeqCst) == 0;
                // SAFETY: the slot is within the memory.
                let slot = unsafe { &*ptr::with_exposed_provenance::<Slot>(memory + offset(read)) };
                if slot.state.load(Ordering::Acquire) != written(read) {
                    if finished {
                        break;
                    }
                    std::hint::spin_loop();
                    continue;
                }
                let launch = Launch::decode(std::array::from_fn(|at| slot.words[at].load(Ordering::Relaxed)));
                slot.state.store(free(read + SLOTS as u64), Ordering::Release);
                assert_eq!(launch.python, u64::from(launch.correlation));
                assert!(launch.correlation > last[launch.tid as usize]);
                last[launch.tid as usize] = launch.correlation;
                read += 1;
            }
        });
        assert_eq!(read + refused.load(Ordering::Relaxed), u64::from(THREADS * EACH));
        assert!(read >= SLOTS as u64);
        // SAFETY: allocated above with this layout.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(memory), layout) };
    }
}
