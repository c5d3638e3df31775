//! Hashes the calling thread's Python frames, so that the probe can look the stack up instead of copying and hashing them.
//!
//! The probe remembers a Python stack under the hash that it computed itself, from the same fields in the same order. A
//! hash that does not match one of its own is of no use: the probe then reads the frames.
//!
//! A thread's frames do not change while it is in a CUDA call, and nobody else frees them, with one exception: the thread
//! that finalises the interpreter frees the states of all others. So the main thread's frames are read, which usually is
//! the thread that finalises, and those of a thread that holds the interpreter's lock. Others are left to the probe.
//!
//! Before 3.12 code objects have no numbers, and a freed one may be followed by another at its address. Then what the probe
//! distinguishes them by is read here too: fields, and the contents of names and line tables. All of it belongs to code objects that
//! the thread's frames refer to.
//!
//! This is fast because nothing is copied: a transformer that decodes has 40 Python frames at each launch, which took
//! the probe 3.5 µs. Each frame has the address of the next, and most are not in the nearest cache, so a processor that
//! waits for each address reads one frame at a time. So `Callers` remembers which frame called which, as a guess that
//! the processor runs ahead with; the address in the frame decides. The hash is a sum in which each frame has its own
//! factor, because sums do not wait for each other either.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use wire::known::{Code, MOST_PYTHON_FRAMES, Python, PythonHash, code_tag, hash_bytes};

use crate::{known_stacks, lifecycle};

/// `PyGILState_GetThisThreadState` and `PyGILState_Check`; both or neither.
static STATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static HOLDS_LOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// Whether this is the main thread, once known.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    /// See [`Callers`].
    static CALLERS: Callers = const { Callers([const { Cell::new(0) }; Callers::PLACES]) };
}

/// The frame that called each frame, as last seen: only a prediction. Each frame has the address of the next one, and most are not in
/// the nearest cache, so a processor that had to wait for each address would wait for one frame after the other.
struct Callers([Cell<u64>; Self::PLACES]);

impl Callers {
    /// A power of two. Frames lie one behind the other, and are larger than a unit: those of 32 KiB have places of their own.
    const PLACES: usize = 512;
    const UNIT: u32 = 64;

    /// Returns the caller of a frame, which is `actual`. Where that was predicted, the processor need not wait for it: the
    /// result is then read from the prediction. A compiler would use `actual`, being equal, hence volatile.
    #[inline(always)]
    fn follow(&self, frame: u64, actual: u64) -> u64 {
        let place = self.0[(frame / u64::from(Self::UNIT)) as usize % Self::PLACES].as_ptr();
        // SAFETY: the address of a cell of this thread.
        unsafe {
            if place.read_volatile() == actual {
                return place.read_volatile();
            }
            place.write_volatile(actual);
        }
        actual
    }
}

/// A copy of the interpreter's layout. It stays valid when the shared memory is released: threads may be using it.
struct Layout(UnsafeCell<Option<Python>>);

// SAFETY: it is written only while no session records. A thread that still uses it for an earlier session reads the same
// values, except for the number of the image, which is only hashed.
unsafe impl Sync for Layout {}

static LAYOUT: Layout = Layout(UnsafeCell::new(None));

/// Finds the interpreter's functions. Called when the memory has been mapped, before a session records.
pub fn prepare() {
    let Some(layout) = known_stacks::python() else {
        STATE.store(ptr::null_mut(), Ordering::Release);
        return;
    };
    // SAFETY: see `Layout`.
    unsafe { LAYOUT.0.get().write(Some(layout)) };
    // A program that embeds Python may close it. The loader keeps it: this library depends on a library in which it has found a name.
    // SAFETY: looks a name up in the libraries of the process.
    let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let (state, holds_lock) = (find(c"PyGILState_GetThisThreadState"), find(c"PyGILState_Check"));
    if !state.is_null() && !holds_lock.is_null() {
        HOLDS_LOCK.store(holds_lock, Ordering::Relaxed);
        STATE.store(state, Ordering::Release);
    }
}

/// Returns the hash of the thread's Python frames; 0 if there are none, which the caller may know, or they are left to the
/// probe.
pub extern "C" fn hash(none: u64) -> u64 {
    let state = STATE.load(Ordering::Acquire);
    if state.is_null() || none != 0 {
        return 0;
    }
    // SAFETY: see `Layout`.
    let Some(layout) = (unsafe { &*LAYOUT.0.get() }) else { return 0 };
    // SAFETY: the functions have these types. They read thread-local and global variables, and may be called on any
    // thread at any time.
    let state = unsafe {
        let holds_lock = transmute::<*mut c_void, extern "C" fn() -> c_int>(HOLDS_LOCK.load(Ordering::Relaxed));
        if !is_main() && holds_lock() == 0 {
            return 0;
        }
        transmute::<*mut c_void, extern "C" fn() -> *const c_void>(state)()
    };
    if state.is_null() {
        return 0;
    }
    // SAFETY: the state is this thread's own, see above.
    unsafe { hash_frames(layout, state.addr() as u64) }
}

