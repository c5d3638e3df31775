//! Recognises stacks that warpscope has walked before, using the memory it shares ([`wire::known`]).
//!
//! Only the calling thread's own stack is read, between its stack pointer and the end of the stack, which is always
//! mapped. A thread on another stack (a coroutine, a signal stack) is left to the probe.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use core::{ptr, slice};

use wire::known::{BYTES, Header, Python, python_row, tree};

static MEMORY: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());
/// Changes before other memory takes the place of this one.
static EPOCH: AtomicU32 = AtomicU32::new(0);

thread_local! {
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
    EPOCH.fetch_add(1, Ordering::SeqCst);
    let before = MEMORY.load(Ordering::Acquire);
    let flags = if before.is_null() { libc::MAP_SHARED } else { libc::MAP_SHARED | libc::MAP_FIXED };
    // SAFETY: a new mapping of a file of this size, which its owner has sealed against shrinking, or one in the place of
    // that of an earlier session. It is never unmapped.
    let mapped = unsafe { libc::mmap(before.cast(), BYTES, libc::PROT_READ, flags, descriptor, 0) };
    if mapped != libc::MAP_FAILED {
        MEMORY.store(mapped.cast(), Ordering::Release);
    }
}

/// Releases the shared memory at the end of a session. Threads may still be reading it: private memory without stacks takes
/// its place.
pub fn close() {
    let memory = MEMORY.load(Ordering::Acquire);
    if !memory.is_null() {
        EPOCH.fetch_add(1, Ordering::SeqCst);
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
    let (low, end) = bounds();
    if sp < low || sp >= end || sp & 7 != 0 {
        return UNKNOWN;
    }
    let epoch = EPOCH.load(Ordering::SeqCst);
    // SAFETY: the mapping is `BYTES` long, begins with a header, and is never unmapped. What changes is atomic.
    let (header, words) = unsafe { (&*memory, slice::from_raw_parts(memory.cast::<AtomicU64>(), BYTES / 8)) };
    let most = (end - sp) / 8;
    let word = |place: u64| {
        if place >= most {
            return None;
        }
        // SAFETY: the word is on this thread's stack, above its stack pointer, where all is mapped. Other threads may
        // change it, hence volatile.
        Some(unsafe { ptr::with_exposed_provenance::<u64>((sp + 8 * place) as usize).read_volatile() })
    };
    match tree::find(header, words, (sp, bp), word) {
        Some(entry) if EPOCH.load(Ordering::SeqCst) == epoch => {
            Found { stack: entry.stack, without_python: entry.without_python.into() }
        }
        _ => UNKNOWN,
    }
}

/// Returns the bounds of the thread's stack.
fn bounds() -> (u64, u64) {
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
