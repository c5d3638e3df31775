//! Known conditions for every process under test, whatever started the suite: nohup, cron, a script's `&`, a CI runner.
//!
//! A child inherits ignored signals, the signal mask, the umask and the soft limits from its parent, so each command that a test
//! starts sets them itself.

use std::{
    env,
    ffi::CString,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::Once,
};

const UMASK: libc::mode_t = 0o022;

/// Soft limits, each capped at the hard limit. Other limits are not changed.
const LIMITS: [(libc::__rlimit_resource_t, libc::rlim_t); 8] = [
    (libc::RLIMIT_NOFILE, 1024),
    (libc::RLIMIT_STACK, 8 << 20),
    (libc::RLIMIT_CORE, 0),
    (libc::RLIMIT_CPU, libc::RLIM_INFINITY),
    (libc::RLIMIT_FSIZE, libc::RLIM_INFINITY),
    (libc::RLIMIT_AS, libc::RLIM_INFINITY),
    (libc::RLIMIT_DATA, libc::RLIM_INFINITY),
    (libc::RLIMIT_NPROC, libc::RLIM_INFINITY),
];

/// Starts a command with default signal dispositions, no signal blocked, umask 022 and ordinary limits.
pub fn apply(command: &mut Command) {
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // The raw system call, because the C library's function rejects the two signals that it uses itself, and our parent may
            // ignore those as well. It fails for SIGKILL and SIGSTOP, which cannot be ignored.
            let default = [0_u64; 4];
            for signal in 1..=libc::SIGRTMAX() {
                libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            libc::umask(UMASK);
            LIMITS.iter().try_for_each(|(resource, soft)| limit(*resource, *soft))
        });
    }
}

/// Sets up the test process itself, once: its files are readable by other users, and it can hold the pipes of many tests at a
/// time.
pub fn apply_to_this_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a plain system call; nothing here depends on the mask before.
        unsafe { libc::umask(UMASK) };
        limit(libc::RLIMIT_NOFILE, 65536).expect("a process may raise its soft limit");
        limit(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY).expect("a process may raise its soft limit");
    });
}

/// Sets a soft limit, capped at the hard limit.
fn limit(resource: libc::__rlimit_resource_t, soft: libc::rlim_t) -> io::Result<()> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with a structure that lives through them.
    let done = unsafe {
        libc::getrlimit(resource, &raw mut limits) == 0 && {
            limits.rlim_cur = soft.min(limits.rlim_max);
            libc::setrlimit(resource, &raw const limits) == 0
        }
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The parent of the tests' directories: `TMPDIR`, or /tmp if other users cannot reach `TMPDIR` or run programs in it.
pub fn temporary() -> PathBuf {
    let wanted = env::temp_dir();
    let open = |place: &Path| fs::metadata(place).is_ok_and(|directory| directory.mode() & 0o001 != 0);
    if wanted.ancestors().all(open) && may_run_programs(&wanted) { wanted } else { "/tmp".into() }
}

fn may_run_programs(directory: &Path) -> bool {
    let path = CString::new(directory.as_os_str().as_bytes()).expect("a path has no zero byte");
    // SAFETY: all zeros is a value of the type; the path and the structure live through the call.
    unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &raw mut about) == 0 && about.f_flag & libc::ST_NOEXEC == 0
    }
}
