//! Why a process cannot be entered.
//!
//! Refused before anything is touched: another tracer, seccomp, set-user-id programs, a shadow stack, 32-bit or static
//! programs, zombies, stopped processes, and children of `vfork`. If warpscope is killed while it attaches, a
//! close-on-exec descriptor and a mapping of 8 KiB may stay in the process.

use std::io;

/// Why a process cannot be entered. Each message is one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It ended before or during the attempt.
    #[error("process {0} has exited")]
    Exited(u32),

    /// It has ended, and its parent has not waited for it.
    #[error("process {0} is a zombie: it has ended, and its parent has not waited for it")]
    Zombie(u32),

    /// Only one tracer is possible.
    #[error("process {pid} is already traced by process {tracer}: stop that debugger or tracer first")]
    Traced {
        /// The process.
        pid: u32,
        /// Its tracer.
        tracer: u32,
    },

    /// A filter may kill the process for a system call that it does not expect.
    #[error("process {0} runs under seccomp: a system call that its filter does not expect could kill it")]
    Seccomp(u32),

    /// Its caller, who may be another user, controls its arguments, environment and files.
    #[error("process {0} has privileges of its program file (set-user-id): nothing is loaded into it")]
    Privileged(u32),

    /// Return addresses are checked by the processor.
    #[error("process {0} uses a shadow stack, which does not permit calls from outside")]
    ShadowStack(u32),

    /// Stopped by a signal or a terminal.
    #[error("process {0} is stopped: continue it first (kill -CONT {0})")]
    Stopped(u32),

    /// Not x86-64 code.
    #[error("process {0} is not a 64-bit x86 process")]
    Machine(u32),

    /// It shares its memory with its parent.
    #[error("process {0} shares its memory with its parent (vfork): attach to it after it has executed its program")]
    SharedMemory(u32),

    /// No library can be loaded.
    #[error("process {pid} cannot load libraries: {why}")]
    NoLoader {
        /// The process.
        pid: u32,
        /// What is missing.
        why: String,
    },

    /// No thread was at a safe point in time.
    #[error("process {pid} had no thread at a safe point: {why}")]
    NoSafePoint {
        /// The process.
        pid: u32,
        /// Why the last thread was not suitable.
        why: String,
    },

    /// The call began, and a signal or the time limit ended the stop. The thread has returned by itself.
    #[error("process {pid} was interrupted while it was entered: {why}")]
    Interrupted {
        /// The process.
        pid: u32,
        /// What happened.
        why: String,
    },

    /// `dlopen` or `dlsym` failed in the process.
    #[error("process {pid} could not load the library: {why}")]
    Load {
        /// The process.
        pid: u32,
        /// The message of the process's loader, safe to print.
        why: String,
    },

    /// The entry has not returned in time. It may still do so.
    #[error("the library in process {0} has not answered in time")]
    NoAnswer(u32),

    /// A thread of the process has closed the memory file, and its number means another file.
    #[error("process {0} has replaced the memory file that was created in it")]
    Replaced(u32),

    /// A limit of this crate.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },

    /// A system call of this process failed.
    #[error("cannot {what} of process {pid}: {source}")]
    Io {
        /// The process.
        pid: u32,
        /// What was done.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl Error {
    /// Returns the error for a failed system call. A process that does not exist has exited.
    pub(crate) fn io(pid: u32, what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Error::Exited(pid),
            _ => Error::Io { pid, what, source },
        }
    }
}
