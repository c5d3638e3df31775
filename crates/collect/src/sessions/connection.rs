//! One connection to an injected library: interprets its messages and limits how many are accepted.

use std::{
    collections::{HashMap, HashSet},
    os::fd::OwnedFd,
    time::Instant,
};

use cuda::occupancy::Limits;
use model::event::{
    self, Activity, Captured, Communicator, CommunicatorCall, Counted, DeviceIdentity, Direction, Event, Failed,
    GraphDestroyed, KernelCounter, KernelName, Launch, LaunchKind, LimitTotals, LossCause, NodeCopied, NodeCreated,
    Note, Operation, Pause, ProcessId, Range, RangeName, RangedLaunch, Rank, Sampling, SessionCost, SessionId, StackId,
    Totals, Uuid, Work,
};
use wire::{Message, Notice};

use super::{
    known::KnownStacks,
    launches::Launches,
    quota::{Kind, MOST_DEVICES, MOST_TEXT, Used},
    stalls::{self, Stalls},
};

/// The most functions whose calls it can report.
const MOST_FUNCTIONS: usize = wire::calls::FUNCTIONS * wire::calls::DOMAINS;

/// A connection to an injected library.
pub struct Connection {
    pub socket: OwnedFd,
    pub pid: u32,
    pub session: Option<SessionId>,
    /// The image that it runs.
    pub process: ProcessId,
    /// The pid that it knows itself by.
    pub own_pid: u32,
    /// The functions whose calls it can report, by their numbers.
    pub functions: Vec<(u16, String)>,
    /// All of them have arrived, and whether it reports their calls.
    pub announced: Option<bool>,
    /// Added to a record's times, wrapping, to get CLOCK_MONOTONIC.
    pub clock_offset: u64,
    totals: wire::Totals,
    /// Whether the totals have changed since they were passed on.
    counted: bool,
    ended: bool,
    /// It has reported its rank.
    ranked: bool,
    pub welcomed: bool,
    /// warpscope has attached to the process.
    pub attached: bool,
    /// When it was first seen to wait for its welcome, with all records read up to then.
    pub waits_since: Option<Instant>,
    pub used: Used,
    /// Samples of GPU instructions.
    pub stalls: Stalls,
    /// The stacks that its threads recognise by themselves.
    pub known: Option<KnownStacks>,
    /// The launches that its threads report by themselves.
    pub launches: Option<Launches>,
    /// What its devices are, by its own index, until their names arrive.
    device_ids: HashMap<u32, wire::DeviceId>,
    /// Streams seen: device, context and stream.
    streams: HashSet<(u32, u32, u32)>,
    last_stream: Option<(u32, u32, u32)>,
}

impl Connection {
    /// Creates a connection without a session.
    pub fn new(socket: OwnedFd, pid: u32) -> Self {
        Self {
            socket,
            pid,
            session: None,
            process: ProcessId(0),
            own_pid: 0,
            functions: Vec::new(),
            announced: None,
            clock_offset: 0,
            totals: wire::Totals::default(),
            counted: false,
            ended: false,
            ranked: false,
            welcomed: false,
            attached: false,
            waits_since: None,
            used: Used::default(),
            stalls: Stalls::new(),
            known: None,
            launches: None,
            device_ids: HashMap::new(),
            streams: HashSet::new(),
            last_stream: None,
        }
    }

    /// Returns the totals, if they have changed since the last call.
    pub fn new_totals(&mut self) -> Option<Event> {
        let session = self.session.filter(|_| std::mem::take(&mut self.counted))?;
        Some(self.totals_event(session))
    }

    /// Adds a function whose calls it can report. What is impossible is ignored.
    pub fn add_function(&mut self, number: u32, name: &[u8]) {
        let number = u16::try_from(number).ok().filter(|number| usize::from(*number) < MOST_FUNCTIONS);
        if let (Some(number), Ok(name)) = (number, std::str::from_utf8(name))
            && name.len() <= MOST_TEXT
            && self.functions.len() < MOST_FUNCTIONS
            && self.announced.is_none()
        {
            self.functions.push((number, name.to_owned()));
        }
    }

