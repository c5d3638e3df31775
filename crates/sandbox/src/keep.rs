//! What warpscope itself keeps once it has started.
//!
//! It stays the user that it was, because it reads the files and the memory of others; but it gives up the capabilities that it does
//! not need, the way to new ones, and the system calls that would turn an error in it into control of the machine.

use std::{
    fs, io,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::{
    rights::{HEADER, drop_bounding_except},
    seccomp::{self, Action, Call, TABLES},
};

/// Capabilities by number, as `capabilities(7)` names them.
pub mod capability {
    /// Write files of others.
    pub const DAC_OVERRIDE: u32 = 1;
    /// Read files of others.
    pub const DAC_READ_SEARCH: u32 = 2;
    /// Replace files of others in a sticky directory.
    pub const FOWNER: u32 = 3;
    /// Signal processes of others.
    pub const KILL: u32 = 5;
    /// Become another user's group.
    pub const SETGID: u32 = 6;
    /// Become another user.
    pub const SETUID: u32 = 7;
    /// Read the memory and the mappings of others.
    pub const SYS_PTRACE: u32 = 19;
    /// Read kernel addresses and the kernel's log.
    pub const SYSLOG: u32 = 34;
    /// Attach probes.
    pub const PERFMON: u32 = 38;
    /// Load BPF programs and create maps.
    pub const BPF: u32 = 39;
    /// Open mapped files through `/proc/PID/map_files`.
    pub const CHECKPOINT_RESTORE: u32 = 40;
}

/// What is kept.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// Capabilities, by number.
    pub capabilities: Vec<u32>,
    /// Programs are started later.
    pub executes: bool,
    /// Other processes are stopped and changed later.
    pub attaches: bool,
}

/// How often it is checked whether all threads have given up their capabilities, and the time between. Not a time in all: this
/// process may be stopped meanwhile.
const ATTEMPTS: u32 = 2_000;
const PAUSE: Duration = Duration::from_micros(100);

/// The capabilities that the threads keep.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Gives up everything else, on all threads of this process, for good. The error says what the kernel refused; the rest was done.
pub fn keep(what: &Keep) -> Result<(), String> {
    let mask = what.capabilities.iter().fold(0, |mask, number| mask | 1 << number);
    let mut refused = Vec::new();
    // SAFETY: a plain setting. The filter passes it on to the other threads.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        refused.push(format!("no new privileges: {}", io::Error::last_os_error()));
    }
    if !keep_capabilities(mask) {
        refused.push("a thread kept its capabilities".into());
    }
    let optional = [(what.executes, seccomp::EXECUTE), (what.attaches, seccomp::ATTACH)];
    let tables: Vec<&[Call]> =
        TABLES.iter().copied().chain(optional.iter().filter(|(kept, _)| !kept).map(|(_, table)| *table)).collect();
    if let Err(error) = seccomp::apply(&mut seccomp::program(&tables, Action::Refuse, Action::Allow)) {
        refused.push(format!("seccomp filter: {error}"));
    }
    if refused.is_empty() { Ok(()) } else { Err(refused.join(", ")) }
}

/// Removes all capabilities but these from every thread. Threads have their own, so each one is interrupted by a signal. Returns
/// whether all did.
fn keep_capabilities(mask: u64) -> bool {
    KEPT.store(mask, Ordering::SeqCst);
    reduce();
    let signal = libc::SIGRTMAX() - 1;
    // SAFETY: the handler only makes system calls. All zeroes is a valid action and an empty mask.
    let before = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut before = std::mem::zeroed();
        libc::sigaction(signal, &raw const action, &raw mut before);
        before
    };
    let mut interrupted = Vec::new();
    let mut done = false;
    for _ in 0..ATTEMPTS {
        // Threads that others started meanwhile may have more.
        let rest = threads_with_more(mask);
        if rest.is_empty() {
            done = true;
            break;
        }
        for thread in rest {
            if !interrupted.contains(&thread) {
                // SAFETY: a signal to a thread of this process, for which there is a handler.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
                interrupted.push(thread);
            }
        }
        thread::sleep(PAUSE);
    }
    // A signal that is still pending must not end the process.
    if done {
        // SAFETY: the action from before.
        unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
    }
    done
}

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: the interrupted code may be about to read its error.
    unsafe {
        let error = *libc::__errno_location();
        reduce();
        *libc::__errno_location() = error;
    }
}

/// Reduces the capabilities of this thread. Only system calls.
fn reduce() {
    let mask = KEPT.load(Ordering::SeqCst);
    drop_bounding_except(mask);
    // Effective, permitted, inheritable; the lower halves, then the upper ones.
    let mut sets = [0_u32; 6];
    // SAFETY: buffers of the size that the version requires.
    unsafe {
        if libc::syscall(libc::SYS_capget, HEADER.as_ptr(), sets.as_mut_ptr()) == 0 {
            for (index, set) in sets.iter_mut().enumerate() {
                *set &= match index {
                    0 | 1 => mask as u32,
                    3 | 4 => (mask >> 32) as u32,
                    _ => 0,
                };
            }
            libc::syscall(libc::SYS_capset, HEADER.as_ptr(), sets.as_ptr());
        }
    }
}

/// Returns the threads that have other capabilities.
fn threads_with_more(mask: u64) -> Vec<libc::pid_t> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let with_more = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let set = u64::from_str_radix(field("CapPrm:")?.trim(), 16).ok()?;
        // The name of the directory is its number in another pid namespace, if /proc belongs to that.
        let own = field("NSpid:")?.split_whitespace().last()?.parse().ok()?;
        (set & !mask != 0).then_some(own)
    };
    tasks.filter_map(with_more).collect()
}
