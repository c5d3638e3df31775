//! Writes traced API calls to the memory that warpscope shares ([`wire::calls`]).
//!
//! A thread claims a ring at its first call and releases it when it exits. After that first call the path has no lock, no
//! allocation and no system call: what to capture is in a table, arguments are copied from CUPTI's parameter structure,
//! and an event is a few stores. A call that does not fit into the ring is counted.

mod pointers;

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use cupti::callback::CallbackData;
use cupti::ids::domain;
use wire::calls::{
    BYTES, Capture, ENTER, EXIT, FIRST, FREE, FUNCTIONS, HAS_OUT, Head, Header, IS_FIRST, LAUNCHES, LEFT, MOST_DEPTH,
    MOST_TEXT, RINGS, Ring, TEXT, THREAD, USED, function, offset, words,
};

use self::pointers::{copy, copy_text, pointer};
use crate::sys;

static MEMORY: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());
/// Calls are written. Independent of the session, which ends before the program's last calls.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// A thread has reported its first runtime call.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Calls that were made before the memory arrived.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// An open call of a thread.
#[derive(Clone, Copy)]
struct Open {
    function: u16,
    correlation: u32,
    /// The address of its parameters, on the stack of the call.
    at: usize,
    /// Words reserved for its exit; 0 if the call was dropped.
    reserved: usize,
}

/// What a thread knows of its ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It has made no call yet.
    Unknown,
    /// Its ring.
    Ring(usize),
    /// There was no free ring.
    None,
    /// Its calls are the library's own.
    Ignored,
}

struct Thread {
    place: Cell<Place>,
    head: Cell<u64>,
    /// Words reserved for the exits of open calls.
    reserved: Cell<usize>,
    open: [Cell<Open>; MOST_DEPTH],
    depth: Cell<usize>,
    /// It has not reported a runtime call yet. The first one may have begun before CUDA was initialised.
    first: Cell<bool>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Place::Ring(index) = self.place.get()
            && ACTIVE.load(Ordering::Relaxed)
            && let Some(ring) = memory().and_then(|memory| memory.rings.get(index))
        {
            ring.state.store(LEFT, Ordering::Release);
        }
    }
}

thread_local! {
    static THIS: Thread = const {
        const NONE: Open = Open { function: 0, correlation: 0, at: 0, reserved: 0 };
        Thread {
            place: Cell::new(Place::Unknown),
            head: Cell::new(0),
            reserved: Cell::new(0),
            open: [const { Cell::new(NONE) }; MOST_DEPTH],
            depth: Cell::new(0),
            first: Cell::new(true),
        }
    };
}

/// Starts counting calls; they are written once the memory is there.
pub fn begin() {
    ACTIVE.store(true, Ordering::SeqCst);
}

/// Stops writing calls.
pub fn end() {
    ACTIVE.store(false, Ordering::SeqCst);
}

/// Ignores the calls of the current thread: it is the library's own.
pub fn ignore_this_thread() {
    let _ = THIS.try_with(|this| this.place.set(Place::Ignored));
}

/// Whether calls are written.
#[inline]
pub fn are_traced() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Maps the memory behind a descriptor, which the caller keeps, if it has the right size and cannot shrink.
pub fn open(descriptor: i32) {
    if !sys::is_sealed(descriptor, BYTES) {
        return;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file of this size, which cannot shrink; it is never unmapped.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, descriptor, 0) };
    if mapped != libc::MAP_FAILED {
        let memory = mapped.cast::<Header>();
        // SAFETY: the mapping begins with a header.
        unsafe { &*memory }.without_ring.fetch_add(MISSED.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        MEMORY.store(memory, Ordering::Release);
    }
}

fn memory() -> Option<&'static Header> {
    // SAFETY: null, or a mapping that begins with a header and is never unmapped.
    unsafe { MEMORY.load(Ordering::Acquire).as_ref() }
}

/// Whether the calls of a function are traced; `None` if that is not known yet.
pub fn is_traced(domain: u32, cbid: u32) -> Option<bool> {
    let memory = memory()?;
    Some(function(domain, cbid).and_then(|number| capture(memory, number)).is_some())
}

/// Whether a thread has reported its first runtime call.
pub fn have_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// What to capture of a function, if its calls are traced.
fn capture(memory: &Header, number: u16) -> Option<Capture> {
    let (domain, id) = (usize::from(number) / FUNCTIONS, usize::from(number) % FUNCTIONS);
    let capture = memory.functions.get(domain)?.get(id)?;
    (capture.traced != 0).then(|| capture.checked())
}

