//! Runs a function inside a running process, safely.
//!
//! [`Attach::load`] loads a library from memory into a process and calls a function of it. This is how it works:
//!
//! 1. **A thread at a safe point.** Only a thread that waits in a system call is borrowed, and only that thread is
//!    stopped (`PTRACE_SEIZE`, `PTRACE_INTERRUPT`). It must not wait within the allocator or the loader, not be in a
//!    signal handler, and have an ordinary stack. Otherwise another thread, or another moment, is tried.
//! 2. **A signal frame.** Before a register is changed, a frame as the kernel writes it for a signal handler is written
//!    below the red zone of the thread's stack. It has all registers, the vector state and the signal mask. Every call is
//!    set up like a signal handler: its return address is the C library's own `rt_sigreturn` code. So the thread returns
//!    to where it was *without a tracer*, whatever instruction it is at. If this process is killed, or a signal or the
//!    time limit ends the visit, the thread simply runs on.
//! 3. **Few, short calls.** The borrowed thread executes `memfd_create`, `mmap`, `mprotect` and `pthread_create`, with
//!    all signals blocked. The contents of the memory file are written from outside, so no path of the target's mount
//!    namespace is needed. Then the thread is restored and continues its system call.
//! 4. **A thread of its own.** What may take long runs in the new thread, while the target runs on: `dlopen`, `dlsym`,
//!    and the function. It waits for the loader's lock like any thread. It has all signals blocked, so it never takes
//!    one from the program. At its end it closes the file and removes the mapping with its own code.
//!
//! ```text
//!  this process      seize  frame  memfd  mmap  pthread_create  restore        read the result
//!  borrowed thread ~~~~~~~~|------- stopped, under 50 ms -------|~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
//!  new thread                                            |== dlopen == function ==| munmap
//! ```
//!
//! The tracer restores the thread itself if it can, because `rt_sigreturn` makes the kernel forget the time that is left
//! of an interrupted `nanosleep` or `poll`. The frame repeats such a call with its whole time.
//!
//! Everything read from the target is hostile: it is read within limits, and used only for calls in the target.

mod code;
mod error;
mod frame;
mod library;
mod point;
mod process;
mod tracee;
mod visit;

use std::{
    collections::hash_map::RandomState,
    ffi::CStr,
    fs::{File, OpenOptions},
    hash::BuildHasher,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    thread,
    time::{Duration, Instant},
};

use code::Report;
pub use error::Error;
use library::Library;
use process::{Mapping, Status};
use visit::{Ended, Visit};

/// The longest stop of a thread.
const STOP: Duration = Duration::from_millis(50);
/// The pause between two rounds in search of a safe point, and between two looks at the result.
const PAUSE: Duration = Duration::from_millis(1);
/// The largest library.
const MAX_LIBRARY: usize = 64 << 20;
const MEMORY_FILE: &[u8] = b"warpscope\0";

/// What to run in a process.
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    /// The process, in this process's pid namespace.
    pub pid: u32,
    /// The bytes of a shared library.
    pub library: &'a [u8],
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What the function has returned.
    pub result: u64,
    /// How long the borrowed thread was stopped.
    pub stopped: Duration,
}

