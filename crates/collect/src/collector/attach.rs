//! Attaches to running processes: the probe on the marker first, then the session.

use std::time::{Duration, Instant};

use model::event::ProcessId;
use rustix::net::SendFlags;

use super::{parts::Collector, run::IDLE};
use crate::{
    attaching::{Attached, Attaching},
    command::target::Injection,
    injector,
    process::procfs,
    sink::Sink,
};

/// How long GPU activity and events wait for unwind tables. Those of PyTorch take more than a second.
const FIRST_TABLES: Duration = Duration::from_secs(10);
/// How long the end of a recording waits for processes that are being entered: longer than that takes.
const LAST_ENTRIES: Duration = Duration::from_secs(20);

impl<S: Sink> Collector<S> {
    /// Follows running processes, which the programs know as the images 1, 2 and so on. If `injection` is given, also loads
    /// the injected library into them. Returns when their unwind tables are compiled, if there are launches or events to
    /// record: they are recorded from then on. Otherwise their first stacks would fill the ring as raw memory.
    pub fn follow(&mut self, pids: &[u32], injection: Option<&Injection>) {
        for (pid, image) in pids.iter().zip(1..) {
            self.adopt(*pid, ProcessId(image), 0, "");
        }
        // It is loaded while tables are compiled, and then waits for them.
        self.attaching = injection.map(|injection| Attaching::start(pids, injection));
        let waits = injection.is_some() || self.sources.iter().any(|source| source.watched_files().is_some());
        let deadline = Instant::now() + FIRST_TABLES;
        // A signal that is not read, such as that of a child of ours, would make every wait end at once.
        let stopped = |collector: &Self| collector.signals.stop_requested() || Instant::now() >= deadline;
        let images = 1..=pids.len() as u32;
        let compiling =
            |collector: &Self| images.clone().any(|image| collector.unwinding.is_compiling(ProcessId(image)));
        while waits && compiling(self) && !stopped(self) {
            if !self.gather() {
                self.sleep(IDLE, None);
            }
        }
        self.recorder.open_hits(true);
    }

    /// Takes the processes that have been entered.
    pub(super) fn take_attached(&mut self) {
        let Some(attaching) = &mut self.attaching else { return };
        let entered = attaching.take();
        for entered in entered {
            let taken = entered.and_then(|attached| self.take_session(attached));
            if let Err(why) = taken {
                self.note(format!("GPU activity was not recorded: {why}"));
            }
        }
    }

    fn take_session(&mut self, attached: Attached) -> Result<(), String> {
        let Attached { pid, stopped, socket, library } = attached;
        (self.on_attached)(pid, stopped);
        let marker = injector::marker(procfs::open_file(&library));
        if let Err(error) = self.recorder.add_marker(&marker) {
            // The library then ends its session at once. If this fails, it does so after a while.
            let _ = rustix::net::send(&socket, &[wire::FINISH], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            return Err(format!("process {pid}: {error}"));
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.adopt(socket, pid);
        }
        Ok(())
    }

    /// Waits for the processes that are being entered, so that none is left with a library that waits for us.
    pub(super) fn end_attaching(&mut self) {
        let deadline = Instant::now() + LAST_ENTRIES;
        while self.attaching.as_ref().is_some_and(Attaching::is_pending) && Instant::now() < deadline {
            self.signals.stop_requested();
            if !self.gather() {
                self.sleep(IDLE, None);
            }
        }
    }
}
