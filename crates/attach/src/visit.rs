//! One visit to a borrowed thread: stop, calls, return.

use std::{
    cell::Cell,
    fs::File,
    io,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use libc::user_regs_struct as Registers;

use crate::{
    Error,
    frame::{self, Frame, SCRATCH},
    library::Library,
    point::{self, Return},
    process::{Mapping, Process},
    tracee::{Stop, Tracee},
};

/// A process that may be visited.
#[derive(Debug)]
pub(crate) struct Target {
    pub process: Process,
    pub library: Library,
}

/// Why a visit has ended early. In every case the thread runs on as before.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Nothing was changed: another thread, or another moment, may be suitable.
    Unsuitable(String),
    /// The attempt is over.
    Failed(Error),
}

/// A borrowed thread, stopped, with a signal frame on its stack.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    target: &'a Target,
    /// That of the thread since it was stopped.
    memory: File,
    tracee: Tracee,
    frame: Frame,
    back: Return,
    mask: u64,
    xstate: Vec<u8>,
    since: Instant,
    /// The stop that ended the visit early; nothing while it goes well.
    over: Cell<Option<EndedEarly>>,
}

/// How a visit was ended early.
#[derive(Clone, Copy, Debug)]
enum EndedEarly {
    /// The thread is stopped and is about to receive a signal, if it is not 0.
    Stopped(i32),
    /// The thread runs.
    Late,
}

