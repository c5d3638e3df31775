//! Runs a function inside a running process, safely.
//!
//! [`Attach::load`] loads a library from memory into a process and calls a function of it. This is how it works:
//!
//! 1. **A thread at a safe point.** Only a thread that waits in a system call is borrowed, and only that thread is
//!    stopped (`PTRACE_SEIZE`, `PTRACE_INTERRUPT`). It must not wait for a lock, nor within the loader or an allocator,
//!    whichever module has it, not be in a signal handler, and have an ordinary stack. Otherwise another thread, or
//!    another moment, is tried.
//! 2. **A signal frame.** Before a register is changed, a frame as the kernel writes it for a signal handler is written
//!    below the red zone of the thread's stack. It has all registers, the vector state and the signal mask. Every call is
//!    set up like a signal handler: its return address is the C library's own `rt_sigreturn` code. So the thread returns
//!    to where it was *without a tracer*, whatever instruction it is at. If this process is killed, or a signal or the
//!    time limit ends the visit, the thread simply runs on.
//! 3. **Few, short calls.** In a first visit the borrowed thread executes `memfd_create`, in a second one `mmap` and
//!    `pthread_create`, with all signals blocked. Between them, the contents of the memory file are written from outside,
//!    through a duplicate of its descriptor, so no path of the target's mount namespace is needed. At the end of each visit the thread continues its system call.
//! 4. **A thread of its own.** What may take long runs in the new thread, while the target runs on: `dlopen`, `dlsym`,
//!    and the function. It waits for the loader's lock like any thread. It has all signals blocked, so it never takes
//!    one from the program. At its end it closes the file and removes the mapping with its own code.
//!
//! ```text
//!  this process      frame  memfd  restore    write      frame  mmap  pthread_create  restore    read the report
//!  borrowed thread ~~|---- stopped ----|~~~~~~~~~~~~~~~~|----- stopped, under 50 ms -----|~~~~~~~~~~~~~~~~~~~~~~
//!  new thread                                                          |== dlopen == function ==| munmap
//! ```
//!
//! The tracer restores the thread itself if it can, because `rt_sigreturn` makes the kernel forget the time that is left
//! of an interrupted `nanosleep` or `poll`. The frame repeats such a call with its whole time.
//!
//! Everything read from the target is hostile: it is read within limits, and used only for calls in the target. The
//! process is held by a handle, and under each stop it is checked again that the thread belongs to it and that its program
//! has not changed.

mod code;
mod error;
mod frame;
mod library;
mod point;
mod present;
mod process;
mod tracee;
mod visit;

use std::{
    collections::hash_map::RandomState,
    ffi::CStr,
    fs::File,
    hash::BuildHasher,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::atomic::{AtomicI32, Ordering},
    thread,
    time::{Duration, Instant},
};

use code::{Call, Report};
pub use error::Error;
use library::Library;
use present::Present;
use process::{Process, Status};
use visit::{Ended, Target, Visit};

/// The longest stop of a thread.
const STOP: Duration = Duration::from_millis(50);
/// The pause between two rounds in search of a safe point, and between two looks at the result.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest name: with its number, it must fit the scratch space of a visit.
const MAX_NAME: usize = 100;
/// The largest library.
const MAX_LIBRARY: usize = 64 << 20;

/// What to run in a process.
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    /// The process, in this process's pid namespace.
    pub pid: u32,
    /// The bytes of a shared library.
    pub library: &'a [u8],
    /// Its file name, at most 100 bytes. The memory file has this name, a dot and a random number.
    pub name: &'a str,
    /// The function to call: `uint64_t entry(const void *argument, size_t size)`.
    pub entry: &'a CStr,
    /// Its argument, at most 1024 bytes. It is valid during the call.
    pub argument: &'a [u8],
    /// How long to search for a safe point.
    pub patience: Duration,
    /// How long to wait for the function's result.
    pub answer: Duration,
}

/// What has happened in the process.
#[derive(Debug)]
pub struct Loaded {
    /// What the function has returned.
    pub result: u64,
    /// The longest stop of a thread.
    pub stopped: Duration,
    /// The library's file in the process.
    pub file: File,
    /// A handle of the process (pidfd).
    pub process: OwnedFd,
}

