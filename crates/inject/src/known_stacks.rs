//! Recognises stacks that warpscope has walked before, using the memory it shares ([`wire::known`]).
//!
//! Only the calling thread's own stack is read, between its stack pointer and the end of the stack, which is always
//! mapped. A thread on another stack (a coroutine, a signal stack) is left to the probe.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

mod successors;

use successors::Successors;
use wire::known::{BYTES, Entry, Header, MOST_TRIED, MOST_WORDS, Python, bucket, python_row};

static MEMORY: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());
/// The number of memories so far.
static EPOCH: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static SUCCESSORS: Successors = const { Successors::new() };
    /// The thread's stack: its lowest address and its end. Both 0 before the first query; the end is 1 if it is
    /// unknown.
    static STACK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Maps the memory behind a descriptor, which the caller keeps, if it has the right size and cannot shrink. Without it
/// every stack is walked.
pub fn open(descriptor: i32) {
    if !crate::sys::is_sealed(descriptor, BYTES) {
        return;
    }
    let before = MEMORY.load(Ordering::Acquire);
    let flags = if before.is_null() { libc::MAP_SHARED } else { libc::MAP_SHARED | libc::MAP_FIXED };
    // SAFETY: a new mapping of a file of this size, which its owner has sealed against shrinking, or one in the place of
    // that of an earlier session. It is never unmapped.
    let mapped = unsafe { libc::mmap(before.cast(), BYTES, libc::PROT_READ, flags, descriptor, 0) };
    if mapped != libc::MAP_FAILED {
        EPOCH.fetch_add(1, Ordering::Relaxed);
        MEMORY.store(mapped.cast(), Ordering::Release);
    }
}

/// Releases the shared memory at the end of a session. Threads may still be reading it: private memory without stacks takes
/// its place.
pub fn close() {
    let memory = MEMORY.load(Ordering::Acquire);
    if !memory.is_null() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: replaces a mapping of ours of this size.
        unsafe { libc::mmap(memory.cast(), BYTES, libc::PROT_READ, flags, -1, 0) };
    }
}

/// Returns the layout of this process's Python interpreter, if warpscope has found one.
pub fn python() -> Option<Python> {
    // SAFETY: null or a mapping that is never unmapped; the layout does not change during a session.
    let header = unsafe { MEMORY.load(Ordering::Acquire).as_ref() }?;
    (header.has_python == 1).then_some(header.python)
}

/// A known stack.
#[repr(C)]
pub struct Found {
    /// Its id; 0 if the stack is unknown.
    stack: u64,
    /// 1 if it has no Python frames.
    without_python: u64,
}

const UNKNOWN: Found = Found { stack: 0, without_python: 0 };

/// Returns the process image, and the id of the Python stack with this hash; 0 if there is none (`without_python`), or the
/// program has no Python. `None` if a launch must go through the probe.
pub fn without_probe(hash: u64, without_python: bool) -> Option<(u32, u64)> {
    // SAFETY: null or a mapping that is never unmapped.
    let header = unsafe { MEMORY.load(Ordering::Acquire).as_ref() }?;
    if header.without_probe.load(Ordering::Acquire) == 0 {
        return None;
    }
    if header.has_python == 0 || without_python {
        return Some((header.image, 0));
    }
    let stack = header.pythons[python_row(hash)].iter().find(|stack| stack.hash.load(Ordering::Acquire) == hash)?;
    let id = stack.id.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    (hash != 0 && id != 0 && stack.hash.load(Ordering::Relaxed) == hash).then_some((header.image, id))
}

/// Returns the stack of a call to the marker with these registers.
pub extern "C" fn find(sp: u64, bp: u64) -> Found {
    let memory = MEMORY.load(Ordering::Acquire);
    if memory.is_null() {
        return UNKNOWN;
    }
    let (low, end) = stack();
    if sp < low || sp >= end || sp & 7 != 0 {
        return UNKNOWN;
    }
    // SAFETY: the mapping is `BYTES` long, and begins with a header.
    let header = unsafe { &*memory };
    let generation = header.generation.load(Ordering::Relaxed);
    let matches = |entry: &Entry| {
        let here = entry.sp == sp && entry.bp == bp && entry.generation == generation;
        here && u64::from(entry.span) <= (end - sp) / 8 && is_same(entry, sp)
    };
    SUCCESSORS.with(|successors| {
        let expected = successors.expected(EPOCH.load(Ordering::Relaxed));
        // SAFETY: the offset of an entry of this memory, or 0.
        let mut found = unsafe { entry_at(memory, expected) }.filter(|entry| matches(entry));
        let mut at = expected;
        if found.is_none() {
            at = header.buckets[bucket(sp, bp)].load(Ordering::Acquire);
            for _ in 0..MOST_TRIED {
                // SAFETY: as above.
                let Some(entry) = (unsafe { entry_at(memory, at) }) else { break };
                if matches(entry) {
                    found = Some(entry);
                    break;
                }
                at = entry.next;
            }
        }
        let Some(entry) = found else { return UNKNOWN };
        successors.was(at);
        Found { stack: entry.stack, without_python: entry.without_python.into() }
    })
}

/// Returns the entry at an offset in units of 8 bytes; `None` if there is no room for one.
///
/// # Safety
/// `memory` must be a mapping of [`BYTES`] bytes.
unsafe fn entry_at<'a>(memory: *const Header, at: u32) -> Option<&'a Entry> {
    let offset = at as usize * 8;
    if offset < size_of::<Header>() || offset > BYTES - Entry::size(MOST_WORDS) {
        return None;
    }
    // SAFETY: an entry with the most words fits behind the offset, which is a multiple of 8; entries never change.
    Some(unsafe { &*memory.byte_add(offset).cast::<Entry>() })
}

/// Whether all words that the walk read are unchanged.
fn is_same(entry: &Entry, sp: u64) -> bool {
    let count = (entry.count as usize).min(MOST_WORDS);
    let values = ptr::from_ref(entry).wrapping_add(1).cast::<u64>();
    let places = values.wrapping_add(count).cast::<u16>();
    for index in 0..count {
        // SAFETY: both are behind the entry, within the mapping.
        let (value, place) = unsafe { (values.add(index).read(), places.add(index).read()) };
        if u32::from(place) >= entry.span {
            return false;
        }
        // SAFETY: the word is on this thread's stack, above its stack pointer: `span` words are mapped. Other threads
        // may change it, hence volatile.
        let word = unsafe { ptr::with_exposed_provenance::<u64>(sp as usize + 8 * usize::from(place)).read_volatile() };
        if word != value {
            return false;
        }
    }
    true
}

/// Returns the bounds of the thread's stack.
fn stack() -> (u64, u64) {
    STACK.with(|known| {
        if known.get() == (0, 0) {
            known.set(query_stack());
        }
        known.get()
    })
}

#[cold]
#[inline(never)]
fn query_stack() -> (u64, u64) {
    crate::lifecycle::guarded((0, 1), || {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::zeroed();
        let (mut low, mut size) = (ptr::null_mut::<c_void>(), 0_usize);
        // SAFETY: all pointers are to locals; the attributes are destroyed after a successful call.
        let got = unsafe {
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return (0, 1);
            }
            let got = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            got
        };
        let end = (low.addr() + size) as u64;
        if got == 0 && end > 8 { (low.addr() as u64, end - 8) } else { (0, 1) }
    })
}