impl Attach<'_> {
    /// Loads the library and calls its entry. The library stays loaded.
    pub fn load(&self) -> Result<Loaded, Error> {
        // A thread of its own: when it ends, the kernel detaches whatever it traces.
        let (file, stopped) = thread::scope(|scope| scope.spawn(|| self.enter()).join())
            .unwrap_or_else(|_| Err(Error::Interrupted { pid: self.pid, why: "an internal error".to_owned() }))?;
        self.wait(&file, stopped)
    }

    /// Starts the new thread in the target. Returns the memory file, and how long the borrowed thread was stopped.
    fn enter(&self) -> Result<(File, Duration), Error> {
        let pid = self.pid;
        if self.library.len() > MAX_LIBRARY {
            return Err(Error::TooLarge { what: "the library", limit: MAX_LIBRARY });
        }
        self.check()?;
        let mappings = process::mappings(pid).map_err(Error::io(pid, "read the mappings"))?;
        let library = Library::find(&mappings, |mapping| open(pid, mapping))
            .map_err(|why| Error::NoLoader { pid, why })?;
        let path = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(path).map_err(Error::io(pid, "open the memory"))?;
        if !library.verify(|address, bytes| memory.read_exact_at(bytes, address).is_ok()) {
            return Err(Error::NoLoader { pid, why: "its C library was changed in memory".to_owned() });
        }
        let visit = self.borrow(&library, &memory)?;
        let file = self.start(&visit, &library, &memory);
        let stopped = visit.end();
        Ok((file?, stopped))
    }

    /// Refuses processes that could be harmed, before they are touched.
    fn check(&self) -> Result<(), Error> {
        let pid = self.pid;
        let status = Status::of_process(pid).map_err(Error::io(pid, "read the status"))?;
        match status {
            Status { state: 'Z' | 'X', .. } if process::threads(pid).map_or(0, |threads| threads.len()) < 2 => {
                Err(Error::Zombie(pid))
            }
            Status { tracer, .. } if tracer != 0 => Err(Error::Traced { pid, tracer }),
            Status { state: 'T', .. } => Err(Error::Stopped(pid)),
            Status { seccomp, .. } if seccomp != 0 => Err(Error::Seccomp(pid)),
            Status { shadow_stack: true, .. } => Err(Error::ShadowStack(pid)),
            Status { parent, .. } if shares_memory(pid, parent) => Err(Error::SharedMemory(pid)),
            _ => {
                let program = File::open(format!("/proc/{pid}/exe")).map_err(Error::io(pid, "open the program"))?;
                let wide = elf::Elf::read(&program).is_ok_and(|elf| elf.wide && elf.machine == elf::EM_X86_64.0);
                if wide { Ok(()) } else { Err(Error::Machine(pid)) }
            }
        }
    }

    /// Finds a thread at a safe point.
    fn borrow<'l>(&self, library: &'l Library, memory: &File) -> Result<Visit<'l>, Error> {
        let pid = self.pid;
        let since = Instant::now();
        let mut why = "no thread waits in a system call".to_owned();
        loop {
            let threads = process::threads(pid).map_err(Error::io(pid, "list the threads"))?;
            let rank = |tid: &u32| {
                let number = process::system_call(pid, *tid)?;
                Some((point::WAITING.iter().position(|waiting| *waiting == number)?, *tid))
            };
            let mut waiting: Vec<(usize, u32)> = threads.iter().filter_map(rank).collect();
            waiting.sort_unstable();
            for (_, tid) in waiting {
                let state = Status::of_thread(pid, tid).map_or('X', |status| status.state);
                if state != 'S' {
                    continue;
                }
                match Visit::begin(pid, tid, library, memory, STOP) {
                    Ok(visit) => return Ok(visit),
                    Err(Ended::Unsuitable(reason)) => why = reason,
                    Err(Ended::Failed(error)) => return Err(error),
                }
                if since.elapsed() > self.patience {
                    break;
                }
            }
            if since.elapsed() > self.patience {
                return Err(Error::NoSafePoint { pid, why });
            }
            self.check()?;
            thread::sleep(PAUSE);
        }
    }

    /// Makes the memory file in the target, fills it, maps it and starts the new thread.
    fn start(&self, visit: &Visit<'_>, library: &Library, memory: &File) -> Result<File, Error> {
        let pid = self.pid;
        let failed = |what| Error::io(pid, what);
        let name = visit.scratch(memory, MEMORY_FILE)?;
        let number = visit
            .system_call(libc::SYS_memfd_create, [name, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0])?
            .map_err(failed("create a memory file"))?;
        let result = self.fill(visit, library, number);
        if result.is_err() {
            // The first error is reported; after an interruption this fails too.
            let _ = visit.system_call(libc::SYS_close, [number, 0, 0, 0, 0, 0]);
        }
        result
    }

    fn fill(&self, visit: &Visit<'_>, library: &Library, number: u64) -> Result<File, Error> {
        let pid = self.pid;
        let failed = |what| Error::io(pid, what);
        let path = format!("/proc/{pid}/fd/{number}");
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed("open the memory file"))?;
        let page = self.page();
        file.write_all_at(self.library, 0).map_err(failed("write the memory file"))?;
        file.write_all_at(code::code(), page).map_err(failed("write the memory file"))?;
        file.set_len(page + code::SIZE).map_err(failed("write the memory file"))?;
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let base = visit
            .system_call(libc::SYS_mmap, [0, code::SIZE, rights, libc::MAP_SHARED as u64, number, page])?
            .map_err(failed("map the memory file"))?;
        let started = (|| {
            let rights = (libc::PROT_READ | libc::PROT_EXEC) as u64;
            visit
                .system_call(libc::SYS_mprotect, [base, code::PAGE, rights, 0, 0, 0])?
                .map_err(failed("map the memory file"))?;
            let nonce = RandomState::new().hash_one(base);
            let data = code::data(library, base, number, nonce, self.entry, self.argument)?;
            file.write_all_at(&data, page + code::PAGE).map_err(failed("write the memory file"))?;
            let data = base + code::PAGE;
            // The last words of the data page receive the identifier of the thread.
            let identifier = data + code::PAGE - 64;
            visit.starts_thread(library.function("pthread_create"), [identifier, 0, base, data, 0, 0])
        })();
        match started {
            Ok(true) => Ok(file),
            Ok(false) => {
                visit.system_call(libc::SYS_munmap, [base, code::SIZE, 0, 0, 0, 0])?.map_err(failed("unmap"))?;
                Err(failed("start a thread")(io::ErrorKind::WouldBlock.into()))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns where the code begins in the memory file.
    fn page(&self) -> u64 {
        (self.library.len() as u64).next_multiple_of(code::PAGE)
    }

    /// Waits for the result of the new thread, while the target runs.
    fn wait(&self, file: &File, stopped: Duration) -> Result<Loaded, Error> {
        let since = Instant::now();
        let mut page = vec![0; code::PAGE as usize];
        loop {
            let alive = Status::of_process(self.pid).is_ok_and(|status| !matches!(status.state, 'Z' | 'X'));
            file.read_exact_at(&mut page, self.page() + code::PAGE).map_err(Error::io(self.pid, "read the result"))?;
            match Report::read(&page) {
                Report::Returned(result) => return Ok(Loaded { result, stopped }),
                Report::Failed(why) => return Err(Error::Load { pid: self.pid, why }),
                Report::None if !alive => return Err(Error::Exited(self.pid)),
                Report::None if since.elapsed() > self.answer => return Err(Error::NoAnswer(self.pid)),
                Report::None => thread::sleep(PAUSE),
            }
        }
    }
}

/// Opens the file of a mapping: the very file, also if its path has been replaced or is in another mount namespace.
fn open(pid: u32, mapping: &Mapping) -> Option<File> {
    File::open(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end))
        .or_else(|_| {
            // Anything may be at that path now, such as a pipe without a writer.
            let path = format!("/proc/{pid}/root{}", mapping.name);
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
        })
        .ok()
        .filter(|file| file.metadata().is_ok_and(|info| info.is_file()))
}

/// Returns whether two processes use the same memory, as after `vfork`.
fn shares_memory(pid: u32, parent: u32) -> bool {
    const KCMP_VM: u64 = 1;
    // SAFETY: kcmp compares two processes and touches no memory of this one.
    parent != 0 && unsafe { libc::syscall(libc::SYS_kcmp, u64::from(pid), u64::from(parent), KCMP_VM, 0, 0) } == 0
}
