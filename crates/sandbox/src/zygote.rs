//! The process that forks workers. It was forked from warpscope before that had threads, gave up every right, and sees no byte of a
//! foreign file: it passes descriptors on.

use std::{
    fs::File,
    os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd},
};

use crate::{
    landlock, message, rights,
    seccomp::{self, Action},
    worker::{self, exit},
};

/// Where its socket is. Lower numbers are free for the descriptors of a request.
const CONTROL: RawFd = 3;
/// Its name in lists of processes.
const NAME: &std::ffi::CStr = c"warpscope-parse";

/// What could not be restricted, as bits: the kernel lacks it or refuses it.
pub(crate) const STILL_ROOT: u8 = 1;
pub(crate) const NO_LANDLOCK: u8 = 2;
pub(crate) const NO_SECCOMP: u8 = 4;
pub(crate) const CAPABLE: u8 = 8;

/// Runs until warpscope ends. `parent` is its process id.
pub(crate) fn run(control: OwnedFd, parent: libc::pid_t, memory: u64) -> ! {
    let control = arrange(control);
    std::panic::set_hook(Box::new(|_| {}));
    let missing = restrict(memory);
    end_with(parent);
    let mut filter = seccomp::program(&[seccomp::WORKER], Action::Allow, Action::Refuse);
    let _ = message::send(control, missing, &[]);
    while let Ok(Some((_, descriptors))) = message::receive(control) {
        serve(descriptors, control, &mut filter);
    }
    exit(0)
}

/// Keeps no descriptor but the socket, and moves it to its place.
fn arrange(control: OwnedFd) -> RawFd {
    // SAFETY: plain system calls in a process of one thread. What owned the descriptors is never used again.
    unsafe {
        let mut set = std::mem::MaybeUninit::uninit();
        libc::sigfillset(set.as_mut_ptr());
        let all = set.assume_init();
        // The terminal sends signals to all processes of a command. This one ends with warpscope.
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        // Workers are not waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        let control = control.into_raw_fd();
        if control != CONTROL {
            libc::dup3(control, CONTROL, libc::O_CLOEXEC);
        }
        close_range(0, CONTROL as u32 - 1);
        close_range(CONTROL as u32 + 1, u32::MAX);
    }
    CONTROL
}

fn close_range(first: u32, last: u32) {
    // SAFETY: plain system calls, as above.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
            // Before Linux 5.9.
            for descriptor in first..=last.min(1 << 16) {
                libc::close(descriptor as RawFd);
            }
        }
    }
}

/// Gives up everything. Returns what was refused.
fn restrict(memory: u64) -> u8 {
    let mut missing = 0;
    let mut done = |done: bool, bit: u8| missing |= if done { 0 } else { bit };
    rights::drop_bounding_except(0);
    done(rights::leave_root(), STILL_ROOT);
    done(rights::drop_capabilities().is_ok(), CAPABLE);
    rights::limit(memory);
    done(landlock::forbid_all(), NO_LANDLOCK);
    // SAFETY: nobody, not even a process of the same user, can read its memory or trace it.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    let mut filter = seccomp::program(&[seccomp::WORKER, seccomp::ZYGOTE], Action::Allow, Action::Refuse);
    done(seccomp::apply(&mut filter).is_ok(), NO_SECCOMP);
    missing
}

/// Ends together with the parent, also if it is killed.
fn end_with(parent: libc::pid_t) {
    // SAFETY: plain system calls. A change of the user would have cleared the setting.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != parent {
            exit(1);
        }
    }
}

/// Forks a worker for a request, and sends warpscope a descriptor of it.
fn serve(mut descriptors: Vec<OwnedFd>, control: RawFd, filter: &mut [libc::sock_filter]) {
    if descriptors.is_empty() {
        return;
    }
    let socket = descriptors.remove(0);
    // SAFETY: this process has one thread, so its copy is consistent.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: our own descriptor, which is not used again; a plain setting.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                libc::close(control);
            }
            let _ = seccomp::apply(filter);
            worker::run(&File::from(socket), descriptors.into_iter().map(File::from).collect())
        }
        worker => {
            // SAFETY: a plain system call. The worker waits for its request, so the id is still its own.
            let process = unsafe { libc::syscall(libc::SYS_pidfd_open, worker, 0) } as RawFd;
            let process: &[RawFd] = if worker > 0 && process >= 0 { &[process] } else { &[] };
            let _ = message::send(socket.as_raw_fd(), 0, process);
            for descriptor in process {
                // SAFETY: opened above, not used again.
                unsafe { libc::close(*descriptor) };
            }
        }
    }
}
