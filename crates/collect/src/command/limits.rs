//! The limit of open files: raised for warpscope, which holds mapped files open, and unchanged for the command.

use std::sync::OnceLock;

/// The most files held open to resolve names.
const MOST: u64 = 16_384;
/// Descriptors for everything else: rings, sockets, outputs, the maps of JIT compilers.
const REST: u64 = 2048;

static ORIGINAL: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises the soft limit as far as useful and allowed by the hard limit. Returns how many files may be held open.
pub fn raise() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call with a buffer for its result.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let _ = ORIGINAL.set(limit);
    let wanted = libc::rlimit { rlim_cur: limit.rlim_max.min(MOST + REST), ..limit };
    // SAFETY: a plain system call; a failure leaves the limit unchanged.
    if wanted.rlim_cur > limit.rlim_cur && unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } == 0 {
        limit = wanted;
    }
    // Half of a small limit, so that the rest never runs out.
    let room = limit.rlim_cur.saturating_sub(REST).max(limit.rlim_cur / 2);
    usize::try_from(room.min(MOST)).unwrap_or(0)
}

/// Returns the limit that warpscope was started with: the command starts with the same.
pub fn original() -> Option<libc::rlimit> {
    ORIGINAL.get().copied()
}
