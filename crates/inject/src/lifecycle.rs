//! The session's state, and the handling of fork and exit.
//!
//! - **fork**: the child has no sender thread and no usable CUDA. An `atfork` handler ends the session there and closes
//!   the socket. A child that calls exec inherits the variables, and its own `cuInit` loads the library again.
//! - **exit**: an `atexit` handler makes the sender flush, send the rest of the queue and the last totals, and end the
//!   session, and waits for it.
//! - **`_exit` or a signal**: nothing more can be sent. What was sent counts; the ledger says that the process exited
//!   before flushing its GPU records. CUPTI is flushed every 50 ms, so that little is missing.
//! - **The end of `-d`**: warpscope sends one byte (`wire::FINISH`), and waits at most 2 s until the library has
//!   flushed, sent the rest and ended its session.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{client, earlier_launches, gate, sys, wakeup};

/// No session, or one that has not begun to record.
const NEW: u8 = 0;
/// Launches are marked, and records are read.
const LIVE: u8 = 1;
/// Only the records of marked launches are still read.
const LEAVING: u8 = 2;
const ENDED: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(NEW);
static SESSION: AtomicU64 = AtomicU64::new(0);
static PID: AtomicI32 = AtomicI32::new(0);
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// The socket's inode. If the program closes all descriptors, the socket's number may be reused for another file.
static SOCKET_INODE: AtomicU64 = AtomicU64::new(0);
/// The descriptor is moved up to this number or above, away from programs that rely on low numbers.
const LOWEST_DESCRIPTOR: i32 = 200;

/// Not 0 once the process exits.
static EXITING: AtomicU32 = AtomicU32::new(0);
/// Not 0 once the sender thread has finished.
static DONE: AtomicU32 = AtomicU32::new(0);

/// Counts what the sender has achieved: buffers read and packets sent.
static PROGRESS: AtomicU32 = AtomicU32::new(0);

/// Whether the process has a session, or one is being set up or ended.
static CLAIMED: AtomicBool = AtomicBool::new(false);
/// Whether the exit and fork handlers are registered. They stay, and do nothing without a session.
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// The other end of the connection until warpscope has a copy of it, if it was created here.
static OTHER_END: AtomicI32 = AtomicI32::new(-1);
static OTHER_INODE: AtomicU64 = AtomicU64::new(0);

/// The longest time that process exit waits for the last messages: as long as there is progress, and in total. On a busy
/// machine the sender and warpscope are slow, but they do advance.
const EXIT_PATIENCE: u64 = 2_000_000_000;
const EXIT_DEADLINE: u64 = 10_000_000_000;
/// How often progress is checked.
const EXIT_CHECK: u64 = 100_000_000;

/// Runs code that must not unwind into C and must not change the caller's errno.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    let saved = sys::errno();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise);
    sys::set_errno(saved);
    result
}

/// Whether launches are marked. False in a forked child, after the peer has disconnected and during exit.
#[inline]
pub fn is_live() -> bool {
    STATE.load(Ordering::Relaxed) == LIVE
}

/// Whether records are read.
#[inline]
pub fn is_reading() -> bool {
    matches!(STATE.load(Ordering::Relaxed), LIVE | LEAVING)
}

/// Claims the process for a new session; false if it has one.
pub fn claim() -> bool {
    !CLAIMED.swap(true, Ordering::SeqCst)
}

/// The session has ended completely: another one is possible.
pub fn release() {
    CLAIMED.store(false, Ordering::SeqCst);
}

/// The session's random id, which every marker carries.
#[inline]
pub fn session() -> u64 {
    SESSION.load(Ordering::Relaxed)
}

/// The process id in the process's own namespace.
pub fn pid() -> u32 {
    PID.load(Ordering::Relaxed) as u32
}

/// The connection; -1 if there is none, or if the program has closed it and the number may refer to another file.
pub fn socket() -> i32 {
    let socket = SOCKET.load(Ordering::Acquire);
    if socket >= 0 && inode(socket) == SOCKET_INODE.load(Ordering::Relaxed) { socket } else { -1 }
}

/// Returns the inode behind a descriptor, 0 if it is not a socket. All Unix sockets share one file system.
fn inode(descriptor: i32) -> u64 {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `status` is writable, and all zeros is a value of the type.
    let status = unsafe {
        libc::fstat(descriptor, status.as_mut_ptr());
        status.assume_init()
    };
    if status.st_mode & libc::S_IFMT == libc::S_IFSOCK { status.st_ino } else { 0 }
}

/// Moves a descriptor to a higher number, if possible.
fn move_up(descriptor: i32) -> i32 {
    // SAFETY: the descriptor is ours; it is closed only once there is another for the same socket.
    unsafe {
        let moved = libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
        if moved < 0 {
            return descriptor;
        }
        libc::close(descriptor);
        moved
    }
}

