//! The client's buffers: requested, filled and returned.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};

use cupti::ids::kind;
use cupti::types::{BufferCompletedFn, BufferRequestedFn};

use super::record::{self, Times};
use crate::activity::Activity;
use crate::table::Table;

/// The client's two functions.
#[derive(Clone, Copy)]
pub struct Client {
    /// Provides a buffer.
    pub requested: BufferRequestedFn,
    /// Receives a completed buffer.
    pub completed: BufferCompletedFn,
}

static CLIENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the client that registered last. Buffers requested from an earlier one are returned to this one.
pub fn client() -> Option<&'static Client> {
    // SAFETY: null, or a client, which is never freed.
    unsafe { CLIENT.load(Ordering::Acquire).as_ref() }
}

/// Replaces the client. Never freed, because a buffer may be on its way to it.
pub fn set_client(client: Option<Client>) {
    let new = client.map_or(std::ptr::null_mut(), |client| Box::into_raw(Box::new(client)));
    CLIENT.store(new, Ordering::Release);
}

/// The contents of a buffer, for the ground truth.
#[derive(Debug, Default)]
struct Tally {
    kernels: u64,
    copies: u64,
    memsets: u64,
    syncs: u64,
    zero_time: u64,
    unfinished: u64,
    kernel_ns: u64,
}

/// A client's buffer being filled.
#[derive(Debug)]
pub struct Buffer {
    start: *mut u8,
    size: usize,
    used: usize,
    room: usize,
    tally: Tally,
}

// SAFETY: the memory belongs to the holder of the buffer until it is returned to the client.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Requests a buffer from the client; `None` if it provides none.
    pub fn request(client: &Client) -> Option<Buffer> {
        let (mut start, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: the client registered the function for this purpose; all three pointers are valid.
        unsafe { (client.requested)(&mut start, &mut size, &mut most) };
        let room = if most == 0 { usize::MAX } else { most };
        (!start.is_null() && size > 0).then_some(Buffer { start, size, used: 0, room, tally: Tally::default() })
    }

    /// Whether a record of this length fits.
    pub fn fits(&self, stride: usize) -> bool {
        self.room > 0 && self.size - self.used >= stride
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a record that fits.
    pub fn push(&mut self, activity: &Activity, stride: usize, times: Times) {
        debug_assert!(self.fits(stride));
        // SAFETY: the record fits, and the memory is ours until it is returned.
        unsafe {
            let to = self.start.add(self.used);
            to.write_bytes(0, stride);
            record::write(to, activity, times);
        }
        self.used += stride;
        self.room -= 1;
        let tally = &mut self.tally;
        match activity.detail.kind() {
            kind::CONCURRENT_KERNEL | kind::GRAPH_TRACE => tally.kernels += 1,
            kind::MEMCPY | kind::MEMCPY2 => tally.copies += 1,
            kind::MEMSET => tally.memsets += 1,
            _ => tally.syncs += 1,
        }
        match times {
            Times::Zero => tally.zero_time += 1,
            Times::Unfinished => tally.unfinished += 1,
            Times::Known if matches!(activity.detail.kind(), kind::CONCURRENT_KERNEL | kind::GRAPH_TRACE) => {
                tally.kernel_ns += activity.end - activity.start;
            }
            Times::Known => {}
        }
    }

    /// Returns the buffer to the client.
    fn complete(self, gpu: &Table) {
        let Some(client) = client() else { return };
        let (truth, tally) = (gpu.truth, self.tally);
        truth.delivered.kernel.add(tally.kernels);
        truth.delivered.copy.add(tally.copies);
        truth.delivered.memset.add(tally.memsets);
        truth.delivered.sync.add(tally.syncs);
        truth.zero_time.add(tally.zero_time);
        truth.unfinished.add(tally.unfinished);
        truth.kernel_ns.add(tally.kernel_ns);
        // Context and stream are null and 0 in every release since CUDA 6.
        // SAFETY: the client registered the function for this purpose, and the buffer is its own.
        unsafe { (client.completed)(std::ptr::null_mut(), 0, self.start, self.size, self.used) };
    }
}

/// Full buffers waiting for the worker.
static FULL: Mutex<VecDeque<Buffer>> = Mutex::new(VecDeque::new());
static WAITING: Condvar = Condvar::new();
/// Buffers taken from [`FULL`] and not yet returned.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

fn full() -> MutexGuard<'static, VecDeque<Buffer>> {
    FULL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(queue: &mut VecDeque<Buffer>) -> Option<Buffer> {
    let buffer = queue.pop_front()?;
    IN_FLIGHT.fetch_add(1, Ordering::AcqRel);
    Some(buffer)
}

fn hand_over(gpu: &Table, buffer: Buffer) {
    buffer.complete(gpu);
    IN_FLIGHT.fetch_sub(1, Ordering::AcqRel);
}

/// Returns full buffers to the client: from the worker, or at once if the script or `here` requires it.
pub fn deliver(gpu: &'static Table, buffers: Vec<Buffer>, here: bool) {
    if buffers.is_empty() {
        return;
    }
    if here || (gpu.script)().deliver_on_launcher {
        for buffer in buffers {
            buffer.complete(gpu);
        }
        return;
    }
    static WORKER: Once = Once::new();
    WORKER.call_once(|| start_worker(gpu));
    full().extend(buffers);
    WAITING.notify_one();
}

/// Returns the buffers waiting for the worker, and waits for those that it is returning.
pub fn settle(gpu: &Table) {
    loop {
        let next = take(&mut full());
        match next {
            Some(buffer) => hand_over(gpu, buffer),
            None => break,
        }
    }
    while IN_FLIGHT.load(Ordering::Acquire) != 0 {
        std::thread::yield_now();
    }
}

fn work(gpu: &'static Table) {
    loop {
        let mut queue = full();
        let buffer = loop {
            match take(&mut queue) {
                Some(buffer) => break buffer,
                None => queue = WAITING.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        hand_over(gpu, buffer);
    }
}

/// Starts the worker with all signals blocked: signals are for the program's threads.
fn start_worker(gpu: &'static Table) {
    // SAFETY: all zero is a valid signal set, and all three calls get valid sets.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        // Without a worker, the next flush delivers.
        let _ = std::thread::Builder::new().name("cupti-worker".into()).spawn(move || work(gpu));
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}