    /// Whether the process knows itself by another pid than ours.
    pub fn is_renamed(&self) -> bool {
        self.own_pid != self.pid
    }

    /// Whether it has a session that has not ended.
    pub fn is_open(&self) -> bool {
        self.session.is_some() && !self.ended
    }

    /// Whether the data of a message can be kept; if not, the cause of the loss.
    pub fn allowed(&mut self, all: &mut Used, message: &Message<'_>) -> Result<(), LossCause> {
        let (wanted, cause): (&[(Kind, u64)], _) = match message {
            Message::Name(_, text) | Message::RangeName(_, text) => {
                (&[(Kind::Names, 1), (Kind::NameBytes, text.len() as u64)], LossCause::NamesRefused)
            }
            Message::DeviceId(id) if id.index >= MOST_DEVICES => return Err(LossCause::DevicesRefused),
            Message::Device(index, _) if *index >= MOST_DEVICES => return Err(LossCause::DevicesRefused),
            Message::Device(..) => (&[(Kind::Devices, 1)], LossCause::DevicesRefused),
            Message::Notice(..) | Message::Pause(..) => (&[(Kind::Notes, 1)], LossCause::NotesRefused),
            Message::Kernel(k) => return self.stream_allowed(all, (k.device, k.context, k.stream)),
            Message::Memcpy(c) => return self.stream_allowed(all, (c.device, c.context, c.stream)),
            Message::Memset(m) => return self.stream_allowed(all, (m.device, m.context, m.stream)),
            _ => return Ok(()),
        };
        if self.used.take(all, wanted) { Ok(()) } else { Err(cause) }
    }

    fn stream_allowed(&mut self, all: &mut Used, stream: (u32, u32, u32)) -> Result<(), LossCause> {
        if self.last_stream == Some(stream) {
            return Ok(());
        }
        if stream.0 >= MOST_DEVICES {
            return Err(LossCause::DevicesRefused);
        }
        if !self.streams.contains(&stream) {
            if !self.used.take(all, &[(Kind::Streams, 1)]) {
                return Err(LossCause::StreamsRefused);
            }
            self.streams.insert(stream);
        }
        self.last_stream = Some(stream);
        Ok(())
    }

    fn time(&self, time: u64) -> u64 {
        // 0 means that the time is unknown.
        if time == 0 { 0 } else { time.wrapping_add(self.clock_offset) }
    }