impl Attach<'_> {
    /// Loads the library, unless the process has it already, and calls its entry. The library stays loaded.
    pub fn load(&self) -> Result<Loaded, Error> {
        let pid = self.pid;
        if self.library.len() > MAX_LIBRARY {
            return Err(Error::TooLarge { what: "the library", limit: MAX_LIBRARY });
        }
        if self.name.len() > MAX_NAME {
            return Err(Error::TooLarge { what: "the name of the library", limit: MAX_NAME });
        }
        // Without such a process, and for the number of a thread.
        let process = Process::open(pid).map_err(|_| Error::Exited(pid))?;
        self.check(&process)?;
        let target = self.target(process)?;
        let mappings = target.process.mappings().map_err(Error::io(pid, "read the mappings"))?;
        let open = |mapping: &_| target.process.mapped(mapping);
        let present = Present::find(&mappings, self.library, self.name, self.entry, open);
        // Of a library that is loaded already, the memory file has nothing.
        let library = if present.is_some() { &[] } else { self.library };
        let step = Attach { library, ..*self };
        let (result, stopped, file) = step.run(&target, present.as_ref().map_or(0, |present| present.entry))?;
        let file = present.map_or(file, |present| present.file);
        Ok(Loaded { result, stopped, file, process: target.process.into_handle() })
    }

    /// Returns the function's result, the longest stop of a thread, and the memory file.
    fn run(&self, target: &Target, entry: u64) -> Result<(u64, Duration, File), Error> {
        let pid = self.pid;
        // Steps that were interrupted find by its name what they have left in the target.
        let nonce = RandomState::new().hash_one(pid);
        let name = format!("{}.{nonce:016x}", self.name);
        let (number, first) = self.visit(target, |visit, again| self.create(visit, &name, again))?;
        let written = self.write(target, number, &name);
        let started = written.and_then(|file| {
            let (started, second) = self.visit(target, |visit, again| {
                let base = if again { self.mapping(target, &name)? } else { None };
                self.start(visit, &file, (number, nonce, entry), base)
            })?;
            if started {
                Ok((file, second))
            } else {
                Err(Error::io(pid, "start a thread")(io::ErrorKind::WouldBlock.into()))
            }
        });
        match started {
            Ok((file, second)) => Ok((self.wait(target, &file)?, first.max(second), file)),
            Err(error) => {
                // The first error is reported. If this fails too, a closed-on-exec file and 8 KiB stay in the target.
                let _ = self.visit(target, |visit, _| self.discard(visit, number, &name));
                Err(error)
            }
        }
    }

    /// Finds what calls need.
    fn target(&self, process: Process) -> Result<Target, Error> {
        let pid = self.pid;
        let mappings = process.mappings().map_err(Error::io(pid, "read the mappings"))?;
        let program = self.program(&process)?;
        let library = Library::find(&mappings, &program, |mapping| process.mapped(mapping))
            .map_err(|why| Error::NoLoader { pid, why })?;
        let memory = process.memory(pid).map_err(Error::io(pid, "open the memory"))?;
        if !library.verify(|address, bytes| memory.read_exact_at(bytes, address).is_ok()) {
            return Err(Error::NoLoader { pid, why: "its C library was changed in memory".to_owned() });
        }
        Ok(Target { process, library })
    }

    /// Borrows a thread for some calls. Returns their result and how long the thread was stopped.
    ///
    /// Calls that the time limit or a signal has interrupted are repeated, with `true`, and in the same thread: it may still have to
    /// make the interrupted one. When it waits at a safe point again, it has.
    fn visit<T: Send>(
        &self,
        target: &Target,
        calls: impl Fn(&Visit<'_>, bool) -> Result<T, Error> + Sync,
    ) -> Result<(T, Duration), Error> {
        let until = Instant::now() + self.patience;
        let once = |interrupted: Option<u32>| {
            let visit = self.borrow(target, until, interrupted).map_err(|error| (error, interrupted))?;
            let result = calls(&visit, interrupted.is_some());
            let (tid, stopped) = (visit.tid(), visit.end());
            result.map(|result| (result, stopped)).map_err(|error| (error, Some(tid)))
        };
        let mut interrupted = None;
        loop {
            // A thread of its own: when it ends, the kernel detaches whatever it traces.
            let tid = AtomicI32::new(0);
            let traces = || {
                // SAFETY: without an argument.
                tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                once(interrupted)
            };
            let result = thread::scope(|scope| scope.spawn(traces).join());
            wait_for_end(tid.into_inner());
            match result {
                Ok(Err((Error::Interrupted { .. }, tid))) if Instant::now() < until => interrupted = tid,
                Ok(result) => return result.map_err(|(error, _)| error),
                Err(_) => return Err(Error::Interrupted { pid: self.pid, why: "an internal error".to_owned() }),
            }
        }
    }

    /// Refuses processes that could be harmed, before they are touched.
    fn check(&self, process: &Process) -> Result<(), Error> {
        let pid = self.pid;
        let status = process.status().map_err(Error::io(pid, "read the status"))?;
        match status {
            Status { state: 'Z' | 'X', .. } if process.threads().map_or(0, |threads| threads.len()) < 2 => {
                Err(Error::Zombie(pid))
            }
            Status { tracer, .. } if tracer != 0 => Err(Error::Traced { pid, tracer }),
            Status { state: 'T', .. } => Err(Error::Stopped(pid)),
            Status { seccomp, .. } if seccomp != 0 => Err(Error::Seccomp(pid)),
            Status { shadow_stack: true, .. } => Err(Error::ShadowStack(pid)),
            Status { parent, .. } if shares_memory(pid, parent) => Err(Error::SharedMemory(pid)),
            _ => {
                let program = self.program(process)?;
                let wide = elf::Elf::read(&program).is_ok_and(|elf| elf.wide && elf.machine == elf::EM_X86_64.0);
                if !wide {
                    return Err(Error::Machine(pid));
                }
                let privileged = process.is_privileged().map_err(Error::io(pid, "read the vector of its program"))?;
                if privileged { Err(Error::Privileged(pid)) } else { Ok(()) }
            }
        }
    }

    /// Opens the file of its program.
    fn program(&self, process: &Process) -> Result<File, Error> {
        let why = || "its program cannot be read".to_owned();
        elf::open(process.path("exe")).map_err(|_| Error::NoLoader { pid: self.pid, why: why() })
    }

    /// Finds a thread at a safe point: this one, if it is given and has not ended.
    fn borrow<'t>(&self, target: &'t Target, until: Instant, only: Option<u32>) -> Result<Visit<'t>, Error> {
        let (pid, process) = (self.pid, &target.process);
        let mut why = "no thread waits, other than for a lock, in a system call that can be interrupted".to_owned();
        loop {
            let mut threads = process.threads().map_err(Error::io(pid, "list the threads"))?;
            if let Some(only) = only.filter(|only| threads.contains(only)) {
                threads = vec![only];
            }
            let rank = |tid: &u32| {
                let call = process.system_call(*tid).filter(|call| !point::waits_for_a_lock(call, &target.library))?;
                Some((point::rank(&call)?, *tid))
            };
            let mut waiting: Vec<_> = threads.iter().filter_map(rank).collect();
            waiting.sort_unstable();
            // Before the stop: the text of many mappings takes milliseconds. A waiting thread keeps its stack.
            let mappings = process.mappings().map_err(Error::io(pid, "read the mappings"))?;
            for (_, tid) in waiting {
                // A thread in uninterruptible sleep cannot be stopped in time.
                let status = process.thread_status(tid).unwrap_or_default();
                if status.state != 'S' || status.seccomp != 0 || status.shadow_stack {
                    continue;
                }
                match Visit::begin(target, tid, &mappings, STOP) {
                    Ok(visit) => return Ok(visit),
                    Err(Ended::Unsuitable(reason)) => why = reason,
                    Err(Ended::Failed(error)) => return Err(error),
                }
                if Instant::now() >= until {
                    break;
                }
            }
            if Instant::now() >= until {
                return Err(Error::NoSafePoint { pid, why });
            }
            self.check(process)?;
            thread::sleep(PAUSE);
        }
    }

    /// Creates the memory file in the target. Returns its number there.
    fn create(&self, visit: &Visit<'_>, name: &str, again: bool) -> Result<u64, Error> {
        let failed = |what| Error::io(self.pid, what);
        let process = &visit.target().process;
        if again && let Some(number) = process.memory_file(name).map_err(failed("list the open files"))? {
            return Ok(number);
        }
        let text = visit.scratch(&[name.as_bytes(), b"\0"].concat())?;
        visit
            .system_call(libc::SYS_memfd_create, [text, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0])?
            .map_err(failed("create a file in the memory"))
    }

    /// Writes library and code to the memory file, from outside, while the target runs.
    fn write(&self, target: &Target, number: u64, name: &str) -> Result<File, Error> {
        let failed = |what| Error::io(self.pid, what);
        let taken = target.process.take_memory_file(number, name).map_err(failed("take the memory file"))?;
        let file = taken.ok_or(Error::Replaced(self.pid))?;
        file.set_len(self.offset() + code::SIZE).map_err(failed("write the memory file"))?;
        file.write_all_at(self.library, 0).map_err(failed("write the memory file"))?;
        file.write_all_at(code::code(), self.offset()).map_err(failed("write the memory file"))?;
        Ok(file)
    }

    /// Maps the code and starts the new thread. Returns whether it was started.
    fn start(
        &self,
        visit: &Visit<'_>,
        file: &File,
        (number, nonce, loaded): (u64, u64, u64),
        base: Option<u64>,
    ) -> Result<bool, Error> {
        let failed = |what| Error::io(self.pid, what);
        let base = match base {
            Some(base) => base,
            None => {
                let rights = (libc::PROT_READ | libc::PROT_EXEC) as u64;
                let shared = libc::MAP_SHARED as u64;
                visit
                    .system_call(libc::SYS_mmap, [0, code::MAPPED, rights, shared, number, self.offset()])?
                    .map_err(failed("map the memory file"))?
            }
        };
        let (entry, argument, offset) = (self.entry, self.argument, self.offset());
        let data = code::data(&visit.target().library, Call { base, number, offset, nonce, entry, loaded, argument })?;
        file.write_all_at(&data, offset + code::PAGE).map_err(failed("write the memory file"))?;
        let identifier = visit.scratch(&[0; 8])?;
        let function = visit.target().library.function("pthread_create");
        visit.starts_thread(function, [identifier, 0, base, base + code::PAGE, 0, 0])
    }

    /// Removes what the other steps have left in the target.
    fn discard(&self, visit: &Visit<'_>, number: u64, name: &str) -> Result<(), Error> {
        let failed = |what| Error::io(self.pid, what);
        if let Some(base) = self.mapping(visit.target(), name)? {
            visit
                .system_call(libc::SYS_munmap, [base, code::MAPPED, 0, 0, 0, 0])?
                .map_err(failed("unmap the memory file"))?;
        }
        if visit.target().process.memory_file(name).map_err(failed("list the open files"))? == Some(number) {
            visit.system_call(libc::SYS_close, [number, 0, 0, 0, 0, 0])?.map_err(failed("close the memory file"))?;
        }
        Ok(())
    }

    /// Returns where the code is mapped.
    fn mapping(&self, target: &Target, name: &str) -> Result<Option<u64>, Error> {
        let mappings = target.process.mappings().map_err(Error::io(self.pid, "read the mappings"))?;
        let name = format!("/memfd:{name} (deleted)");
        let found = mappings.iter().find(|mapping| mapping.name == name && mapping.offset == self.offset());
        Ok(found.map(|mapping| mapping.start))
    }

    /// Returns where the code is in the memory file.
    fn offset(&self) -> u64 {
        (self.library.len() as u64).next_multiple_of(code::PAGE)
    }

    /// Waits for the result of the new thread, while the target runs.
    fn wait(&self, target: &Target, file: &File) -> Result<u64, Error> {
        let since = Instant::now();
        let mut page = vec![0; code::PAGE as usize];
        loop {
            let alive = target.process.status().is_ok_and(|status| !matches!(status.state, 'Z' | 'X'));
            file.read_exact_at(&mut page, self.offset() + code::MAPPED)
                .map_err(Error::io(self.pid, "read the result"))?;
            match Report::read(&page) {
                Report::Returned(result) => return Ok(result),
                Report::Failed(why) => return Err(Error::Load { pid: self.pid, why }),
                Report::None if !alive => return Err(Error::Exited(self.pid)),
                Report::None if since.elapsed() > self.answer => return Err(Error::NoAnswer(self.pid)),
                Report::None => thread::sleep(PAUSE),
            }
        }
    }
}

/// Waits until the kernel has removed a thread of this process that was joined. It detaches what the thread traces a
/// moment after the join.
fn wait_for_end(tid: i32) {
    let until = Instant::now() + STOP;
    // SAFETY: signal 0 is only a check.
    while unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) } == 0 && Instant::now() < until {
        thread::yield_now();
    }
}

/// Returns whether two processes use the same memory, as after `vfork`.
fn shares_memory(pid: u32, parent: u32) -> bool {
    const KCMP_VM: u64 = 1;
    // SAFETY: kcmp compares two processes and touches no memory of this one.
    parent != 0 && unsafe { libc::syscall(libc::SYS_kcmp, u64::from(pid), u64::from(parent), KCMP_VM, 0, 0) } == 0
}