/// # Safety
/// `state` must be the calling thread's state in an interpreter with this layout, and stay valid.
unsafe fn hash_frames(layout: &Python, state: u64) -> u64 {
    // SAFETY: the fields of the thread state, of its interpreter and of its frames are readable.
    unsafe {
        if word(state, layout.thread_id) != libc::pthread_self() {
            return 0;
        }
        let mut frame = word(state, layout.thread_frame);
        if layout.frame_link != 0 && frame != 0 {
            frame = word(frame, layout.frame_link & 63);
        }
        let numbered = layout.code.words == 0;
        let created = if numbered { created(layout, state) } else { 0 };
        if frame == 0 || (numbered && created == 0) {
            return 0;
        }
        let mut tags = Tags::new();
        CALLERS.with(|callers| {
            let mut hash = PythonHash::EMPTY;
            for _ in 0..MOST_PYTHON_FRAMES {
                if frame == 0 {
                    break;
                }
                let code = word(frame, layout.frame_code);
                let instruction = word(frame, layout.frame_instruction);
                hash = if numbered {
                    hash.with(code, instruction, byte(frame, layout.frame_owner))
                } else if layout.frame_owner != 0 {
                    hash.with(code ^ tags.of(&layout.code, code), instruction, byte(frame, layout.frame_owner))
                } else {
                    // A frame object: the instruction is an int, and the loop was entered for each.
                    hash.with(code ^ tags.of(&layout.code, code), u64::from(instruction as u32), 1)
                };
                frame = callers.follow(frame, word(frame, layout.frame_previous));
            }
            hash.stack(layout.image, created)
        })
    }
}

/// Returns the number of code objects created so far.
///
/// # Safety
/// As [`hash_frames`].
unsafe fn created(layout: &Python, state: u64) -> u32 {
    // SAFETY: the fields of the thread state and of its interpreter are readable.
    unsafe {
        let versions = match layout.versions {
            0 => word(state, layout.thread_interpreter).wrapping_add(layout.interpreter_versions.into()),
            address => address,
        };
        at(versions).cast::<u32>().read_volatile()
    }
}

/// The tags of a stack's code objects. They do not change while the thread is in a CUDA call, so each is computed once: functions
/// recur in a stack, and most are in the same file as their neighbours.
struct Tags {
    codes: [(u64, u64); Self::PLACES],
    file: (u64, u64),
}

impl Tags {
    /// A power of two.
    const PLACES: usize = 16;

    const fn new() -> Self {
        Self { codes: [(0, 0); Self::PLACES], file: (0, 0) }
    }

    /// Returns what distinguishes a code object from earlier ones at its address.
    ///
    /// # Safety
    /// `code` must be a code object with this layout.
    #[inline(always)]
    unsafe fn of(&mut self, layout: &Code, code: u64) -> u64 {
        let place = (code >> 4 ^ code >> 11) as usize % Self::PLACES;
        if self.codes[place].0 == code {
            return self.codes[place].1;
        }
        // SAFETY: the object's fields are readable, and so are the objects that it owns.
        let tag = unsafe {
            let file = word(code, layout.file);
            if self.file.0 != file {
                self.file = (file, hash_text(layout, file));
            }
            code_tag(
                hash_memory(code.wrapping_add(layout.fields.into()), 8 * u64::from(layout.words)),
                hash_text(layout, word(code, layout.name)),
                self.file.1,
                hash_object(layout, word(code, layout.lines)),
            )
        };
        self.codes[place] = (code, tag);
        tag
    }
}

/// Returns a hash of a str object: its own, if it has been computed, otherwise that of its characters.
///
/// # Safety
/// There must be such an object.
#[inline(always)]
unsafe fn hash_text(layout: &Code, object: u64) -> u64 {
    // SAFETY: the object's fields are readable, and so are its characters, which follow.
    unsafe {
        let hash = word(object, layout.text_length.wrapping_add(8));
        let state = word(object, layout.text_state) as u32 >> layout.text_kind_shift;
        if hash != u64::MAX || state & 8 == 0 {
            return hash;
        }
        let data = if state & 16 != 0 { layout.text_ascii } else { layout.text_compact };
        let bytes = word(object, layout.text_length).wrapping_mul(u64::from(state & 7));
        hash_memory(object.wrapping_add(data.into()), bytes)
    }
}

/// The same for a bytes object.
///
/// # Safety
/// There must be such an object.
#[inline(always)]
unsafe fn hash_object(layout: &Code, object: u64) -> u64 {
    // SAFETY: as above.
    unsafe {
        let hash = word(object, layout.bytes_size.wrapping_add(8));
        if hash != u64::MAX {
            return hash;
        }
        hash_memory(object.wrapping_add(layout.bytes_data.into()), word(object, layout.bytes_size))
    }
}

/// # Safety
/// The bytes must be readable, and begin at a multiple of 8: then whole words are.
#[inline(always)]
unsafe fn hash_memory(address: u64, bytes: u64) -> u64 {
    // SAFETY: as the caller guarantees.
    let word = |offset: u64| unsafe { at(address.wrapping_add(offset)).cast::<u64>().read_volatile() };
    hash_bytes(bytes, word)
}

/// # Safety
/// There must be a readable byte at the address, plus the offset.
unsafe fn byte(address: u64, offset: u16) -> u8 {
    // SAFETY: as above.
    unsafe { at(address.wrapping_add(offset.into())).cast::<u8>().read_volatile() }
}

/// # Safety
/// There must be a readable word at the address, plus the offset.
unsafe fn word(address: u64, offset: u16) -> u64 {
    // SAFETY: as above.
    unsafe { at(address.wrapping_add(offset.into())).cast::<u64>().read_volatile() }
}

fn at(address: u64) -> *const c_void {
    ptr::with_exposed_provenance(address as usize)
}

fn is_main() -> bool {
    IS_MAIN.with(|known| {
        known.get().unwrap_or_else(|| {
            // SAFETY: no arguments.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) };
            let main = tid == i64::from(lifecycle::pid());
            known.set(Some(main));
            main
        })
    })
}
