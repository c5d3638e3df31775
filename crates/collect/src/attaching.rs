//! Loads the injected library into running processes.
//!
//! This may take long, and the processes are sampled meanwhile, so it runs on threads of its own.
//!
//! 1. The injected library creates a pair of sockets; one end is copied with `pidfd_getfd`, and the library closes its
//!    own copy.
//! 2. The probe is attached to the marker in the process's own copy of the library: a memory file has an inode like any
//!    other.
//! 3. The library's hello is answered once the unwind tables are compiled, which happens while the library is loaded.

use std::{
    ffi::CStr,
    fs::File,
    os::fd::OwnedFd,
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread,
    time::Duration,
};

use attach::Attach;
use rustix::net::SendFlags;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::{
    INJECTOR,
    command::{priority, target::Injection},
    process::procfs,
    sessions::{is_pair_of, refusal_sentence},
};

/// How long to search for a thread at a safe point.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait until the library is loaded, which may have to wait for the loader's lock.
const ANSWER: Duration = Duration::from_secs(10);
/// The most processes that are entered at the same time.
const AT_ONCE: usize = 8;
/// The function to call.
const ENTRY: &CStr = c"warpscope_attach";
const _: () = assert!(matches!(ENTRY.to_bytes(), bytes if bytes.len() == wire::ATTACH_SYMBOL.len()));

/// What can be recorded without entering a process.
const COUNT_LAUNCHES: &str = "use --no-inject to count its launches without GPU times";

/// A process that has been entered.
#[derive(Debug)]
pub struct Attached {
    /// The process.
    pub pid: u32,
    /// The longest stop of a thread.
    pub stopped: Duration,
    /// The connection to the injected library.
    pub socket: OwnedFd,
    /// The injected library's file, as the process has it.
    pub library: File,
}

/// Why a process was not entered: a sentence.
pub type Why = String;

/// The processes that are being entered.
#[derive(Debug)]
pub struct Attaching {
    entered: Receiver<Result<Attached, Why>>,
    pending: usize,
}

impl Attaching {
    /// Starts to enter these processes.
    pub fn start(pids: &[u32], injection: &Injection) -> Self {
        let (sender, entered) = mpsc::channel();
        let settings = injection.settings();
        let each = pids.len().div_ceil(AT_ONCE).max(1);
        for part in pids.chunks(each) {
            let (pids, settings, results) = (part.to_vec(), settings.clone(), sender.clone());
            let spawned = thread::Builder::new().name("attach".into()).spawn(move || {
                // A thread of the target is stopped meanwhile.
                priority::raise();
                for pid in pids {
                    send(&results, enter(pid, &settings));
                }
            });
            if let Err(error) = spawned {
                for pid in part {
                    send(&sender, Err(format!("process {pid}: cannot start a thread: {error}")));
                }
            }
        }
        Self { entered, pending: pids.len() }
    }

    /// Returns those that are done.
    pub fn take(&mut self) -> Vec<Result<Attached, Why>> {
        let mut entered = Vec::new();
        loop {
            match self.entered.try_recv() {
                Ok(result) => entered.push(result),
                Err(TryRecvError::Empty) => break,
                // A thread has ended without a result for each of its processes.
                Err(TryRecvError::Disconnected) => {
                    self.pending = 0;
                    break;
                }
            }
        }
        self.pending = self.pending.saturating_sub(entered.len());
        entered
    }

    /// Whether any is not done.
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }
}

/// Nobody may be left to receive it.
fn send(results: &Sender<Result<Attached, Why>>, result: Result<Attached, Why>) {
    let _ = results.send(result);
}

/// Loads the library into a process and takes the connection.
fn enter(pid: u32, settings: &[u8]) -> Result<Attached, Why> {
    if !procfs::runs(pid) {
        return Err(format!("process {pid} has exited"));
    }
    if !procfs::has_cuda(pid) {
        return Err(format!("process {pid} has not loaded CUDA (libcuda is not mapped)"));
    }
    let attach = Attach {
        pid,
        library: embedded::INJECTOR,
        name: INJECTOR,
        entry: ENTRY,
        argument: settings,
        patience: PATIENCE,
        answer: ANSWER,
    };
    let loaded = attach.load().map_err(|error| format!("{error}; {COUNT_LAUNCHES}"))?;
    match wire::attached(loaded.result) {
        Some(Ok(number)) => {
            let socket = pidfd_getfd(&loaded.process, number.cast_signed(), PidfdGetfdFlags::empty())
                .map_err(|error| format!("the connection to process {pid} cannot be taken: {error}"))?;
            // The number may mean anything, such as a connection to a service that trusts what root writes.
            if !is_pair_of(&socket, pid) {
                return Err(format!("process {pid}: the injected library's connection was replaced"));
            }
            // If this fails, it closes its copy later.
            let _ = rustix::net::send(&socket, &[wire::TAKEN], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            Ok(Attached { pid, stopped: loaded.stopped, socket, library: loaded.file })
        }
        Some(Err((refusal, error))) => {
            Err(format!("process {pid}: {}; {COUNT_LAUNCHES}", refusal_sentence(refusal, error)))
        }
        None => Err(format!("process {pid}: the injected library gave an unknown answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that processes whose thread has ended without a result are not waited for.
    #[test]
    fn missing_results_are_not_awaited() {
        let (sender, entered) = mpsc::channel();
        let mut attaching = Attaching { entered, pending: 3 };
        send(&sender, Err("process 1 has exited".into()));
        assert_eq!(attaching.take().len(), 1);
        assert!(attaching.is_pending());
        drop(sender);
        assert!(attaching.take().is_empty() && !attaching.is_pending());
    }
}
