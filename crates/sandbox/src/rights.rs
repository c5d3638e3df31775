//! Gives up rights: user, capabilities, and what limits can forbid.

use std::io;

/// The user and group that own nothing.
const NOBODY: u32 = 65_534;
/// Capabilities have 64 bits.
const CAPABILITIES: u64 = 64;
/// `_LINUX_CAPABILITY_VERSION_3`, and the own process.
pub(crate) const HEADER: [u32; 2] = [0x2008_0522, 0];

/// Becomes a user who owns nothing, if we are root. Elsewhere the user has no more rights than before. Returns whether we are not
/// root: a user namespace may have no such user.
pub(crate) fn leave_root() -> bool {
    // SAFETY: plain system calls. Nothing else runs in this process.
    unsafe {
        if libc::geteuid() == 0 {
            libc::setgroups(0, std::ptr::null());
            libc::setresgid(NOBODY, NOBODY, NOBODY);
            libc::setresuid(NOBODY, NOBODY, NOBODY);
        }
        libc::geteuid() != 0 && libc::getuid() != 0
    }
}

/// Makes sure that no program gives this thread other capabilities than those in `mask`. Only root can, and needs a capability for
/// it; for others, "no new privileges" has the same effect. Only system calls.
pub(crate) fn drop_bounding_except(mask: u64) {
    for capability in (0..CAPABILITIES).filter(|capability| mask >> capability & 1 == 0) {
        // SAFETY: a plain system call.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Gives up every capability of this thread, for good: no program that it runs gains any. Only system calls, so it may run
/// between fork and exec.
pub fn drop_capabilities() -> io::Result<()> {
    let none = [0_u32; 6];
    // SAFETY: plain system calls; the buffers have the size that the version requires.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_capset, HEADER.as_ptr(), none.as_ptr()) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Forbids to write files, to leave a core, and to use more than `memory` bytes.
pub(crate) fn limit(memory: u64) {
    for (resource, most) in [(libc::RLIMIT_FSIZE, 0), (libc::RLIMIT_CORE, 0), (libc::RLIMIT_AS, memory)] {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: a valid limit. Where a lower one is set, it stays.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    }
}