    /// Converts a message to an event. Totals are deferred to the end of the round: only the last ones matter.
    pub fn event(&mut self, session: SessionId, message: Message<'_>) -> Option<Event> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let short = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_TEXT)]).into_owned();
        Some(match message {
            Message::Hello(_)
            | Message::Notice(Notice::Library, _)
            | Message::Function(..)
            | Message::FunctionsEnd(_)
            | Message::StallReason(..)
            | Message::StallSamples(_)
            | Message::CubinPart(..)
            | Message::CubinEnd(_)
            | Message::StallTotals(_) => return None,
            Message::Kernel(k) => Event::Activity(Activity {
                session,
                correlation: k.correlation,
                device: k.device,
                context: k.context,
                stream: k.stream,
                start: self.time(k.start),
                end: self.time(k.end),
                graph: k.graph,
                graph_node: k.graph_node,
                work: Work::Kernel {
                    name: k.name,
                    grid: [k.grid_x, k.grid_y, k.grid_z],
                    block: [k.block_x, k.block_y, k.block_z],
                    registers: k.registers,
                    shared_memory: k.shared_memory,
                },
            }),
            Message::Memcpy(c) => Event::Activity(Activity {
                session,
                correlation: c.correlation,
                device: c.device,
                context: c.context,
                stream: c.stream,
                start: self.time(c.start),
                end: self.time(c.end),
                graph: c.graph,
                graph_node: c.graph_node,
                work: Work::Copy {
                    direction: Direction::from_number(c.kind),
                    bytes: c.bytes,
                    source: c.source,
                    destination: c.destination,
                    peer: (c.peer != u32::MAX).then_some(c.peer),
                },
            }),
            Message::Memset(m) => Event::Activity(Activity {
                session,
                correlation: m.correlation,
                device: m.device,
                context: m.context,
                stream: m.stream,
                start: self.time(m.start),
                end: self.time(m.end),
                graph: m.graph,
                graph_node: m.graph_node,
                work: Work::Memset { bytes: m.bytes, value: m.value, memory: m.memory },
            }),
            Message::Sync(s) => Event::Sync(event::Sync {
                session,
                correlation: s.correlation,
                kind: s.kind,
                context: s.context,
                stream: s.stream,
                start: self.time(s.start),
                end: self.time(s.end),
            }),
            Message::KernelCounter(c) => Event::KernelCounter(KernelCounter {
                session,
                correlation: c.correlation,
                metric: c.metric.into(),
                value: c.value,
            }),
            Message::LimitTotals(t) => Event::LimitTotals(LimitTotals {
                session,
                measured: t.measured,
                disturbed: t.disturbed,
                lost: t.lost,
                captured: t.captured,
                communication: t.communication,
                took_ns: t.took,
            }),
            Message::Failed(f) => Event::Failed(Failed { session, correlation: f.correlation, code: f.code }),
            Message::Empty(e) => Event::Empty(event::Empty { session, correlation: e.correlation }),
            Message::Captured(c) => Event::Captured(Captured { session, correlation: c.correlation }),
            Message::NodeCreated(n) => {
                Event::NodeCreated(NodeCreated { session, node: n.node, mark: n.mark, own: n.own != 0 })
            }
            Message::NodeCopied(n) => {
                Event::NodeCopied(NodeCopied { session, node: n.node, original: n.original, time: n.time })
            }
            Message::GraphDestroyed(g) => Event::GraphDestroyed(GraphDestroyed { session, graph: g.graph }),
            // A process has one place; what else it sends is ignored.
            Message::Rank(_) if std::mem::replace(&mut self.ranked, true) => return None,
            Message::Rank(r) => {
                let rank = (r.rank != u32::MAX).then_some(r.rank);
                let variable = wire::RANK_VARIABLES.get(usize::from(r.source)).filter(|_| rank.is_some());
                Event::Rank(Rank {
                    session,
                    rank,
                    local: (r.local != u32::MAX).then_some(r.local),
                    variable: variable.map_or("", |(rank, _)| rank).to_owned(),
                    mps: r.mps != 0,
                })
            }
            Message::RangeName(id, text) => {
                let (parent, name) = text.split_first_chunk::<4>()?;
                let (length, name) = name.split_first()?;
                let (category, name) = name.split_at_checked(usize::from(*length))?;
                let parent = u32::from_le_bytes(*parent);
                Event::RangeName(RangeName { session, id, parent, category: short(category), name: short(name) })
            }
            Message::Range(r) => Event::Range(Range {
                session,
                path: r.path,
                tid: r.tid,
                start: self.time(r.start),
                end: self.time(r.end),
                mark: r.mark != 0,
            }),
            Message::RangedLaunch(l) => {
                Event::RangedLaunch(RangedLaunch { session, correlation: l.correlation, path: l.path })
            }
            Message::Communicator(c) => {
                let wire::Communicator { id, parent, size, rank } = c;
                Event::Communicator(Communicator { session, id, parent, size, rank })
            }
            Message::CommunicatorCall(c) => Event::CommunicatorCall(CommunicatorCall {
                session,
                communicator: c.communicator,
                operation: Operation::from_number(c.operation),
                number: c.number,
                bytes: c.bytes,
                peer: c.peer,
                tid: c.tid,
                time: self.time(c.time),
            }),
            Message::Unmarked(u) => Event::Launch(Launch {
                session,
                correlation: u.correlation,
                kind: LaunchKind::from_number(u.work)?,
                process: self.process,
                tid: u.tid,
                cpu: 0,
                time: u.time,
                stack: StackId::NOT_SAMPLED,
                rate: 0,
            }),
            Message::Counted(c) => Event::Counted(Counted {
                session,
                kind: LaunchKind::from_number(c.work)?,
                name: c.name,
                count: c.count,
            }),
            Message::Sampling(s) => {
                Event::Sampling(Sampling { session, recorded_ns: s.recorded_ns, whole_ns: s.whole_ns })
            }
            Message::Cost(cost) => Event::SessionCost(SessionCost {
                session,
                process_ns: cost.process_ns,
                callbacks_ns: cost.callbacks_ns,
                stacks_ns: cost.stacks_ns,
                sender_ns: cost.sender_ns,
            }),
            Message::Totals(totals) => {
                self.totals = totals;
                self.counted = true;
                return None;
            }
            Message::SessionEnd(_) => {
                self.ended = true;
                self.counted = true;
                return None;
            }
            Message::Name(id, name) => Event::KernelName(KernelName { session, id, name: text(name) }),
            Message::DeviceId(id) => {
                self.device_ids.insert(id.index, id);
                return None;
            }
            Message::Device(index, name) => {
                let identity = self.device_ids.remove(&index).map(identity).unwrap_or_default();
                Event::Device(event::Device { session, index, name: short(name), identity })
            }
            Message::Pause(number, pause) => Event::Pause(Pause {
                session,
                number,
                from: pause.from,
                to: pause.to.max(pause.from),
                client: short(pause.name),
            }),
            Message::Notice(notice, words) => Event::Note(Note { text: sentence(notice, self.pid, &short(words)) }),
        })
    }

