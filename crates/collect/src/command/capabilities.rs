//! Capabilities of the processes that warpscope starts: they get none of its own.

use std::io;

/// What `setcap` gives to warpscope (docs/privileges.md): CAP_PERFMON and CAP_BPF.
const OWN: [libc::c_int; 2] = [38, 39];

/// Gives up every capability of this thread, for ever: no program that it runs gains any. Only system calls, so it may run
/// between fork and exec.
pub fn give_up_capabilities() -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3`, and the own process.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let none = [0_u32; 6];
    // SAFETY: plain system calls with buffers of the size that the version requires.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_capset, HEADER.as_ptr(), none.as_ptr()) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps the program that is executed next from inheriting the capabilities that warpscope was given. Those of its file are
/// not inherited; ambient ones are. Only system calls.
pub fn keep_own_capabilities() {
    for capability in OWN {
        // SAFETY: a plain system call. It fails only on a kernel that does not have this capability.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_LOWER, capability, 0, 0) };
    }
}
