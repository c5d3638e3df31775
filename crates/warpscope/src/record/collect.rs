//! The loop of a recording: waits for anything to come, and brings it to the sink.

use std::{
    io,
    os::fd::RawFd,
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use bpf::{Mappings, Origin, Record, Recorder};
use model::event::{
    self, Event, Frame, Launch, LaunchKind, Loss, LossCause, Process, ProcessId, Sample, Stack, StackEnd, StackId,
    Thread,
};

use super::{
    images::Images,
    sessions::Sessions,
    signals::{Signal, Signals},
    sink::Sink,
};

/// How long the loop sleeps at most when nothing wakes it.
const IDLE: Duration = Duration::from_millis(10);
/// How often the recording is brought to the disk.
const FLUSH: Duration = Duration::from_secs(1);
/// The most user frames the probes keep of a stack.
const MOST_USER_FRAMES: usize = 127;

/// Everything that a recording listens to.
pub struct Collector {
    pub recorder: Recorder,
    pub mappings: Option<Mappings>,
    pub sessions: Option<Sessions>,
    pub signals: Signals,
    pub sink: Sink,
    pub images: Images,
    /// Nanoseconds that one CPU sample stands for.
    pub period: u64,
}

impl Collector {
    /// Collects until the command ends, or until `deadline`. The status is `None` if the command still runs.
    pub fn run(&mut self, child: &mut Child, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
        let mut flushed = Instant::now();
        loop {
            let busy = self.gather();
            while let Some(signal) = self.signals.next() {
                if let Signal::Sent(number) = signal {
                    // SAFETY: a plain kill of our own child, which has not been waited for yet.
                    unsafe { libc::kill(child.id() as libc::pid_t, number) };
                }
            }
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(None);
            }
            if flushed.elapsed() >= FLUSH {
                self.sink.flush();
                flushed = Instant::now();
            }
            if !busy {
                self.sleep(deadline);
            }
        }
    }

    /// After the end: takes what is still on its way, until nothing comes any more.
    pub fn drain(&mut self) {
        while self.gather() {}
        self.count_losses();
    }

    fn sleep(&self, deadline: Option<Instant>) {
        let left = deadline.map_or(IDLE, |d| d.saturating_duration_since(Instant::now()).min(IDLE));
        let mut wait_on: Vec<libc::pollfd> = self.descriptors().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the list is valid for its length. An interrupted wait is as good as one that ran out.
        unsafe { libc::poll(wait_on.as_mut_ptr(), wait_on.len() as libc::nfds_t, left.as_millis() as libc::c_int) };
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let mappings = self.mappings.iter().flat_map(Mappings::descriptors);
        let sessions = self.sessions.iter().flat_map(Sessions::descriptors);
        [self.recorder.descriptor(), self.signals.descriptor()].into_iter().chain(mappings).chain(sessions)
    }

    /// Takes what has come from everywhere; `true` if there may be more.
    ///
    /// The order matters. Connections are accepted, then mappings read, then the probes' records: whatever led to a
    /// connection or a mapping, the fork and the exec, is then in the records already.
    fn gather(&mut self) -> bool {
        if let Some(sessions) = &mut self.sessions {
            sessions.accept();
        }
        if let Some(mappings) = &mut self.mappings {
            self.images.take(mappings.drain());
        }
        let mut taken = Vec::new();
        let more = self.recorder.drain(|record| taken.push(record));
        let mut any = !taken.is_empty();
        for record in taken {
            self.take(record);
        }
        if more {
            return true;
        }
        let sink = &mut self.sink;
        self.images.settle(|mapping| sink.push(&Event::Mapping(mapping)));
        if let Some(sessions) = &mut self.sessions {
            let images = &self.images;
            any |= sessions.read(&|pid| images.current(pid), &mut |event| sink.push(&event));
        }
        any
    }

    fn take(&mut self, record: Record) {
        let event = match record {
            Record::Stack(stack) => Event::Stack(self::stack(stack)),
            Record::Launch { image, session, stack, time, tid, cpu, correlation, work, .. } => {
                let Some(sessions) = &mut self.sessions else { return };
                let Some(kind) = LaunchKind::from_number(work as u8) else { return };
                Event::Launch(Launch {
                    session: sessions.id(session),
                    correlation,
                    kind,
                    process: ProcessId(image),
                    tid,
                    cpu,
                    time,
                    stack: StackId(stack),
                })
            }
            Record::Sample { image, stack, time, tid, cpu } => Event::Sample(Sample {
                process: ProcessId(image),
                tid,
                cpu,
                time,
                stack: StackId(stack),
                weight: self.period,
            }),
            Record::Process { image, parent, origin, time, pid, comm } => {
                let id = ProcessId(image);
                self.images.born(pid, id, time, origin == Origin::Exec);
                if origin == Origin::Exec {
                    self.sink.push(&Event::Exit(event::Exit { process: ProcessId(parent), time }));
                }
                let origin = match origin {
                    Origin::Fork => event::Origin::Fork,
                    Origin::Exec => event::Origin::Exec,
                };
                Event::Process(Process { id, parent: ProcessId(parent), origin, pid, time, comm })
            }
            Record::Thread { image, tid, comm } => Event::Thread(Thread { process: ProcessId(image), tid, comm }),
            Record::Exit { image, time, pid } => {
                self.images.died(pid, time);
                Event::Exit(event::Exit { process: ProcessId(image), time })
            }
        };
        self.sink.push(&event);
    }

    fn count_losses(&mut self) {
        let losses = self.recorder.losses();
        let mappings = self.mappings.as_ref().map_or(0, Mappings::lost);
        for (cause, count) in [
            (LossCause::RingLaunches, losses.launches),
            (LossCause::RingStacks, losses.stacks),
            (LossCause::RingSamples, losses.samples),
            (LossCause::RingProcesses, losses.processes),
            (LossCause::StackWalks, losses.walks),
            (LossCause::Mappings, mappings),
        ] {
            if count > 0 {
                self.sink.push(&Event::Loss(Loss { cause, count }));
            }
        }
    }
}

/// Kernel frames lie inside user frames. All but the innermost of each are return addresses: less one, they lie in the
/// calling instruction.
fn stack(record: bpf::StackRecord) -> Stack {
    let call = |(i, address): (usize, &u64)| if i == 0 { *address } else { address.wrapping_sub(1) };
    let kernel = record.kernel.iter().enumerate().map(call).map(Frame::Kernel);
    let user = record.user.iter().enumerate().map(call).map(Frame::User);
    Stack {
        id: StackId(record.id),
        process: ProcessId(record.image),
        time: record.time,
        frames: kernel.chain(user).collect(),
        end: if record.user.len() >= MOST_USER_FRAMES { StackEnd::Truncated } else { StackEnd::Whole },
    }
}
