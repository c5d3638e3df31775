//! Starts the command, and waits.

use std::{
    ffi::OsString,
    io,
    os::fd::RawFd,
    path::Path,
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use bpf::Mappings;

use super::parts::Collector;
use crate::{
    calls::{search, tracer::Tracer},
    command::{
        priority,
        target::{self, Injection},
        user::User,
    },
    process::procfs,
    sessions::Sessions,
    sink::Sink,
    source::Source,
};

/// The longest sleep when nothing wakes the loop: urgent records and a filling ring wake it.
pub(super) const IDLE: Duration = Duration::from_millis(10);
/// How often the recording is flushed to disk.
const FLUSH: Duration = Duration::from_secs(1);

/// What ends a recording before its time limit.
pub enum Until<'a> {
    /// The command's end.
    CommandEnds(&'a mut Child),
    /// The end of all these processes, or a signal.
    ProcessesEnd(&'a [u32]),
    /// A signal.
    Stopped,
}

impl<S: Sink> Collector<S> {
    /// Adds a source, which has announced what it records.
    pub fn add(&mut self, source: impl Source + 'static) {
        self.unwinding.prepare(&mut self.kept.files, source.watched_files().unwrap_or_default());
        self.sources.push(Box::new(source));
    }

    /// Watches calls beside the recording, from now on.
    pub fn watch_calls(
        &mut self,
        mut trace: Tracer,
        program: &OsString,
        simulator: Option<&Path>,
    ) -> anyhow::Result<()> {
        let program = search::program(program);
        let (recorder, sink) = (&mut self.recorder, &mut self.sink);
        let push = &mut |event| sink.push(&event);
        recorder.open_calls(false);
        let directories = search::directories(program.as_deref(), simulator);
        for file in search::files(&directories, |name| trace.libraries.wanted.wants(name)) {
            trace.watch(&file, recorder, push)?;
        }
        // A program that cannot be read or is a script has no functions of its own.
        if let Some(program) = &program {
            let _ = trace.watch(program, recorder, push);
        }
        recorder.open_calls(true);
        self.trace = Some(Box::new(trace));
        Ok(())
    }

    /// Starts a command whose processes are followed from their first instruction.
    pub fn start(&mut self, command: &[OsString], injection: &Injection, user: Option<&User>) -> anyhow::Result<Child> {
        self.recorder.follow_children()?;
        let child = target::start(command, injection, user);
        self.recorder.forget_children()?;
        Ok(child?)
    }

    /// Collects until the end condition or `deadline`. Returns the exit status of a command that has ended.
    pub fn run(&mut self, mut until: Until<'_>, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
        // A command that has given up its privileges has done so before.
        priority::raise();
        let mut flushed = Instant::now();
        loop {
            let busy = self.gather();
            match &mut until {
                Until::CommandEnds(child) => {
                    self.signals.pass_on(child);
                    if let Some(status) = child.try_wait()? {
                        return Ok(Some(status));
                    }
                }
                Until::ProcessesEnd(pids) if pids.iter().all(|pid| self.has_ended(*pid, busy)) => return Ok(None),
                Until::ProcessesEnd(_) | Until::Stopped if self.signals.stop_requested() => return Ok(None),
                Until::ProcessesEnd(_) | Until::Stopped => {}
            }
            self.sink.round(self.signals.dump_requested(), &self.kept);
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(None);
            }
            if flushed.elapsed() >= FLUSH {
                self.each_source(|source, around| source.each_second(around));
                self.forget_unused();
                if self.sink.wants_losses() {
                    self.count_losses();
                }
                self.sink.flush();
                flushed = Instant::now();
            }
            if !busy {
                let left = deadline.map_or(IDLE, |d| d.saturating_duration_since(Instant::now()).min(IDLE));
                self.sleep(left, None);
            }
        }
    }

    /// Whether a process that was running before us has ended. Its exit may have been missed, so /proc is checked when
    /// the loop is idle.
    fn has_ended(&self, pid: u32, busy: bool) -> bool {
        self.images.current(pid).is_none() || (!busy && !procfs::runs(pid))
    }

    /// Waits for input, here or on another descriptor, for at most this long.
    pub fn sleep(&self, longest: Duration, also: Option<RawFd>) {
        let mut wait_on: Vec<libc::pollfd> =
            self.descriptors().chain(also).map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the list is valid for its length. An interrupted wait is equivalent to one that timed out.
        unsafe { libc::poll(wait_on.as_mut_ptr(), wait_on.len() as libc::nfds_t, longest.as_millis() as libc::c_int) };
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let mappings = self.mappings.iter().flat_map(Mappings::descriptors);
        let sessions = self.sessions.iter().flat_map(Sessions::descriptors);
        let own = self.recorder.descriptors().into_iter().chain([self.signals.descriptor()]);
        own.chain(mappings).chain(sessions)
    }
}
