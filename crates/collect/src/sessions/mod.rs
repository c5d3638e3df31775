//! Injected libraries: who connects, and what they send.
//!
//! Whoever runs as the command's user can connect and send anything. All that is kept is bounded, for each session and in
//! all ([`quota`]); all that is read in one round is bounded too, so that a flood on one connection holds up neither
//! the others nor the ring buffer.

mod known;
mod quota;
pub mod silent;
mod socket;

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use bpf::Memo;
use model::event::{
    self, Activity, Captured, Direction, Event, Failed, KernelName, Loss, LossCause, Note, ProcessId, Session,
    SessionId, Totals, Work,
};
use wire::{Message, Notice};

use self::{
    known::KnownStacks,
    quota::{Kind, MOST_DEVICES, MOST_TEXT, Refused, Used},
    socket::{accept, credentials, receive, send_byte, send_with},
};

/// The most connections at once, and of one process. A process has one injected library.
const MOST_CONNECTIONS: usize = 4096;
const MOST_OF_PROCESS: usize = 16;
/// The most sessions of a recording, and of one process image.
const MOST_SESSIONS: usize = 65_536;
const MOST_OF_IMAGE: usize = 64;
/// The most connections accepted, and the most packets read, in one round and of one connection.
const ACCEPTED: usize = 256;
const PACKETS: usize = 512;
const PACKETS_OF_ONE: usize = 64;
/// The most memory for known stacks of all sessions.
const MOST_KNOWN_BYTES: usize = 64 << 20;

/// All sessions of a recording.
pub struct Sessions {
    listener: OwnedFd,
    /// Peers must run as this user, or as root.
    uid: u32,
    connections: Vec<Connection>,
    /// Which connection is read first in the next round.
    first: usize,
    ids: HashMap<u64, SessionId>,
    /// How many sessions each process image has.
    of_image: HashMap<ProcessId, usize>,
    /// Those that have sent their [`wire::Hello`].
    heard: HashSet<SessionId>,
    used: Used,
    refused: Refused,
    /// Launches whose stack the thread recognised by itself.
    recognised: u64,
    /// Memory that known stacks have taken.
    known_bytes: usize,
    /// Processes of other users that wanted to connect, and their users: the first few.
    strangers: Vec<(u32, u32)>,
    packet: Vec<u8>,
}

/// Why a connection is closed by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwelcome {
    Malformed,
    /// There are too many sessions, which has been counted.
    Refused,
}

impl From<wire::Malformed> for Unwelcome {
    fn from(_: wire::Malformed) -> Self {
        Self::Malformed
    }
}

struct Connection {
    socket: OwnedFd,
    pid: u32,
    session: Option<SessionId>,
    /// To add to a record's times, wrapping, to get CLOCK_MONOTONIC.
    clock_offset: u64,
    totals: wire::Totals,
    /// The totals have changed since they were passed on.
    counted: bool,
    ended: bool,
    welcomed: bool,
    used: Used,
    /// Stacks that its threads recognise by themselves.
    known: Option<KnownStacks>,
    /// Streams seen: device, context and stream.
    streams: HashSet<(u32, u32, u32)>,
    last_stream: Option<(u32, u32, u32)>,
}

impl Sessions {
    /// Sessions that connect to `listener`.
    pub fn new(listener: OwnedFd, uid: u32) -> Self {
        Self {
            listener,
            uid,
            connections: Vec::new(),
            first: 0,
            ids: HashMap::new(),
            of_image: HashMap::new(),
            heard: HashSet::new(),
            used: Used::default(),
            refused: Refused::default(),
            recognised: 0,
            known_bytes: 0,
            strangers: Vec::new(),
            packet: vec![0; wire::MAX_PACKET],
        }
    }

    /// The id of the session with this key, in this image; a new one at first sight. `None` if there are too many.
    pub fn id(&mut self, key: u64, image: ProcessId) -> Option<SessionId> {
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let of_image = self.of_image.entry(image).or_default();
        if self.ids.len() >= MOST_SESSIONS || *of_image >= MOST_OF_IMAGE {
            self.refused.count(LossCause::SessionsRefused);
            return None;
        }
        *of_image += 1;
        let id = SessionId(self.ids.len() as u32);
        self.ids.insert(key, id);
        Some(id)
    }

    /// Processes of other users whose connections were refused, and their users.
    pub fn strangers(&self) -> &[(u32, u32)] {
        &self.strangers
    }

