//! How many files may be open: more for us, who hold open what is mapped, and as before for the command.

use std::sync::OnceLock;

/// The most files that are held open for their names.
const MOST: u64 = 16_384;
/// Descriptors that all else needs: rings, sockets, outputs, the maps of JIT compilers.
const REST: u64 = 2048;

static ORIGINAL: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises the soft limit, as far as the hard one allows and as is useful. Returns how many files may be held open.
pub fn raise() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call with a place for its answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let _ = ORIGINAL.set(limit);
    let wanted = libc::rlimit { rlim_cur: limit.rlim_max.min(MOST + REST), ..limit };
    // SAFETY: a plain system call; a refusal leaves what there is.
    if wanted.rlim_cur > limit.rlim_cur && unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } == 0 {
        limit = wanted;
    }
    // Half of a small limit, so that the rest is never wanting.
    let room = limit.rlim_cur.saturating_sub(REST).max(limit.rlim_cur / 2);
    usize::try_from(room.min(MOST)).unwrap_or(0)
}

/// The limit that warpscope was started with: the command starts with the same.
pub fn original() -> Option<libc::rlimit> {
    ORIGINAL.get().copied()
}
