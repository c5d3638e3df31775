//! One traced thread. The only file with `ptrace`.

use std::{
    hint, io, mem, ptr, thread,
    time::{Duration, Instant},
};

use libc::{c_long, c_uint, c_void, user_regs_struct as Registers};

/// `NT_X86_XSTATE`: the extended state as `XSAVE` writes it.
const NT_X86_XSTATE: usize = 0x202;
/// How long to wait for a stop without a pause, and the pause.
const SPINNING: Duration = Duration::from_micros(10);
const PAUSE: Duration = Duration::from_micros(20);
/// With AMX it has 11 KiB.
const MAX_XSTATE: usize = 1 << 15;

/// Why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// `PTRACE_INTERRUPT`
    Interrupt,
    /// The entry or the exit of a system call.
    SystemCall,
    /// A stop of the whole process.
    Group,
    /// A signal that is about to be delivered.
    Signal(i32),
    /// It has executed another program.
    Exec,
    /// It has ended.
    Exit,
}

/// A thread traced by the current thread. When the current thread ends, the kernel detaches it.
#[derive(Debug)]
pub(crate) struct Tracee {
    tid: u32,
    deadline: Instant,
}

impl Tracee {
    /// Attaches to a thread without stopping it.
    pub fn seize(tid: u32, deadline: Instant) -> io::Result<Self> {
        let tracee = Tracee { tid, deadline };
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC;
        tracee.request(libc::PTRACE_SEIZE, 0, options as usize)?;
        Ok(tracee)
    }

    /// Returns the thread.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Returns whether the deadline has passed.
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Requests a stop.
    pub fn interrupt(&self) -> io::Result<()> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0).map(drop)
    }

    /// Continues the thread to the entry or exit of the next system call.
    pub fn to_system_call(&self) -> io::Result<()> {
        self.request(libc::PTRACE_SYSCALL, 0, 0).map(drop)
    }

    /// Continues the thread.
    pub fn resume(&self) -> io::Result<()> {
        self.request(libc::PTRACE_CONT, 0, 0).map(drop)
    }

    /// Detaches from the stopped thread and delivers a signal, if it is not 0.
    pub fn detach(self, signal: i32) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0, signal as usize).map(drop)
    }

    /// Waits for the next stop until the deadline.
    pub fn wait(&self) -> io::Result<Stop> {
        let since = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: waitpid writes the status only.
            let found = unsafe { libc::waitpid(self.tid as i32, &mut status, libc::__WALL | libc::WNOHANG) };
            match found {
                0 if self.is_late() => return Err(io::ErrorKind::TimedOut.into()),
                // A stop lasts microseconds. If it takes longer, the thread may need this very processor.
                0 if since.elapsed() < SPINNING => hint::spin_loop(),
                0 => thread::sleep(PAUSE),
                -1 => match io::Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(Stop::Exit),
                    error => return Err(error),
                },
                _ => return Ok(Self::stop(status)),
            }
        }
    }

    fn stop(status: i32) -> Stop {
        if !libc::WIFSTOPPED(status) {
            return Stop::Exit;
        }
        match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Interrupt,
            (_, libc::PTRACE_EVENT_STOP) => Stop::Group,
            (_, libc::PTRACE_EVENT_EXEC) => Stop::Exec,
            (signal, _) if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
            (signal, _) => Stop::Signal(signal),
        }
    }

    /// Returns the general registers.
    pub fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all fields are integers.
        let mut registers: Registers = unsafe { mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, 0, ptr::from_mut(&mut registers) as usize)?;
        Ok(registers)
    }

    /// Sets the general registers, all at once.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        self.request(libc::PTRACE_SETREGS, 0, ptr::from_ref(registers) as usize).map(drop)
    }

    /// Returns the floating-point and vector state.
    pub fn xstate(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0_u8; MAX_XSTATE];
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
        self.request(libc::PTRACE_GETREGSET, NT_X86_XSTATE, ptr::from_mut(&mut vector) as usize)?;
        bytes.truncate(vector.iov_len);
        Ok(bytes)
    }

    /// Sets the floating-point and vector state.
    pub fn set_xstate(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
        self.request(libc::PTRACE_SETREGSET, NT_X86_XSTATE, ptr::from_mut(&mut vector) as usize).map(drop)
    }

    /// Returns the mask of blocked signals.
    pub fn mask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        self.request(libc::PTRACE_GETSIGMASK, size_of::<u64>(), ptr::from_mut(&mut mask) as usize)?;
        Ok(mask)
    }

    /// Sets the mask of blocked signals.
    pub fn set_mask(&self, mask: u64) -> io::Result<()> {
        self.request(libc::PTRACE_SETSIGMASK, size_of::<u64>(), ptr::from_ref(&mask) as usize).map(drop)
    }

    /// Every caller passes integers, or a pointer to a value of the size and type that the request reads or writes.
    fn request(&self, request: c_uint, address: usize, data: usize) -> io::Result<c_long> {
        // SAFETY: see above: pointers are to live values of the right type.
        let result = unsafe { libc::ptrace(request, self.tid, address, data) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}