    /// Descriptors to wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        std::iter::once(self.listener.as_raw_fd()).chain(self.connections.iter().map(|c| c.socket.as_raw_fd()))
    }

    /// Takes new connections.
    pub fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            let Ok(socket) = accept(&self.listener) else { return };
            let Ok(peer) = credentials(&socket) else { continue };
            let pid = peer.pid as u32;
            if peer.uid != self.uid && peer.uid != 0 {
                if self.strangers.len() < MOST_OF_PROCESS && !self.strangers.contains(&(pid, peer.uid)) {
                    self.strangers.push((pid, peer.uid));
                }
                continue;
            }
            let of_process = self.connections.iter().filter(|connection| connection.pid == pid).count();
            if self.connections.len() >= MOST_CONNECTIONS || of_process >= MOST_OF_PROCESS {
                self.refused.count(LossCause::SessionsRefused);
                continue;
            }
            self.connections.push(Connection {
                socket,
                pid,
                session: None,
                clock_offset: 0,
                totals: wire::Totals::default(),
                counted: false,
                ended: false,
                welcomed: false,
                used: Used::default(),
                known: None,
                streams: HashSet::new(),
                last_stream: None,
            });
        }
    }

    /// Who has said hello and waits for an answer.
    pub fn waiting(&self) -> Vec<RawFd> {
        let waits = |c: &&Connection| c.session.is_some() && !c.welcomed;
        self.connections.iter().filter(waits).map(|c| c.socket.as_raw_fd()).collect()
    }

    /// Tells those who wait that their stacks can be walked from now on.
    pub fn welcome(&mut self, waiting: &[RawFd]) {
        for connection in self.connections.iter_mut().filter(|c| waiting.contains(&c.socket.as_raw_fd())) {
            connection.welcomed = true;
            connection.known = KnownStacks::new().ok();
            match &connection.known {
                Some(known) => send_with(&connection.socket, wire::WELCOME, known.file()),
                None => send_byte(connection.socket.as_raw_fd(), wire::WELCOME),
            }
        }
    }

    /// Tells the libraries to flush, to send what there is, and to do nothing more.
    pub fn tell_to_finish(&self) {
        for connection in self.connections.iter().filter(|connection| connection.is_open()) {
            send_byte(connection.socket.as_raw_fd(), wire::FINISH);
        }
    }

    /// Whether a session has not ended yet.
    pub fn any_open(&self) -> bool {
        self.connections.iter().any(Connection::is_open)
    }

    /// A thread recognised the stack of its launch.
    pub fn count_recognised(&mut self) {
        self.recognised += 1;
    }

    /// Launches whose stack the thread recognised by itself.
    pub fn recognised(&self) -> u64 {
        self.recognised
    }

    /// A stack was walked: the session's threads can recognise it from now on.
    pub fn remember(&mut self, memo: &Memo) {
        let Some(id) = self.ids.get(&memo.session) else { return };
        let connection = self.connections.iter_mut().find(|connection| connection.session == Some(*id));
        if let Some(known) = connection.and_then(|connection| connection.known.as_mut())
            && self.known_bytes < MOST_KNOWN_BYTES
        {
            self.known_bytes += known.add(memo);
        }
    }

    /// Other code may have taken the place of some that was walked.
    pub fn forget_known(&mut self) {
        self.connections.iter_mut().filter_map(|connection| connection.known.as_mut()).for_each(KnownStacks::forget);
    }

    /// The recording ends. There may be launches of sessions that never sent a [`wire::Hello`], as of a process that was
    /// killed at once: these are sessions too, cut off at their beginning.
    pub fn finish(&mut self, push: &mut dyn FnMut(Event)) {
        let silent = self.ids.values().filter(|id| !self.heard.contains(*id));
        for id in silent {
            push(Event::Session(Session { id: *id, process: ProcessId(0), cupti: 0, driver: 0 }));
        }
        self.count_refused(push);
    }

    fn count_refused(&mut self, push: &mut dyn FnMut(Event)) {
        for (cause, count) in self.refused.drain() {
            push(Event::Loss(Loss { cause, count }));
        }
    }

    /// Reads what has come, from `newcomers` too or only from those who have said hello. `image_of` tells which image a pid
    /// runs. `true` if anything came.
    pub fn read(
        &mut self,
        newcomers: bool,
        image_of: &dyn Fn(u32) -> Option<ProcessId>,
        push: &mut dyn FnMut(Event),
    ) -> bool {
        let mut any = false;
        let mut left = PACKETS;
        let count = self.connections.len();
        let first = self.first;
        let mut closed = Vec::new();
        for index in (0..count).map(|at| (first + at) % count) {
            if left == 0 {
                // The next round begins where this one ends.
                self.first = index;
                break;
            }
            if !newcomers && self.connections[index].session.is_none() {
                continue;
            }
            for _ in 0..PACKETS_OF_ONE.min(left) {
                let fd = self.connections[index].socket.as_raw_fd();
                match receive(fd, &mut self.packet) {
                    Ok(0) => {
                        closed.push(index);
                        break;
                    }
                    Ok(length) => {
                        any = true;
                        left -= 1;
                        let packet = std::mem::take(&mut self.packet);
                        let sound = self.packet(index, &packet[..length], image_of, push);
                        self.packet = packet;
                        if let Err(why) = sound {
                            // Both sides come from one binary: whoever sends this is not our library.
                            if why == Unwelcome::Malformed {
                                self.refused.count(LossCause::MalformedPackets);
                            }
                            closed.push(index);
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // A peer that ended without reading its welcome: reported once, and what it sent is still there.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        closed.push(index);
                        break;
                    }
                }
            }
            let connection = &mut self.connections[index];
            if let Some(session) = connection.session.filter(|_| std::mem::take(&mut connection.counted)) {
                push(connection.totals_event(session));
            }
        }
        closed.sort_unstable_by(|a, b| b.cmp(a));
        for index in closed {
            let closed = self.connections.swap_remove(index);
            self.known_bytes -= closed.known.as_ref().map_or(0, KnownStacks::bytes);
        }
        self.count_refused(push);
        any
    }

    fn packet(
        &mut self,
        index: usize,
        mut packet: &[u8],
        image_of: &dyn Fn(u32) -> Option<ProcessId>,
        push: &mut dyn FnMut(Event),
    ) -> Result<(), Unwelcome> {
        while let Some(message) = Message::next(&mut packet)? {
            if let Message::Hello(hello) = message {
                if hello.version != wire::VERSION || self.connections[index].session.is_some() {
                    return Err(Unwelcome::Malformed);
                }
                let process = image_of(self.connections[index].pid).unwrap_or(ProcessId(0));
                let id = self.id(hello.session, process).ok_or(Unwelcome::Refused)?;
                // Keys are random: nobody else has the same by chance.
                if !self.heard.insert(id) {
                    return Err(Unwelcome::Malformed);
                }
                let connection = &mut self.connections[index];
                connection.session = Some(id);
                connection.clock_offset = hello.clock_offset;
                push(Event::Session(Session { id, process, cupti: hello.cupti, driver: hello.driver }));
                continue;
            }
            let connection = &mut self.connections[index];
            let session = connection.session.ok_or(Unwelcome::Malformed)?;
            match connection.allowed(&mut self.used, &message) {
                Ok(()) => {
                    if let Some(event) = connection.event(session, message) {
                        push(event);
                    }
                }
                Err(cause) => self.refused.count(cause),
            }
        }
        Ok(())
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        self.session.is_some() && !self.ended
    }

    /// Whether there is room for what a message brings to stay; if not, why not.
    fn allowed(&mut self, all: &mut Used, message: &Message<'_>) -> Result<(), LossCause> {
        let (wanted, cause): (&[(Kind, u64)], _) = match message {
            Message::Name(_, text) => {
                (&[(Kind::Names, 1), (Kind::NameBytes, text.len() as u64)], LossCause::NamesRefused)
            }
            Message::Device(index, _) if *index >= MOST_DEVICES => return Err(LossCause::DevicesRefused),
            Message::Device(..) => (&[(Kind::Devices, 1)], LossCause::DevicesRefused),
            Message::Notice(..) => (&[(Kind::Notes, 1)], LossCause::NotesRefused),
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
        // 0 means that the time is not known.
        if time == 0 { 0 } else { time.wrapping_add(self.clock_offset) }
    }

    /// What a message amounts to. Totals wait until the end of the round: only the last ones matter.
    fn event(&mut self, session: SessionId, message: Message<'_>) -> Option<Event> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let short = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_TEXT)]).into_owned();
        Some(match message {
            Message::Hello(_) | Message::Notice(Notice::Library, _) => return None,
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
            Message::Failed(f) => Event::Failed(Failed { session, correlation: f.correlation, code: f.code }),
            Message::Empty(e) => Event::Empty(event::Empty { session, correlation: e.correlation }),
            Message::Captured(c) => Event::Captured(Captured { session, correlation: c.correlation }),
            Message::Totals(totals) => {
                self.totals = totals;
                self.counted = true;
                return None;
            }
            Message::Goodbye(_) => {
                self.ended = true;
                self.counted = true;
                return None;
            }
            Message::Name(id, name) => Event::KernelName(KernelName { session, id, name: text(name) }),
            Message::Device(index, name) => Event::Device(event::Device { session, index, name: short(name) }),
            Message::Notice(notice, words) => Event::Note(Note { text: sentence(notice, self.pid, &short(words)) }),
        })
    }

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
            ended: self.ended,
        })
    }
}

/// What a notice means to the user.
fn sentence(notice: Notice, pid: u32, words: &str) -> String {
    match notice {
        Notice::NoCupti => format!(
            "no GPU activity from process {pid}: libcupti was not found ({words}); install the CUDA toolkit's CUPTI or the Python package nvidia-cuda-cupti, or set WARPSCOPE_CUPTI to the library's path"
        ),
        Notice::OtherSubscriber => format!(
            "no GPU activity from process {pid}: another CUPTI client is there first (CUPTI error 39: {words}); stop that profiler or debugger and record again"
        ),
        Notice::CuptiFailed => format!("CUPTI in process {pid}: {words}"),
        Notice::ForeignClock => {
            format!("CUPTI in process {pid} keeps its own clock; GPU times are shifted by a measured offset ({words})")
        }
        Notice::Library => format!("process {pid} uses {words}"),
    }
}
