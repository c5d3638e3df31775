//! The loop of a recording: waits for anything to come, and brings it to the sink.

use std::{
    io,
    os::fd::RawFd,
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use bpf::{MapEvent, Mappings, Origin, Record, Recorder};
use model::event::{
    self, Event, Frame, Launch, LaunchKind, Loss, LossCause, Mapping, Note, Process, ProcessId, Sample, SessionId,
    Stack, StackEnd, StackId, Thread,
};
use symbols::Kept;
use unwind::Ended;
use wire::Refusal;

use crate::{
    calls::tracer::{Mapped, Tracer, switch},
    command::signals::Signals,
    events::Events,
    process::{found, images::Images, reused::Reused},
    sessions::{Sessions, silent::Silent},
    sink::Sink,
    stacks::{
        python::Pythons,
        unwinding::{Unwinding, Walked},
    },
};

/// How long the loop sleeps at most when nothing wakes it: whatever cannot wait does, and so does a ring that fills.
const IDLE: Duration = Duration::from_millis(10);
/// How often the recording is brought to the disk.
const FLUSH: Duration = Duration::from_secs(1);

/// How long a recording waits for the last GPU records of processes that run on.
const LAST_RECORDS: Duration = Duration::from_millis(500);

/// Everything that a recording listens to.
pub struct Collector<S> {
    /// The BPF programs.
    pub recorder: Recorder,
    /// What the kernel says about mappings; absent if it does not.
    pub mappings: Option<Mappings>,
    /// The injected libraries, where there are any.
    pub sessions: Option<Sessions>,
    /// CUDA processes that report nothing, where sessions are expected.
    pub silent: Option<Silent>,
    /// Signals sent to warpscope.
    pub signals: Signals,
    /// Where events go.
    pub sink: S,
    /// The images of every process.
    pub images: Images,
    /// What outlives the processes, for their names.
    pub kept: Kept,
    /// Unwind tables, and stacks that wait for them.
    pub unwinding: Unwinding,
    /// Addresses that more than one file has had.
    pub reused: Reused,
    /// Absent if Python frames are not asked for.
    pub pythons: Option<Pythons>,
    /// Present in a trace.
    pub trace: Option<Tracer>,
    /// Present if events are counted.
    pub events: Option<Events>,
    /// Nanoseconds that one CPU sample stands for.
    pub period: u64,
}

/// What ends a recording, if its time does not.
pub enum Until<'a> {
    /// The command's end.
    CommandEnds(&'a mut Child),
    /// The end of all these processes, or a signal.
    ProcessesEnd(&'a [u32]),
    /// A signal.
    Stopped,
}

impl<S: Sink> Collector<S> {
    /// Collects until something ends it, or until `deadline`. The status is that of a command that has ended.
    pub fn run(&mut self, mut until: Until<'_>, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
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
                Until::ProcessesEnd(_) | Until::Stopped if self.signals.stop_wanted() => return Ok(None),
                Until::ProcessesEnd(_) | Until::Stopped => {}
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(None);
            }
            if flushed.elapsed() >= FLUSH {
                self.take_hits(false);
                self.sink.flush();
                flushed = Instant::now();
            }
            if !busy {
                let left = deadline.map_or(IDLE, |d| d.saturating_duration_since(Instant::now()).min(IDLE));
                self.sleep(left, None);
            }
        }
    }

    /// A process that was there before us has ended. It may have done so before its exit could be seen, so that it must be
    /// looked for, when nothing else is to be done.
    fn has_ended(&self, pid: u32, busy: bool) -> bool {
        self.images.current(pid).is_none() || (!busy && !found::runs(pid))
    }

    /// A process that was there before us, or before we knew of it: we do since then.
    pub fn adopt(&mut self, pid: u32, image: ProcessId, since: u64, comm: &str) {
        let time = bpf::now();
        if pid == 0 {
            // It runs outside our pid namespace: nothing of it can be read here.
            let (parent, origin, comm) = (ProcessId(0), event::Origin::Found, comm.to_owned());
            self.sink.push(&Event::Process(Process { id: image, parent, origin, pid, time, comm }));
            self.sink.push(&Event::Loss(Loss { cause: LossCause::ForeignProcesses, count: 1 }));
            return;
        }
        self.images.found(pid, image, since);
        self.unwinding.born(image, None);
        self.reused.born(image, None);
        if let Some(pythons) = &mut self.pythons {
            pythons.born(image, None);
        }
        found::describe(pid, image, time, comm, |event| self.sink.push(&event));
        for mapping in found::mappings(pid, image) {
            self.mapped(&mapping, pid);
        }
    }

    fn mapped(&mut self, mapping: &Mapping, pid: u32) {
        let (numbered, takes_over) = self.reused.mapped(mapping);
        let file = self.kept.mapped(&numbered, found::in_proc(pid));
        self.unwinding.mapped(mapping, file, &self.kept.files);
        if takes_over {
            if let Some(sessions) = &mut self.sessions {
                sessions.forget_known();
            }
            self.unwinding.wait_for(file);
        }
        let pythons = self.pythons.as_mut();
        let unsupported = pythons.and_then(|pythons| pythons.mapped(mapping, file, &self.kept.files));
        let sink = &mut self.sink;
        if let Some(silent) = &mut self.silent {
            silent.mapped(mapping, pid);
        }
        if let Some(why) = unsupported {
            sink.push(&Event::Note(Note { text: format!("{}: {why}", mapping.path) }));
        }
        if let Some(trace) = &mut self.trace {
            let Mapping { start, end, path, time, .. } = mapping;
            let mapped = Mapped { pid, start: *start, end: *end, path, time: *time };
            trace.mapped(&mapped, &mut self.recorder, &mut |event| sink.push(&event));
            trace.mapped_by(mapping);
        }
        if let Some(events) = &mut self.events {
            events.mapped(mapping, found::in_proc(pid), &mut self.recorder, &mut |event| sink.push(&event));
        }
        sink.push(&Event::Mapping(numbered));
    }

    /// The recording stops while processes may run on: their injected libraries send what they have and finish.
    pub fn end_sessions(&mut self) {
        let Some(sessions) = &self.sessions else { return };
        sessions.tell_to_finish();
        let deadline = Instant::now() + LAST_RECORDS;
        while self.sessions.as_ref().is_some_and(Sessions::any_open) && Instant::now() < deadline {
            if !self.gather() {
                self.sleep(IDLE, None);
            }
        }
    }

    /// Notes that the recording stopped after so many seconds while the command was running.
    pub fn note_stop(&mut self, seconds: f64, child: &Child) {
        let pid = child.id();
        let comm = found::comm(pid).map_or_else(String::new, |comm| format!(" ({comm})"));
        let text = format!("warpscope stopped recording after {seconds} s while process {pid}{comm} was running");
        self.sink.push(&Event::Note(Note { text }));
    }

    /// Ends a trace: nothing is watched any more, and what has not returned is told.
    pub fn end_trace(&mut self) {
        if let Err(error) = self.recorder.end_trace() {
            self.sink.push(&Event::Note(Note { text: format!("calls still under way are not in the trace: {error}") }));
        }
    }

    /// Takes what was added up of events since the last time. A key whose announcement has not come yet waits for it, unless
    /// this is the last time.
    fn take_hits(&mut self, last: bool) {
        if self.events.is_none() {
            return;
        }
        let sums = self.recorder.hit_sums();
        // The stacks of all that was read are in the ring by then.
        while last && self.gather() {}
        for (key, sum) in sums {
            let known = self.events.as_ref().and_then(|events| events.stack(&key));
            let stack = match known {
                Some(stack) => stack,
                None if last => self.whole_stack(key.image, key.stack, key.python, bpf::now()),
                None => continue,
            };
            let (Some(events), sink) = (&mut self.events, &mut self.sink) else { return };
            events.sum(key, stack, sum, &mut |event| sink.push(&event));
        }
    }

    /// After the end: takes what is still on its way, until nothing comes any more.
    pub fn drain(&mut self) {
        while self.gather() {}
        self.take_hits(true);
        let (sink, reused) = (&mut self.sink, &self.reused);
        self.unwinding.finish_all(&mut |walked| sink.push(&Event::Stack(self::walked(walked, reused))));
        if let Some(pythons) = &mut self.pythons {
            pythons.finish(sink);
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.finish(&mut |event| sink.push(&event));
            if let Some(silent) = &mut self.silent {
                silent.finish(sessions.strangers(), &mut |event| sink.push(&event));
            }
        }
        if let Some(events) = &self.events {
            events.finish(&mut |event| sink.push(&event));
        }
        self.count_losses();
    }

    /// Waits until something comes, here or at another descriptor, but not longer than this.
    pub fn sleep(&self, longest: Duration, also: Option<RawFd>) {
        let mut wait_on: Vec<libc::pollfd> =
            self.descriptors().chain(also).map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the list is valid for its length. An interrupted wait is as good as one that ran out.
        unsafe { libc::poll(wait_on.as_mut_ptr(), wait_on.len() as libc::nfds_t, longest.as_millis() as libc::c_int) };
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let mappings = self.mappings.iter().flat_map(Mappings::descriptors);
        let sessions = self.sessions.iter().flat_map(Sessions::descriptors);
        let own = self.recorder.descriptors().into_iter().chain([self.signals.descriptor()]);
        own.chain(mappings).chain(sessions)
    }

    /// Takes what has come from everywhere; `true` if there may be more.
    ///
    /// The order matters. Connections are accepted, then the probes' records read: what led to a connection, the fork and
    /// the exec, is then among them. Last come the mappings: whatever was mapped before one of the records is then known. A
    /// mapping may be younger than all of them; [`Images`] keeps it until its process is known.
    pub fn gather(&mut self) -> bool {
        let waiting = match &mut self.sessions {
            Some(sessions) => {
                sessions.accept();
                sessions.waiting()
            }
            None => Vec::new(),
        };
        let mut taken = Vec::new();
        let more = self.recorder.drain(|record| taken.push(record));
        let mut any = !taken.is_empty();
        self.take_mappings();
        // Calls are judged by who makes them. All that happened on a thread keeps its order.
        let mut calls = Vec::new();
        if self.trace.is_some() {
            let on_a_thread = |record: &mut Record| {
                matches!(record, Record::Call(_) | Record::Syscall(_) | Record::Switch(_) | Record::Point(_))
            };
            calls.extend(taken.extract_if(.., on_a_thread));
        }
        for record in taken {
            for (pid, mapping) in self.images.up_to(record.time()) {
                self.mapped(&mapping, pid);
            }
            self.take(record);
        }
        let mut settled = Vec::new();
        self.images.settle(|pid, mapping| settled.push((pid, mapping)));
        for (pid, mapping) in settled {
            self.mapped(&mapping, pid);
        }
        for call in calls {
            self.take(call);
        }
        if let Some(trace) = &mut self.trace {
            trace.forget_gone();
        }
        let (sink, unwinding, pythons) = (&mut self.sink, &mut self.unwinding, &mut self.pythons);
        let (reused, mut told) = (&self.reused, Vec::new());
        unwinding.settle(&mut |walked| sink.push(&Event::Stack(self::walked(walked, reused))), &mut |image| {
            told.push(image);
        });
        for text in unwinding.notes() {
            sink.push(&Event::Note(Note { text }));
        }
        for image in told {
            self.reused.told(image, bpf::now());
        }
        if let Some(pythons) = pythons {
            pythons.settle(sink);
        }
        if let Some(sessions) = &mut self.sessions {
            // What they had mapped when they said hello is known to the walker now.
            if !more {
                sessions.welcome(&waiting);
            }
            let images = &self.images;
            // Whoever has not said hello yet waits until the record of its process has been taken. The others must not
            // wait for a ring that is never empty: their queues are short, and their exits wait for us.
            let newcomers = !more;
            let silent = &mut self.silent;
            any |= sessions.read(newcomers, &|pid| images.current(pid), &mut |event| {
                if let Some(silent) = silent {
                    silent.heard(&event);
                }
                sink.push(&event);
            });
        }
        sink.show();
        any || more
    }

    fn take_mappings(&mut self) {
        let Some(mappings) = &mut self.mappings else { return };
        let events = mappings.drain();
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.all) {
            let sink = &mut self.sink;
            for mapped in events.iter().filter_map(MapEvent::mapped) {
                let bpf::Mapped { pid, start, length, path, time, .. } = mapped;
                let mapped = Mapped { pid: *pid, start: *start, end: start + length, path, time: *time };
                trace.mapped(&mapped, &mut self.recorder, &mut |event| sink.push(&event));
            }
            trace.watch_deferred(&mut self.recorder, &mut |event| sink.push(&event));
        }
        self.images.take(events);
    }

    fn take(&mut self, record: Record) {
        let event = match record {
            Record::Stack(s) => Event::Stack(stack(s.id, s.image, s.time, &s.kernel, &s.user, s.result)),
            Record::RawStack(raw) => {
                self.unwinding.raw(*raw);
                return;
            }
            Record::PythonStack(stack) => {
                if let Some(pythons) = &mut self.pythons {
                    pythons.stack(stack);
                }
                return;
            }
            Record::PythonCode(code) => {
                if let Some(pythons) = &mut self.pythons {
                    pythons.code(*code);
                }
                return;
            }
            Record::Memo(memo) => {
                if let Some(sessions) = &mut self.sessions {
                    sessions.remember(&memo);
                }
                return;
            }
            Record::Call(call) => {
                if self.trace.as_ref().is_some_and(|trace| trace.is_own(&call)) {
                    return;
                }
                let launch = call.launch.and_then(|launch| self.launch(launch, call.image));
                let stack =
                    (call.stack != 0).then(|| self.whole_stack(call.image, call.stack, call.python, call.start));
                let Some(trace) = &self.trace else { return };
                trace.call(*call, launch, stack)
            }
            Record::Syscall(call) => {
                let launch = call.launch.and_then(|launch| self.launch(launch, call.image));
                let (Some(trace), sink) = (&mut self.trace, &mut self.sink) else { return };
                trace.syscall(*call, launch, &mut |event| sink.push(&event));
                return;
            }
            Record::Switch(record) => switch(record),
            Record::Point(point) => {
                let Some(trace) = &self.trace else { return };
                trace.point(&point)
            }
            Record::Process { image, origin: Origin::Found, pid, time, comm, .. } => {
                self.adopt(pid, ProcessId(image), time, &comm);
                return;
            }
            Record::Launch { image, pid, correlation, work, .. } if u32::from(work) >= Refusal::BASE => {
                if let (Some(silent), Some(refusal)) = (&mut self.silent, Refusal::from_work(work.into())) {
                    silent.refused(ProcessId(image), pid, refusal, correlation);
                }
                return;
            }
            Record::Launch { image, session, stack, python, time, tid, cpu, correlation, work, known, .. } => {
                let Some(sessions) = &mut self.sessions else { return };
                if known {
                    sessions.count_recognised();
                }
                let Some(kind) = LaunchKind::from_number(work as u8) else { return };
                let Some(session) = sessions.id(session, ProcessId(image)) else { return };
                Event::Launch(Launch {
                    session,
                    correlation,
                    kind,
                    process: ProcessId(image),
                    tid,
                    cpu,
                    time,
                    stack: self.whole_stack(image, stack, python, time),
                })
            }
            Record::Hit(hit) => {
                let stack = self.whole_stack(hit.key.image, hit.key.stack, hit.key.python, hit.time);
                let (Some(events), sink) = (&mut self.events, &mut self.sink) else { return };
                events.hit(&hit, stack, &mut |event| sink.push(&event));
                return;
            }
            Record::Sample { image, stack, python, time, tid, cpu } => Event::Sample(Sample {
                process: ProcessId(image),
                tid,
                cpu,
                time,
                stack: self.whole_stack(image, stack, python, time),
                weight: self.period,
            }),
            Record::Process { image, parent, origin, time, pid, comm } => {
                let id = ProcessId(image);
                self.images.born(pid, id, time, origin == Origin::Exec);
                let forked_from = (origin == Origin::Fork).then_some(ProcessId(parent));
                self.unwinding.born(id, forked_from);
                self.reused.born(id, forked_from);
                if let Some(parent) = forked_from {
                    self.kept.forked(id, found::in_proc(pid), parent);
                }
                if let Some(pythons) = &mut self.pythons {
                    pythons.born(id, forked_from);
                }
                if origin == Origin::Exec {
                    self.died(ProcessId(parent));
                    self.sink.push(&Event::Exit(event::Exit { process: ProcessId(parent), time }));
                }
                let origin = match origin {
                    Origin::Fork => event::Origin::Fork,
                    Origin::Exec => event::Origin::Exec,
                    Origin::Found => event::Origin::Found,
                };
                Event::Process(Process { id, parent: ProcessId(parent), origin, pid, time, comm })
            }
            Record::Thread { image, tid, comm } => Event::Thread(Thread { process: ProcessId(image), tid, comm }),
            Record::Exit { image, time, pid } => {
                self.images.died(pid, time);
                self.died(ProcessId(image));
                Event::Exit(event::Exit { process: ProcessId(image), time })
            }
        };
        self.sink.push(&event);
    }

    fn died(&mut self, image: ProcessId) {
        if let Some(trace) = &mut self.trace {
            trace.died(image);
        }
        self.unwinding.died(image);
        self.reused.died(image);
        self.kept.died(image);
        if let Some(pythons) = &mut self.pythons {
            pythons.died(image);
        }
    }

    /// A launch by the number that its session has here.
    fn launch(&mut self, (session, correlation): (u64, u32), image: u32) -> Option<(SessionId, u32)> {
        Some((self.sessions.as_mut()?.id(session, ProcessId(image))?, correlation))
    }

    /// The stack that a launch or sample has, of its native and its Python part.
    pub fn whole_stack(&mut self, image: u32, native: u64, python: u64, time: u64) -> StackId {
        let native = self.native_stack(ProcessId(image), native, time);
        match &mut self.pythons {
            Some(pythons) => pythons.pair(ProcessId(image), native, python, time),
            None => StackId(native),
        }
    }

    /// The native part: another than it seems where its addresses have changed hands.
    fn native_stack(&mut self, image: ProcessId, native: u64, time: u64) -> u64 {
        if !self.reused.any() {
            return native;
        }
        let Some(stack) = self.sink.stack(StackId(native)) else { return native };
        let unwinding = &self.unwinding;
        let Some(other) = self.reused.at(stack, time, |address| unwinding.alike(image, address)) else { return native };
        let id = other.id;
        if self.sink.stack(id).is_none() {
            self.sink.push(&Event::Stack(other));
        }
        id.0
    }

    fn count_losses(&mut self) {
        let losses = self.recorder.losses();
        let mappings = self.mappings.as_ref().map_or(0, Mappings::lost);
        for (cause, count) in [
            (LossCause::RingLaunches, losses.launches),
            (LossCause::RingStacks, losses.stacks + self.unwinding.raw_dropped()),
            (LossCause::RingSamples, losses.samples),
            (LossCause::RingProcesses, losses.processes),
            (LossCause::StackWalks, losses.walks),
            (LossCause::RingCalls, losses.calls),
            (LossCause::DeepCalls, losses.deep_calls),
            (LossCause::CallSums, losses.sums),
            (LossCause::MapsUnread, losses.unread),
            (LossCause::Hits, losses.hits + self.events.as_ref().map_or(0, |_| self.recorder.hits_missed())),
            (LossCause::Mappings, mappings),
            (LossCause::UnparsedRecords, losses.unparsed + self.mappings.as_ref().map_or(0, Mappings::unparsed)),
            (LossCause::UnwindTables, self.unwinding.panics()),
            (LossCause::PythonStacksUneven, self.pythons.as_ref().map_or(0, Pythons::uneven)),
        ] {
            if count > 0 {
                self.sink.push(&Event::Loss(Loss { cause, count }));
            }
        }
    }
}

/// It was walked by what its process had at the time; its id stands for it alone.
fn walked(walked: Walked, reused: &Reused) -> Stack {
    let raw = &walked.raw;
    let stack = stack(raw.id, raw.image, raw.time, &raw.kernel, &walked.user, walked.ended as u8);
    match reused.at(&stack, raw.time, |_| true) {
        Some(other) => Stack { id: stack.id, ..other },
        None => stack,
    }
}

fn stack(id: u64, image: u32, time: u64, kernel: &[u64], user: &[u64], result: u8) -> Stack {
    let kernel = kernel.iter().copied().map(Frame::Kernel);
    let user = user.iter().copied().map(Frame::User);
    // The walker counts from "not ended"; beyond the first two, the numbers are the same.
    let end = match result {
        r if r == Ended::Whole as u8 => StackEnd::Whole,
        r if r == Ended::Truncated as u8 => StackEnd::Truncated,
        r => StackEnd::from_number(r),
    };
    Stack { id: StackId(id), process: ProcessId(image), time, frames: kernel.chain(user).collect(), end }
}