impl<'a> Visit<'a> {
    /// Stops a thread and prepares it for calls if it is at a safe point; otherwise lets it run on.
    pub fn begin(target: &'a Target, tid: u32, mappings: &[Mapping], limit: Duration) -> Result<Self, Ended> {
        let Target { process, library } = target;
        let pid = process.pid;
        let failed = |what| move |error: io::Error| Ended::Failed(Error::io(pid, what)(error));
        let since = Instant::now();
        let tracee = Tracee::seize(tid, since + limit).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => Ended::Unsuitable("a thread has ended".to_owned()),
            Some(libc::EPERM) if process.thread_status(tid).is_ok_and(|status| status.tracer != 0) => {
                Ended::Unsuitable("a thread has another tracer".to_owned())
            }
            _ => Ended::Failed(Error::io(pid, "trace a thread")(error)),
        })?;
        tracee.interrupt().map_err(failed("stop a thread"))?;
        match tracee.wait() {
            Ok(Stop::Interrupt) => {}
            // Or it has executed a program, with the number of the process. Then it waits for the end of its tracer.
            Ok(Stop::Exit) => return Err(gone(pid)),
            // Not ours to disturb: the signal is delivered, and the process stays stopped if it was.
            Ok(Stop::Signal(signal)) => return Err(leave(pid, tracee, signal, "a thread was receiving a signal")),
            Ok(_) => return Err(leave(pid, tracee, 0, "the process was being stopped")),
            // It can be detached only when it stops, or by the end of the current thread.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let why = "a thread could not be stopped in time".to_owned();
                return Err(Ended::Failed(Error::Interrupted { pid, why }));
            }
            Err(error) => return Err(failed("stop a thread")(error)),
        }
        let registers = tracee.registers().map_err(failed("read the registers"))?;
        let mask = tracee.mask().map_err(failed("read the signal mask"))?;
        let mut xstate = tracee.xstate().map_err(failed("read the vector registers"))?;
        frame::keep_protection_keys(&mut xstate);
        // All of this is read again: until now the process could execute another program, with other rights, and its
        // number and those of its threads could be given to other processes.
        let status = process.thread_status(tid).map_err(failed("read the status"))?;
        let memory = process.memory(tid).map_err(failed("open the memory"))?;
        let is_privileged = process.is_privileged().map_err(failed("read the vector of its program"))?;
        let read = |address: u64, bytes: &mut [u8]| memory.read_exact_at(bytes, address).is_ok();
        if status.pending & !status.blocked != 0 {
            return Err(leave(pid, tracee, 0, "a thread was receiving a signal"));
        }
        let back = Return::to(&registers);
        let why_other = if is_privileged || status.seccomp != 0 || status.shadow_stack {
            Some("a thread has changed its privileges")
        } else if !library.verify(read) {
            Some("the process has executed another program")
        } else {
            None
        };
        if let Some(why_unsafe) = why_other.or_else(|| point::why_unsafe(&registers, library, mappings, read)) {
            // The program must not see an EINTR that is ours.
            tracee.set_registers(&back.traced).map_err(failed("set the registers"))?;
            return Err(leave(pid, tracee, 0, why_unsafe));
        }
        let Some(frame) = Frame::build(&back.alone, mask, &xstate, library.restorer) else {
            tracee.set_registers(&back.traced).map_err(failed("set the registers"))?;
            return Err(leave(pid, tracee, 0, "a thread's vector registers are of an unknown kind"));
        };
        // Below the red zone of the stack: this memory is unused until the registers change.
        memory.write_all_at(&frame.bytes, frame.address).map_err(failed("write to the stack"))?;
        let visit = Visit { target, memory, tracee, frame, back, mask, xstate, since, over: Cell::new(None) };
        // The registers first: from here on the thread returns by the frame, which also has the mask.
        visit.set(&visit.entry(library.restorer, [0; 6], 8)).map_err(Ended::Failed)?;
        visit.tracee.set_mask(u64::MAX).map_err(failed("block the signals"))?;
        Ok(visit)
    }

    /// Returns the borrowed thread.
    pub fn tid(&self) -> u32 {
        self.tracee.tid()
    }

    /// Returns the process.
    pub fn target(&self) -> &'a Target {
        self.target
    }

    fn pid(&self) -> u32 {
        self.target.process.pid
    }

    /// Writes a short string for a system call and returns its address.
    pub fn scratch(&self, text: &[u8]) -> Result<u64, Error> {
        let text = text.get(..text.len().min(SCRATCH as usize)).unwrap_or_default();
        self.memory.write_all_at(text, self.frame.scratch).map_err(Error::io(self.pid(), "write to the stack"))?;
        Ok(self.frame.scratch)
    }

    /// Executes a system call in the thread.
    pub fn system_call(&self, number: i64, arguments: [u64; 6]) -> Result<Result<u64, io::Error>, Error> {
        if self.over.get().is_some() {
            return Err(self.interrupted("it received a signal or the time limit was reached"));
        }
        let mut registers = self.entry(self.target.library.system_call, arguments, 0);
        registers.rax = number as u64;
        // The fourth argument of a system call.
        registers.r10 = arguments[3];
        self.set(&registers)?;
        let entered = self.to_system_call()?;
        if entered.orig_rax != number as u64 {
            return Err(self.interrupted("the thread did not execute the system call"));
        }
        let result = self.to_system_call()?.rax as i64;
        Ok(if (-4095..0).contains(&result) {
            Err(io::Error::from_raw_os_error(-result as i32))
        } else {
            Ok(result as u64)
        })
    }

    /// Calls a function in the thread. Returns whether it has started a thread, or may do so when the time limit was
    /// reached: the function goes on without a tracer.
    pub fn starts_thread(&self, function: u64, arguments: [u64; 6]) -> Result<bool, Error> {
        self.set(&self.entry(function, arguments, 0))?;
        match self.follow() {
            Err(Error::Interrupted { .. }) if self.over.get().is_some() => Ok(true),
            result => result,
        }
    }

    /// Follows a function to its return.
    fn follow(&self) -> Result<bool, Error> {
        let mut started = false;
        loop {
            let entered = self.to_system_call()?;
            if entered.orig_rax as i64 == libc::SYS_rt_sigreturn {
                break;
            }
            let left = self.to_system_call()?;
            let number = entered.orig_rax as i64;
            started |= (number == libc::SYS_clone || number == libc::SYS_clone3) && (left.rax as i64) > 0;
        }
        // Skips this rt_sigreturn. Without a tracer, the thread executes it again.
        self.set(&self.entry(self.target.library.restorer, [0; 6], 8))?;
        self.to_system_call()?;
        Ok(started)
    }

    /// Returns the thread to where it was. Returns how long it was stopped.
    ///
    /// If this cannot be done in time, the thread returns by its frame when the current thread ends.
    pub fn end(self) -> Duration {
        let since = self.since;
        // An error needs no other action: the thread has ended, or it returns by its frame.
        let _ = self.restore();
        since.elapsed()
    }

    fn restore(mut self) -> io::Result<()> {
        match self.over.get() {
            Some(EndedEarly::Stopped(signal)) => return self.tracee.detach(signal),
            Some(EndedEarly::Late) => return Ok(()),
            None => {}
        }
        // The kernel restarts a system call only after a stop for an interrupt.
        self.tracee.interrupt()?;
        self.tracee.resume()?;
        match self.tracee.wait()? {
            Stop::Interrupt | Stop::Group => {}
            Stop::Signal(signal) => return self.tracee.detach(signal),
            Stop::Exit => return Ok(()),
            Stop::SystemCall | Stop::Exec => return self.tracee.detach(0),
        }
        // The general registers last: until then the thread returns by the frame.
        self.tracee.set_mask(self.mask)?;
        self.tracee.set_xstate(&mut self.xstate)?;
        self.tracee.set_registers(&self.back.traced)?;
        self.tracee.detach(0)
    }

    /// Returns the registers at the entry of a function, with the frame as its caller.
    fn entry(&self, function: u64, arguments: [u64; 6], popped: u64) -> Registers {
        let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
        let rsp = self.frame.address + popped;
        // The direction flag is clear and no system call is restarted.
        Registers {
            rip: function,
            rsp,
            rdi,
            rsi,
            rdx,
            rcx,
            r8,
            r9,
            orig_rax: u64::MAX,
            eflags: 0x202,
            ..self.back.alone
        }
    }

    fn set(&self, registers: &Registers) -> Result<(), Error> {
        self.tracee.set_registers(registers).map_err(Error::io(self.pid(), "set the registers"))
    }

    /// Continues to the next entry or exit of a system call. An error ends the visit: the thread returns by its frame.
    fn to_system_call(&self) -> Result<Registers, Error> {
        // Also for a target that makes system calls without end.
        if self.tracee.is_late() {
            self.over.set(Some(EndedEarly::Stopped(0)));
            return Err(self.interrupted("the time limit was reached"));
        }
        self.tracee.to_system_call().map_err(Error::io(self.pid(), "continue a thread"))?;
        match self.tracee.wait() {
            Ok(Stop::SystemCall) => self.tracee.registers().map_err(Error::io(self.pid(), "read the registers")),
            Ok(Stop::Exit) => Err(Error::Exited(self.pid())),
            // Nothing of the new program may be changed: it may have more rights than the target had.
            Ok(Stop::Exec) => {
                self.over.set(Some(EndedEarly::Stopped(0)));
                Err(self.interrupted("it executed another program"))
            }
            Ok(stop) => {
                self.over.set(Some(EndedEarly::Stopped(if let Stop::Signal(signal) = stop { signal } else { 0 })));
                Err(self.interrupted("it received a signal"))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.over.set(Some(EndedEarly::Late));
                Err(self.interrupted("the time limit was reached"))
            }
            Err(error) => Err(Error::io(self.pid(), "wait for a thread")(error)),
        }
    }

    fn interrupted(&self, why: &str) -> Error {
        Error::Interrupted { pid: self.pid(), why: why.to_owned() }
    }
}

/// Lets a thread run on that was stopped and not changed.
fn leave(pid: u32, tracee: Tracee, signal: i32, why: &str) -> Ended {
    match tracee.detach(signal) {
        Ok(()) => Ended::Unsuitable(why.to_owned()),
        // `execve` or `exit` has ended the thread, but it stays with its tracer until the current thread ends. `execve`
        // waits for that, and the kernel would make the next `PTRACE_SEIZE` wait for `execve`.
        Err(_) => gone(pid),
    }
}

/// A thread has ended. What is left of it may be traced until the current thread ends.
fn gone(pid: u32) -> Ended {
    Ended::Failed(Error::Interrupted { pid, why: "a thread has ended".to_owned() })
}
