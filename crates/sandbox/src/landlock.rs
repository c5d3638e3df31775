//! Landlock: no path can be opened, or none for writing; no port used, no process outside signalled.

use std::ptr;

/// `struct landlock_ruleset_attr`: what is forbidden unless a rule allows it. There are no rules.
#[repr(C)]
struct Handled {
    files: u64,
    network: u64,
    scoped: u64,
}

const CREATE_VERSION: u32 = 1;
/// To execute and to read files, and to list directories.
const READING: u64 = 0b1101;

/// Forbids everything that this kernel can forbid. Returns whether it could.
pub(crate) fn forbid_all() -> bool {
    forbid(!0)
}

/// Forbids this thread, and what it runs, to change files and directories, and to use TCP. Returns whether the kernel could.
/// Only system calls, so it may run between fork and exec. The thread must not be able to gain privileges.
pub fn forbid_writing() -> bool {
    forbid(!READING)
}

/// Whether the kernel can forbid it.
pub fn can_forbid_writing() -> bool {
    version() > 0
}

fn version() -> libc::c_long {
    // SAFETY: the kernel's interface: without a structure it returns its version.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<Handled>(), 0, CREATE_VERSION) }
}

/// Forbids kinds of access to files, and everything else.
fn forbid(kinds: u64) -> bool {
    // Each version knows more kinds of access, and the last fields only from some version on.
    let (files, size): (u32, usize) = match version() {
        ..=0 => return false,
        1 => (13, 8),
        2 => (14, 8),
        3 => (15, 8),
        4 => (15, 16),
        5 => (16, 16),
        _ => (16, 24),
    };
    let handled = Handled { files: ((1 << files) - 1) & kinds, network: 0b11, scoped: 0b11 };
    // SAFETY: a structure of at least the given size; the descriptor is new and ours.
    unsafe {
        let rules = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size, 0);
        if rules < 0 {
            return false;
        }
        let restricted = libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) == 0;
        libc::close(rules as libc::c_int);
        restricted
    }
}
