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
    events::{Events, spec::Spec},
    memory::{self, Memory},
    process::procfs,
    sessions::Sessions,
    sink::Sink,
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
    /// Counts these events from now on, and adds up the time off the CPU.
    pub fn count_events(
        &mut self,
        specs: Vec<Spec>,
        off_cpu: bool,
        program: &OsString,
        simulator: Option<&Path>,
    ) -> anyhow::Result<()> {
        if specs.is_empty() && !off_cpu {
            return Ok(());
        }
        let (recorder, sink) = (&mut self.recorder, &mut self.sink);
        let push = &mut |event| sink.push(&event);
        let mut events = Events::new(specs, off_cpu, push);
        events.watch(search::program(program).as_deref(), simulator, recorder, push)?;
        self.unwinding.prepare(&mut self.kept.files, events.watched_files());
        self.events = Some(events);
        Ok(())
    }

    /// Records who allocates and frees GPU memory from now on.
    pub fn record_memory(&mut self, program: &OsString, simulator: Option<&Path>) -> anyhow::Result<()> {
        let trace = memory::tracer(self.recorder.can_watch_many())?;
        self.watch_calls(trace, program, simulator)?;
        let mut memory = Memory::default();
        let program = search::program(program);
        self.recorder.open_calls(false);
        memory.watch(program.as_deref(), simulator, &mut self.recorder);
        self.recorder.open_calls(true);
        self.unwinding.prepare(&mut self.kept.files, memory.watched_files());
        self.memory = Some(memory);
        Ok(())
    }

    /// Records the energy of GPUs from now on. Without it, the recording says why.
    pub fn record_energy(&mut self, simulator: Option<&Path>) {
        if let Err(error) = self.gpu_counters.start_energy(simulator) {
            self.note(format!("energy was not recorded: {error}"));
        }
    }

    /// Records how busy the parts of GPUs are from now on. Without that, the recording says why.
    pub fn record_counters(&mut self, program: &OsString, simulator: Option<&Path>) {
        let sink = &mut self.sink;
        let program = search::program(program);
        self.gpu_counters.start_counters(program.as_deref(), simulator, &mut |event| sink.push(&event));
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
        self.trace = Some(trace);
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
                self.take_hits(false);
                self.name_handles(false);
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