/// Opens a session on a connected socket. It does not record before [`begin`]. Returns false and closes the socket if the
/// exit and fork handlers cannot be registered.
pub fn open(socket: i32) -> bool {
    STATE.store(NEW, Ordering::SeqCst);
    earlier_launches::forget();
    DONE.store(0, Ordering::SeqCst);
    SESSION.store(random(), Ordering::Relaxed);
    // SAFETY: only reads the process id.
    PID.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    let socket = move_up(socket);
    SOCKET_INODE.store(inode(socket), Ordering::Relaxed);
    SOCKET.store(socket, Ordering::Release);
    if REGISTERED.load(Ordering::SeqCst) {
        return true;
    }
    // SAFETY: both handlers are functions of this library, which is never unloaded.
    let registered =
        unsafe { libc::pthread_atfork(None, None, Some(at_fork_child)) == 0 && libc::atexit(at_exit) == 0 };
    REGISTERED.store(registered, Ordering::SeqCst);
    if !registered {
        close();
    }
    registered
}

/// Begins to record.
pub fn begin() {
    STATE.store(LIVE, Ordering::SeqCst);
}

/// Marks no more launches. Records are read until [`end`].
pub fn leave() {
    // A session that has ended stays so.
    let _ = STATE.compare_exchange(LIVE, LEAVING, Ordering::SeqCst, Ordering::SeqCst);
}

/// Keeps the other end of the connection until [`close_other_end`].
pub fn keep_other_end(descriptor: i32) {
    OTHER_INODE.store(inode(descriptor), Ordering::Relaxed);
    OTHER_END.store(descriptor, Ordering::SeqCst);
}

/// Closes the other end of the connection, once.
pub fn close_other_end() {
    let descriptor = OTHER_END.swap(-1, Ordering::SeqCst);
    // If the program has closed it, the number may be another file's.
    if descriptor >= 0 && inode(descriptor) == OTHER_INODE.load(Ordering::Relaxed) {
        // SAFETY: the descriptor is ours and the swap makes this the only close.
        unsafe { libc::close(descriptor) };
    }
}

/// Ends the session: from now on callbacks return at once and records are not read.
pub fn end() {
    STATE.store(ENDED, Ordering::SeqCst);
}

/// Closes the connection, once.
pub fn close() {
    let ours = socket();
    if SOCKET.swap(-1, Ordering::AcqRel) >= 0 && ours >= 0 {
        // SAFETY: the descriptor is ours and the swap makes this the only close.
        unsafe { libc::close(ours) };
    }
}

/// Whether the process is exiting.
pub fn is_exiting() -> bool {
    EXITING.load(Ordering::Acquire) != 0
}

/// Notes that a buffer was read or a packet sent.
pub fn advance() {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
}

/// Called by the sender thread when it has finished.
pub fn sender_done() {
    DONE.store(1, Ordering::Release);
    sys::wake(&DONE);
}

/// Returns a unique number.
fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the length passed is that of the buffer; without entropy the call returns instead of waiting.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast::<c_void>(), bytes.len(), libc::GRND_NONBLOCK) };
    let drawn = u64::from_ne_bytes(bytes);
    if got == 8 && drawn != 0 {
        return drawn;
    }
    // SAFETY: only reads the process id.
    let pid = unsafe { libc::getpid() } as u64;
    sys::now().rotate_left(20) ^ (pid << 32) | 1
}

/// The child has neither our thread nor a usable CUDA: the session belongs to the parent alone. Locks that another
/// thread held at the fork stay locked in the child, so nothing that takes a lock may run: all such code checks
/// [`is_live`] first.
unsafe extern "C" fn at_fork_child() {
    let saved = sys::errno();
    end();
    gate::forked();
    client::forked();
    crate::calls::end();
    close();
    close_other_end();
    release();
    sys::set_errno(saved);
}

/// Waits until the sender has finished, as long as it advances.
fn await_sender() {
    let (begin, mut seen) = (sys::now(), PROGRESS.load(Ordering::Relaxed));
    let mut advanced = begin;
    while DONE.load(Ordering::Acquire) == 0 {
        let (now, progress) = (sys::now(), PROGRESS.load(Ordering::Relaxed));
        if progress != seen {
            (seen, advanced) = (progress, now);
        }
        let deadline = (advanced + EXIT_PATIENCE).min(begin + EXIT_DEADLINE);
        let Some(left) = deadline.checked_sub(now).filter(|left| *left > 0) else { break };
        sys::wait(&DONE, 0, left.min(EXIT_CHECK));
    }
}

/// The sender flushes, sends the remaining packets and ends the session. This only waits for it, so that a problem in
/// the sender, in CUPTI or on the socket cannot delay the exit beyond the deadline.
extern "C" fn at_exit() {
    guarded((), || {
        // A child of a bare clone runs this handler too, but has no sender thread.
        // SAFETY: only reads the process id.
        if !is_reading() || unsafe { libc::getpid() } as u32 != pid() || wakeup::is_sender() {
            return;
        }
        EXITING.store(1, Ordering::Release);
        wakeup::wake();
        await_sender();
        end();
        let socket = socket();
        if socket >= 0 {
            // SAFETY: shutting down leaves the descriptor itself to the sender, which may still be using it.
            unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic yields the given value, and errno is unchanged.
    #[test]
    fn panics_and_errno_changes_are_contained() {
        sys::set_errno(71);
        let value = guarded(5, || {
            sys::set_errno(3);
            if sys::errno() == 3 { std::panic::resume_unwind(Box::new("stopped")) } else { 6 }
        });
        assert_eq!((value, sys::errno()), (5, 71));
    }

    /// Session ids differ.
    #[test]
    fn sessions_are_random() {
        assert_ne!(random(), random());
    }
}
