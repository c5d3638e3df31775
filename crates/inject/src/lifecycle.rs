//! From the first call to the last: whether the session lives, and what happens at fork and at exit.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sys;

const NEW: u8 = 0;
const LIVE: u8 = 1;
const ENDED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NEW);
static SESSION: AtomicU64 = AtomicU64::new(0);
static PID: AtomicI32 = AtomicI32::new(0);
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// The socket's inode. A program that closes all descriptors may get its number for a file of its own.
static SOCKET_INODE: AtomicU64 = AtomicU64::new(0);
/// Where the descriptor is moved, out of the way of programs that count on low numbers.
const LOWEST_DESCRIPTOR: i32 = 200;

/// Not 0 once the process exits.
static EXITING: AtomicU32 = AtomicU32::new(0);
/// Not 0 once the sender thread has nothing more to do.
static DONE: AtomicU32 = AtomicU32::new(0);

/// How long the exit of the process may wait for the last messages.
const EXIT_DEADLINE: u64 = 2_000_000_000;

/// Runs code that must not unwind into C and must not change the caller's errno.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    let saved = sys::errno();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise);
    sys::set_errno(saved);
    result
}

/// Whether launches are marked and records taken. False in a forked child, after the peer is gone and during exit.
#[inline]
pub fn is_live() -> bool {
    STATE.load(Ordering::Relaxed) == LIVE
}

/// The session's number, which every marker carries.
#[inline]
pub fn session() -> u64 {
    SESSION.load(Ordering::Relaxed)
}

/// The process as it sees itself.
pub fn pid() -> u32 {
    PID.load(Ordering::Relaxed) as u32
}

/// The connection; -1 when there is none, or when the program has closed it and its number may mean something else.
pub fn socket() -> i32 {
    let socket = SOCKET.load(Ordering::Acquire);
    if socket >= 0 && inode(socket) == SOCKET_INODE.load(Ordering::Relaxed) { socket } else { -1 }
}

/// The inode behind a descriptor, 0 if there is none. Unix sockets all have one file system's.
fn inode(descriptor: i32) -> u64 {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `status` is writable, and all zeros is a value of the type.
    let status = unsafe {
        libc::fstat(descriptor, status.as_mut_ptr());
        status.assume_init()
    };
    if status.st_mode & libc::S_IFMT == libc::S_IFSOCK { status.st_ino } else { 0 }
}

/// Moves a descriptor up, where that is allowed.
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

/// Opens the session on a connected socket. False, and the socket closed, if exit or fork could not be watched.
pub fn open(socket: i32) -> bool {
    SESSION.store(random(), Ordering::Relaxed);
    // SAFETY: asks only for the process id.
    PID.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    let socket = move_up(socket);
    SOCKET_INODE.store(inode(socket), Ordering::Relaxed);
    SOCKET.store(socket, Ordering::Release);
    // SAFETY: both handlers are functions of this library, which is never unloaded.
    let watched = unsafe { libc::pthread_atfork(None, None, Some(at_fork_child)) == 0 && libc::atexit(at_exit) == 0 };
    if watched {
        STATE.store(LIVE, Ordering::SeqCst);
    } else {
        close();
    }
    watched
}

/// Ends the session: from here on callbacks return at once and records are not read.
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

/// Whether the process is on its way out.
pub fn is_exiting() -> bool {
    EXITING.load(Ordering::Acquire) != 0
}

/// The sender thread says that it will do nothing more.
pub fn sender_done() {
    DONE.store(1, Ordering::Release);
    sys::wake(&DONE);
}

/// A number nobody else has.
fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is as long as it says; without entropy the call returns instead of waiting.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast::<c_void>(), bytes.len(), libc::GRND_NONBLOCK) };
    let drawn = u64::from_ne_bytes(bytes);
    if got == 8 && drawn != 0 {
        return drawn;
    }
    // SAFETY: asks only for the process id.
    let pid = unsafe { libc::getpid() } as u64;
    sys::now().rotate_left(20) ^ (pid << 32) | 1
}

/// The child has neither our thread nor a usable CUDA: the session is the parent's alone. Locks that another thread held at
/// the fork stay held here, so nothing that takes one may run: all of it asks [`is_live`] first.
unsafe extern "C" fn at_fork_child() {
    let saved = sys::errno();
    end();
    close();
    sys::set_errno(saved);
}

/// The sender flushes, sends the rest and says goodbye; this only waits for it, so that no trouble there, in CUPTI or on the
/// socket can hold the exit up for longer than the deadline.
extern "C" fn at_exit() {
    guarded((), || {
        // A child of a bare clone runs this too, without our thread.
        // SAFETY: asks only for the process id.
        if !is_live() || unsafe { libc::getpid() } as u32 != pid() || crate::sender::is_this_thread() {
            return;
        }
        EXITING.store(1, Ordering::Release);
        crate::sender::wake();
        let deadline = sys::now() + EXIT_DEADLINE;
        while DONE.load(Ordering::Acquire) == 0 {
            let Some(left) = deadline.checked_sub(sys::now()).filter(|left| *left > 0) else { break };
            sys::wait(&DONE, 0, left);
        }
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

    /// A panic becomes the given value, and errno is as before.
    #[test]
    fn panics_and_errno_stay_inside() {
        sys::set_errno(71);
        let value = guarded(5, || {
            sys::set_errno(3);
            if sys::errno() == 3 { std::panic::resume_unwind(Box::new("stopped")) } else { 6 }
        });
        assert_eq!((value, sys::errno()), (5, 71));
    }

    /// Session numbers differ.
    #[test]
    fn sessions_are_random() {
        assert_ne!(random(), random());
    }
}
