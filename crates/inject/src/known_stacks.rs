//! Recognises stacks that warpscope has walked before, using the memory it shares ([`wire::known`]).
//!
//! Only the calling thread's own stack is read, between its stack pointer and the end of the stack, which is always
//! mapped. A thread on another stack (a coroutine, a signal stack) is left to the probe.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use core::{ptr, slice};

mod successors;

use successors::Successors;
use wire::known::{BYTES, Header, Python, python_row, tree};

use crate::shared::Shared;

static MEMORY: Shared<Header> = Shared::new(BYTES, libc::PROT_READ);
/// Changes before other memory takes the place of this one.
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
    EPOCH.fetch_add(1, Ordering::SeqCst);
    MEMORY.open(descriptor, 0);
}

/// Releases the shared memory at the end of a session.
pub fn close() {
    EPOCH.fetch_add(1, Ordering::SeqCst);
    MEMORY.close();
}

/// Returns the layout of this process's Python interpreter, if warpscope has found one.
pub fn python() -> Option<Python> {
    // SAFETY: null or a mapping that is never unmapped; the layout does not change during a session.
    let header = unsafe { MEMORY.get().as_ref() }?;
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
    let header = unsafe { MEMORY.get().as_ref() }?;
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

/// The words of this thread's stack above a stack pointer.
#[derive(Clone, Copy)]
struct OwnStack {
    sp: u64,
    /// The place of the last one.
    last: u64,
}

impl tree::Words for OwnStack {
    #[inline(always)]
    fn count(self) -> u64 {
        self.last + 1
    }

    #[inline(always)]
    fn at(self, place: u64) -> u64 {
        // SAFETY: the word is on this thread's stack, above its stack pointer, where all is mapped. Other threads may
        // change it, hence volatile.
        unsafe { ptr::with_exposed_provenance::<u64>((self.sp + 8 * place.min(self.last)) as usize).read_volatile() }
    }
}

/// Returns the stack of a call to the marker with these registers.
pub extern "C" fn find(sp: u64, bp: u64) -> Found {
    let memory = MEMORY.get();
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
    let stack = OwnStack { sp, last: (end - sp) / 8 };
    SUCCESSORS.with(|successors| {
        let expected = |generation: u32| successors.expected(u64::from(epoch) << 32 | u64::from(generation));
        match tree::find(header, words, (sp, bp), stack, expected) {
            Some((at, entry)) if EPOCH.load(Ordering::SeqCst) == epoch => {
                successors.was(at);
                Found { stack: entry.stack, without_python: entry.without_python.into() }
            }
            _ => UNKNOWN,
        }
    })
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