/// A call begins. With `marked`, the marker has announced its launch.
pub fn on_enter(of: u32, cbid: u32, data: &CallbackData, time: u64, marked: bool) {
    let Some(number) = function(of, cbid) else { return };
    let _ = THIS.try_with(|this| {
        if this.place.get() == Place::Ignored {
            return;
        }
        let Some(memory) = memory() else {
            MISSED.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let capture = capture(memory, number);
        let first = of == domain::RUNTIME && this.first.replace(false);
        if first {
            BEGUN.store(true, Ordering::Relaxed);
        }
        match capture {
            Some(capture) => this.enter(memory, number, &capture, data, time, marked, first),
            None if first => this.write_first(memory, time),
            None => {}
        }
    });
}

/// A call returns.
pub fn on_exit(of: u32, cbid: u32, data: &CallbackData, time: u64) {
    let (Some(number), Some(memory)) = (function(of, cbid), memory()) else { return };
    let Some(capture) = capture(memory, number) else { return };
    let _ = THIS.try_with(|this| this.exit(memory, number, &capture, data, time));
}

impl Thread {
    #[allow(clippy::too_many_arguments, reason = "the parts of one event")]
    fn enter(
        &self,
        memory: &Header,
        number: u16,
        capture: &Capture,
        data: &CallbackData,
        time: u64,
        marked: bool,
        first: bool,
    ) {
        let at = if data.params.is_null() { ptr::from_ref(data).addr() } else { data.params.addr() };
        self.drop_left(data.correlation_id, at);
        let depth = self.depth.get();
        let Some(open) = self.open.get(depth) else {
            memory.too_deep.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Some((index, ring)) = self.ring(memory, time) else {
            memory.without_ring.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let parameters = if data.params.is_null() { 0 } else { usize::from(capture.parameters) };
        let (enter, exit) = (3 + parameters.div_ceil(8), capture.exit_words());
        let fits = self.free(ring, index) >= enter + exit;
        let reserved = if fits { exit } else { 0 };
        self.depth.set(depth + 1);
        open.set(Open { function: number, correlation: data.correlation_id, at, reserved });
        if !fits {
            // This thread is the only writer.
            ring.dropped.store(ring.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        self.reserved.set(self.reserved.get() + reserved);
        let flags = if marked { LAUNCHES } else { 0 } | if first { IS_FIRST } else { 0 };
        let recorded = self.open.iter().take(depth).filter(|open| open.get().reserved != 0).count();
        let head = Head { kind: ENTER, flags, function: number, depth: recorded as u16, words: enter as u16 };
        let mut event = Event::new(memory, index, self.head.get());
        event.put(head.encode());
        event.put(time);
        // SAFETY: only reads the number of the CPU.
        let cpu = unsafe { libc::sched_getcpu() } as u32;
        event.put(u64::from(data.correlation_id) | u64::from(cpu) << 32);
        // SAFETY: CUPTI points this at the call's parameters, whose first bytes are the known arguments.
        unsafe { event.put_bytes(data.params.cast(), parameters) };
        self.publish(ring, &event);
    }

    fn exit(&self, memory: &Header, number: u16, capture: &Capture, data: &CallbackData, time: u64) {
        let Place::Ring(index) = self.place.get() else { return };
        let Some(ring) = memory.rings.get(index) else { return };
        let ours = |open: &Open| open.function == number && open.correlation == data.correlation_id;
        let Some(depth) = (0..self.depth.get().min(MOST_DEPTH)).rev().find(|at| ours(&self.open[*at].get())) else {
            return;
        };
        self.cut(depth + 1);
        let Open { reserved, .. } = self.open[depth].get();
        self.cut(depth);
        if reserved == 0 {
            return;
        }
        // SAFETY: on exit CUPTI points this at the call's result; null is checked.
        let result = unsafe { data.return_value.as_ref() }.copied().unwrap_or(0);
        let mut buffer = MaybeUninit::<[u8; MOST_TEXT]>::uninit();
        let valid = result == 0;
        let out = pointer(data, capture.out).and_then(|from| {
            let mut bytes = [0_u8; 8];
            // SAFETY: the buffer has 8 bytes.
            (unsafe { copy(from, bytes.as_mut_ptr(), 8, valid) }).then(|| u64::from_ne_bytes(bytes))
        });
        let payload = pointer(data, capture.payload).map_or(0, |from| {
            let to = buffer.as_mut_ptr().cast::<u8>();
            // SAFETY: the buffer holds the longest text and the longest struct.
            unsafe {
                match capture.length {
                    TEXT => copy_text(from, to, valid),
                    length => usize::from(copy(from, to, length.into(), valid)) * usize::from(length),
                }
            }
        });
        let words = 3 + usize::from(out.is_some()) + payload.div_ceil(8);
        let flags = if out.is_some() { HAS_OUT } else { 0 };
        let recorded = self.open.iter().take(depth).filter(|open| open.get().reserved != 0).count();
        let head = Head { kind: EXIT, flags, function: number, depth: recorded as u16, words: words as u16 };
        let mut event = Event::new(memory, index, self.head.get());
        event.put(head.encode());
        event.put(time);
        event.put(u64::from(result) | (payload as u64) << 32);
        if let Some(out) = out {
            event.put(out);
        }
        // SAFETY: the payload was just written there.
        unsafe { event.put_bytes(buffer.as_ptr().cast(), payload) };
        self.publish(ring, &event);
    }

    /// The thread's first runtime call is not traced.
    #[cold]
    fn write_first(&self, memory: &Header, time: u64) {
        let Some((index, ring)) = self.ring(memory, time) else { return };
        if self.free(ring, index) >= 2 {
            let mut event = Event::new(memory, index, self.head.get());
            event.put(Head { kind: FIRST, flags: 0, function: 0, depth: 0, words: 2 }.encode());
            event.put(time);
            self.publish(ring, &event);
        }
    }

    /// Drops calls that were left without an exit, by longjmp: a call that began later is not within them if its
    /// correlation id is another one and its parameters are not further down the stack.
    fn drop_left(&self, correlation: u32, at: usize) {
        let mut depth = self.depth.get().min(MOST_DEPTH);
        while depth > 0 {
            let open = self.open[depth - 1].get();
            if open.correlation == correlation || open.at > at {
                break;
            }
            depth -= 1;
        }
        self.cut(depth);
    }

    /// Drops the open calls from this depth on.
    fn cut(&self, depth: usize) {
        for open in self.open.iter().take(self.depth.get()).skip(depth) {
            self.reserved.set(self.reserved.get().saturating_sub(open.get().reserved));
        }
        self.depth.set(depth.min(self.depth.get()));
    }

    /// Returns the thread's ring, which it claims at its first call.
    #[inline]
    fn ring<'a>(&self, memory: &'a Header, time: u64) -> Option<(usize, &'a Ring)> {
        match self.place.get() {
            Place::Ring(index) => Some((index, memory.rings.get(index)?)),
            // Another thread may have exited since.
            Place::Unknown | Place::None => self.claim(memory, time),
            Place::Ignored => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn claim<'a>(&self, memory: &'a Header, time: u64) -> Option<(usize, &'a Ring)> {
        let claimed = |ring: &Ring| {
            ring.state.load(Ordering::Relaxed) == FREE
                && ring.state.compare_exchange(FREE, USED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        self.place.set(Place::None);
        let index = (0..RINGS).find(|index| claimed(&memory.rings[*index]))?;
        let ring = &memory.rings[index];
        self.place.set(Place::Ring(index));
        self.head.set(ring.head.load(Ordering::Relaxed));
        let mut event = Event::new(memory, index, self.head.get());
        event.put(Head { kind: THREAD, flags: 0, function: 0, depth: 0, words: 3 }.encode());
        event.put(time);
        // SAFETY: only reads the thread id.
        event.put(unsafe { libc::gettid() } as u64);
        self.publish(ring, &event);
        Some((index, ring))
    }

    /// Returns the words that are neither used nor reserved.
    fn free(&self, ring: &Ring, index: usize) -> usize {
        let used = self.head.get().wrapping_sub(ring.read.tail.load(Ordering::Acquire)) as usize;
        words(index).saturating_sub(used).saturating_sub(self.reserved.get())
    }

    fn publish(&self, ring: &Ring, event: &Event) {
        self.head.set(event.head);
        ring.head.store(event.head, Ordering::Release);
    }
}

/// An event that is being written.
struct Event {
    base: *const AtomicU64,
    mask: u64,
    head: u64,
}

impl Event {
    fn new(memory: &Header, index: usize, head: u64) -> Self {
        let index = index % RINGS;
        let base = ptr::from_ref(memory).wrapping_byte_add(offset(index)).cast();
        Self { base, mask: words(index) as u64 - 1, head }
    }

    fn put(&mut self, word: u64) {
        // SAFETY: the mapping has this ring's words at the base, as many as the mask says.
        unsafe { &*self.base.add((self.head & self.mask) as usize) }.store(word, Ordering::Relaxed);
        self.head += 1;
    }

    /// Writes bytes, padded with zeros.
    ///
    /// # Safety
    /// `length` bytes must be readable there.
    unsafe fn put_bytes(&mut self, from: *const u8, length: usize) {
        for at in (0..length).step_by(8) {
            let mut word = [0_u8; 8];
            // SAFETY: at most 8 bytes, within the length.
            unsafe { ptr::copy_nonoverlapping(from.add(at), word.as_mut_ptr(), (length - at).min(8)) };
            self.put(u64::from_ne_bytes(word));
        }
    }
}
