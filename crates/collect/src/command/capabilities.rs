//! Capabilities of the processes that warpscope starts: they get none of its own.

/// What `setcap` gives to warpscope (docs/privileges.md): CAP_PERFMON and CAP_BPF.
const OWN: [libc::c_int; 2] = [38, 39];

/// Keeps the program that is executed next from inheriting the capabilities that warpscope was given. Those of its file are
/// not inherited; ambient ones are. Only system calls.
pub fn keep_own_capabilities() {
    for capability in OWN {
        // SAFETY: a plain system call. It fails only on a kernel that does not have this capability.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_LOWER, capability, 0, 0) };
    }
}