    /// Returns the last totals that it sent.
    fn totals_event(&self, session: SessionId) -> Event {
        let t = &self.totals;
        Event::Totals(Totals {
            session,
            launches: t.launches,
            kernels: t.kernels,
            kernel_ns: t.kernel_ns,
            copies: t.copies,
            memsets: t.memsets,
            syncs: t.syncs,
            dropped_by_cupti: t.dropped_by_cupti,
            dropped_queue_full: t.dropped_queue_full,
            invalid: t.invalid,
            nameless: t.nameless,
            buffers_refused: t.buffers_refused,
            dropped_launches: t.dropped_launches,
            ended: self.ended,
        })
    }
}

fn identity(id: wire::DeviceId) -> DeviceIdentity {
    let limits = Limits {
        capability: (id.major.into(), id.minor.into()),
        multiprocessors: id.multiprocessors,
        threads: id.threads,
        blocks: id.blocks,
        registers: id.registers,
        shared_memory: id.shared_memory,
        reserved_shared_memory: id.reserved_shared_memory,
    };
    DeviceIdentity { uuid: Uuid(id.uuid), gpu: Uuid(id.gpu), pci: id.pci, machine_index: None, limits }
}

/// Explains why launches could not be measured. The text is the number of an error, then the call and the error.
fn limits_sentence(pid: u32, words: &str) -> String {
    let (code, words) = words.split_once(' ').unwrap_or(("", words));
    let remedy = match code {
        "35" | "40" => {
            "reading the GPU's counters needs permission: run the command as root (--as-root under sudo), or load the nvidia \
             module with NVreg_RestrictProfilingToAdminUsers=0"
        }
        "26" => {
            "another tool uses the GPU's counters: stop it (ncu, Nsight Systems, or DCGM with `dcgmi profile --pause`) and \
             record again"
        }
        "43" => "a partitioned GPU (MIG) cannot be measured",
        _ => {
            "measuring needs CUPTI 12.6 or later with libnvperf_host.so beside it, and a GPU that its range profiler supports"
        }
    };
    format!("launches of process {pid} were not measured: {remedy} ({words})")
}

/// Explains a notice to the user.
fn sentence(notice: Notice, pid: u32, words: &str) -> String {
    match notice {
        Notice::NoCupti => format!(
            "no GPU activity from process {pid}: libcupti was not found ({words}); install the CUDA toolkit's CUPTI or the Python package nvidia-cuda-cupti, or set WARPSCOPE_CUPTI to the library's path"
        ),
        Notice::NoStalls => stalls::sentence(pid, words),
        Notice::NoLimits => limits_sentence(pid, words),
        Notice::OtherSubscriber => format!(
            "process {pid}: another client uses CUPTI (error 39: {words}); GPU activity is recorded once it has unsubscribed"
        ),
        Notice::CuptiFailed => format!("CUPTI in process {pid}: {words}"),
        Notice::ForeignClock => {
            format!("CUPTI in process {pid} uses its own clock; GPU times are corrected by a measured offset ({words})")
        }
        Notice::Library => format!("process {pid} uses {words}"),
    }
}
