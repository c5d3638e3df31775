//! Injected libraries: accepts their connections and reads their messages.
//!
//! Any process of the command's user can connect and send anything. Everything kept is bounded, per session and in
//! total ([`quota`]). Everything read in one round is bounded too, so that a flood on one connection delays neither the
//! others nor the ring buffer.
//!
//! A session is identified by a random 64-bit number that its library generates, announces in its `Hello` and passes
//! with every marker; here it is mapped to a small number. A pid would not do: inside a container the target sees a
//! different pid than the probe, and pids are reused. The pid in the socket's credentials, translated by the kernel, is
//! used only to find the process image of a session.

mod connection;
mod known;
mod launches;
mod machine;
mod quota;
mod silent;
mod socket;
mod stalls;

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    path::Path,
    time::{Duration, Instant},
};

use bpf::{Memo, Recognised};
use model::event::{Event, Loss, LossCause, Mapping, ProcessId, Session, SessionId};
use wire::{Message, Refusal, known::Python};

use connection::Connection;
use known::KnownStacks;
use launches::Launches;
use machine::Machine;
use quota::{Refused, Used};
use silent::Silent;
pub use silent::refusal_sentence;
pub use socket::is_pair_of;
use socket::{accept, credentials, receive, send_byte, send_with};

use crate::process::thread_ids::ThreadIds;

/// The most connections at once, in total and per process. A process has one injected library.
const MOST_CONNECTIONS: usize = 4096;
const MOST_OF_PROCESS: usize = 16;
/// The most sessions of a recording, and of one process image.
const MOST_SESSIONS: usize = 65_536;
const MOST_OF_IMAGE: usize = 64;
/// The most connections accepted, and the most packets read, per round and per connection.
const ACCEPTED: usize = 256;
const PACKETS: usize = 512;
const PACKETS_OF_ONE: usize = 64;
/// How long the welcome is delayed for unwind tables once the process is known. The library waits twice as long in all.
const MOST_DELAY: Duration = Duration::from_secs(10);
const MOST_DELAY_OF_STARTED: Duration = Duration::from_secs(1);
/// The most launches read from memory per round, and per round and connection.
const LAUNCHES: usize = 1 << 16;
const LAUNCHES_OF_ONE: usize = 4096;
/// The most messages that wait until their thread is known.
const MOST_AWAITING: usize = 4096;
/// The most memory for known stacks of all sessions.
const MOST_KNOWN_BYTES: usize = 64 << 20;

/// All sessions of a recording.
pub struct Sessions {
    /// Absent if warpscope attaches to running processes.
    listener: Option<OwnedFd>,
    /// Peers must run as this user, or as root.
    uid: u32,
    connections: Vec<Connection>,
    /// The connection that is read first in the next round.
    first: usize,
    /// By the sessions' own keys: their numbers, and the process images that they are in.
    ids: HashMap<u64, (SessionId, ProcessId)>,
    /// The number of sessions of each process image.
    of_image: HashMap<ProcessId, usize>,
    /// Those that have sent their [`wire::Hello`].
    greeted: HashSet<SessionId>,
    used: Used,
    refused: Refused,
    recognised: RecognisedLaunches,
    /// The calls in progress that hand work over, for processes to read; without it every launch goes through the probe.
    handed_calls: Option<OwnedFd>,
    /// Memory of connections that were closed, to be read once more.
    left: Vec<(Sender, Launches)>,
    /// Events whose threads are not known yet, with the process that sent them: they may have begun since the probes' records were
    /// read.
    awaiting: Vec<(Sender, Event)>,
    /// The first few processes of other users that tried to connect, and their users.
    rejected_peers: Vec<(u32, u32)>,
    /// CUDA processes without a session.
    silent: Silent,
    machine: Machine,
    /// Cubins with line information.
    cubins: HashMap<(SessionId, u32), Vec<u8>>,
    packet: Vec<u8>,
    /// Processes report their calls, if they can.
    calls: bool,
}

/// A process that waits for the reply to its hello, and the calls that it can report.
pub struct Announced {
    /// Its connection.
    pub socket: RawFd,
    /// The process image.
    pub process: ProcessId,
    /// Its session.
    pub session: SessionId,
    /// Its pid.
    pub pid: u32,
    /// The pid that it knows itself by.
    pub own_pid: u32,
    /// Whether it reports calls.
    pub reports: bool,
    /// The functions whose calls it reports, by their numbers.
    pub functions: Vec<(u16, String)>,
}

/// A process that has a session.
#[derive(Clone, Copy, Debug)]
struct Sender {
    session: SessionId,
    process: ProcessId,
    /// As in [`ReportedLaunch`].
    renamed: bool,
}

/// A launch that a thread reported by itself, because it recognised its stacks.
#[derive(Clone, Copy, Debug)]
pub struct ReportedLaunch {
    /// The session.
    pub session: SessionId,
    /// The process image.
    pub process: ProcessId,
    /// The process knows itself by another pid than ours: its ids of threads are others, too.
    pub renamed: bool,
    /// What the process wrote.
    pub launch: wire::launches::Launch,
}

/// What a session's threads need to recognise stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recognition {
    /// The layout of the Python interpreter.
    pub python: Option<Python>,
    /// Whether launches whose stacks are known need not go through the probe.
    pub without_probe: bool,
}

/// Launches whose native or Python stack was recognised by the thread itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecognisedLaunches {
    /// Launches with a recognised native stack.
    pub native: u64,
    /// Launches with a recognised Python stack.
    pub python: u64,
    /// Launches that the thread reported by itself, without the probe.
    pub unprobed: u64,
    /// Launches that the probe saw.
    pub probed: u64,
}

impl Sender {
    fn of(connection: &Connection) -> Option<Self> {
        let session = connection.session?;
        Some(Self { session, process: connection.process, renamed: connection.is_renamed() })
    }

    fn reported(self, launch: wire::launches::Launch) -> ReportedLaunch {
        let Self { session, process, renamed } = self;
        ReportedLaunch { session, process, renamed, launch }
    }

    /// Translates the id of an event's thread; false if it is not known.
    fn translate(self, event: &mut Event, threads: &ThreadIds) -> bool {
        let Some((tid, time)) = thread_of(event) else { return true };
        let outer = threads.outer(self.process, self.renamed, *tid, time);
        *tid = outer.unwrap_or(*tid);
        outer.is_some()
    }
}

/// The thread that a process names in an event, and when it did so.
fn thread_of(event: &mut Event) -> Option<(&mut u32, u64)> {
    match event {
        Event::Launch(launch) => Some((&mut launch.tid, launch.time)),
        Event::Range(range) => Some((&mut range.tid, range.end)),
        Event::CommunicatorCall(call) => Some((&mut call.tid, call.time)),
        _ => None,
    }
}

/// Removes the thread from an event, and counts this: its number means another thread here.
fn without_thread(mut event: Event, refused: &mut Refused) -> Event {
    refused.count(LossCause::UnknownThreads);
    if let Some((tid, _)) = thread_of(&mut event) {
        *tid = 0;
    }
    event
}

/// Why we close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejection {
    Malformed,
    /// There are too many sessions; this has been counted.
    Refused,
}

impl From<wire::Malformed> for Rejection {
    fn from(_: wire::Malformed) -> Self {
        Self::Malformed
    }
}

impl Sessions {
    /// Creates the sessions of the injected `library` that connect to `listener` as the user `uid`.
    pub fn new(listener: OwnedFd, uid: u32, library: &Path) -> Self {
        Self { listener: Some(listener), uid, silent: Silent::new(library), ..Self::attached(&[]) }
    }

    /// Creates the sessions of running processes that warpscope attaches to.
    pub fn attached(pids: &[u32]) -> Self {
        Self {
            listener: None,
            uid: 0,
            connections: Vec::new(),
            first: 0,
            ids: HashMap::new(),
            of_image: HashMap::new(),
            greeted: HashSet::new(),
            used: Used::default(),
            refused: Refused::default(),
            recognised: RecognisedLaunches::default(),
            handed_calls: None,
            left: Vec::new(),
            awaiting: Vec::new(),
            rejected_peers: Vec::new(),
            silent: Silent::attached(pids),
            machine: Machine::default(),
            cubins: HashMap::new(),
            packet: vec![0; wire::MAX_PACKET],
            calls: false,
        }
    }

    /// Lets processes report launches whose stacks they know. `handed_calls` is [`bpf::Recorder::handed_calls`].
    pub fn share_handed_calls(&mut self, handed_calls: OwnedFd) {
        self.handed_calls = Some(handed_calls);
    }

    /// Expects processes to report their calls, if they can.
    pub fn expect_calls(&mut self) {
        self.calls = true;
    }

    /// Returns the id of the session with this key in this image; creates it if it is new. `None` if there are too
    /// many, or if the session is in another image: a process may name any key.
    pub fn id(&mut self, key: u64, image: ProcessId) -> Option<SessionId> {
        if let Some((id, of)) = self.ids.get_mut(&key) {
            // The image of a process that is not followed is not known.
            if of.0 == 0 {
                *of = image;
            }
            if image == *of || image.0 == 0 {
                return Some(*id);
            }
            self.refused.count(LossCause::ForeignStacks);
            return None;
        }
        let of_image = self.of_image.entry(image).or_default();
        if self.ids.len() >= MOST_SESSIONS || *of_image >= MOST_OF_IMAGE {
            self.refused.count(LossCause::SessionsRefused);
            return None;
        }
        *of_image += 1;
        let id = SessionId(self.ids.len() as u32);
        self.ids.insert(key, (id, image));
        Some(id)
    }

    /// Handles a file mapped by a process.
    pub fn mapped(&mut self, mapping: &Mapping, pid: u32) {
        self.silent.mapped(mapping, pid);
    }

    /// Handles the library's report of why it does nothing in a process.
    pub fn refused(&mut self, process: ProcessId, pid: u32, refusal: Refusal, error: u32) {
        self.silent.refused(process, pid, refusal, error);
    }

    /// Returns the descriptors to wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let listener = self.listener.iter().map(AsRawFd::as_raw_fd);
        listener.chain(self.connections.iter().map(|c| c.socket.as_raw_fd()))
    }

    /// Adds the connection to a process that warpscope has attached to.
    pub fn adopt(&mut self, socket: OwnedFd, pid: u32) {
        let mut connection = Connection::new(socket, pid);
        connection.attached = true;
        self.connections.push(connection);
    }

    /// Returns the processes that warpscope is attached to: their libraries have not closed the connection.
    pub fn attached_to(&self) -> Vec<u32> {
        self.connections.iter().filter(|connection| connection.attached).map(|connection| connection.pid).collect()
    }

    /// Accepts new connections.
    pub fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            let Some(Ok(socket)) = self.listener.as_ref().map(accept) else { return };
            let Ok(peer) = credentials(&socket) else { continue };
            let pid = peer.pid as u32;
            if peer.uid != self.uid && peer.uid != 0 {
                if self.rejected_peers.len() < MOST_OF_PROCESS && !self.rejected_peers.contains(&(pid, peer.uid)) {
                    self.rejected_peers.push((pid, peer.uid));
                }
                continue;
            }
            let of_process = self.connections.iter().filter(|connection| connection.pid == pid).count();
            if self.connections.len() >= MOST_CONNECTIONS || of_process >= MOST_OF_PROCESS {
                self.refused.count(LossCause::SessionsRefused);
                continue;
            }
            self.connections.push(Connection::new(socket, pid));
        }
    }

    /// Returns the connections that have sent a hello and wait for the reply.
    pub fn waiting(&self) -> Vec<RawFd> {
        let waits = |c: &&Connection| c.session.is_some() && !c.welcomed && (c.announced.is_some() || !self.calls);
        self.connections.iter().filter(waits).map(|c| c.socket.as_raw_fd()).collect()
    }

    /// Removes those that should wait longer, until the stacks of their process can be walked (`walkable`). Not for ever: a process
    /// that warpscope has attached to runs meanwhile, the others do not. What a long round takes does not count: its mappings have only
    /// just been read.
    pub fn keep_ready(&mut self, waiting: &mut Vec<RawFd>, walkable: &dyn Fn(ProcessId) -> bool) {
        waiting.retain(|socket| {
            let connection = self.connections.iter_mut().find(|c| c.socket.as_raw_fd() == *socket);
            connection.is_some_and(|c| {
                let most = if c.attached { MOST_DELAY } else { MOST_DELAY_OF_STARTED };
                walkable(c.process) || c.waits_since.get_or_insert_with(Instant::now).elapsed() > most
            })
        });
    }

    /// Returns the processes of these connections.
    pub fn processes(&self, waiting: &[RawFd]) -> Vec<(u32, ProcessId)> {
        let connections = self.connections.iter().filter(|c| waiting.contains(&c.socket.as_raw_fd()));
        connections.map(|c| (c.pid, c.process)).collect()
    }

    /// Returns what the waiting libraries have announced, if they were expected to.
    pub fn announced(&mut self, waiting: &[RawFd]) -> Vec<Announced> {
        let connections = self.connections.iter_mut().filter(|c| waiting.contains(&c.socket.as_raw_fd()));
        let announced = connections.filter(|_| self.calls).filter_map(|connection| {
            Some(Announced {
                socket: connection.socket.as_raw_fd(),
                process: connection.process,
                session: connection.session?,
                pid: connection.pid,
                own_pid: connection.own_pid,
                reports: connection.announced?,
                functions: std::mem::take(&mut connection.functions),
            })
        });
        announced.collect()
    }

    /// Notifies the waiting libraries that their stacks can now be walked. Those that report calls get the memory for
    /// them. `recognition_of` returns what the threads of a pid need to recognise stacks.
    pub fn welcome(
        &mut self,
        waiting: &[RawFd],
        calls: &HashMap<RawFd, OwnedFd>,
        recognition_of: &dyn Fn(u32) -> Recognition,
    ) {
        for connection in self.connections.iter_mut().filter(|c| waiting.contains(&c.socket.as_raw_fd())) {
            connection.welcomed = true;
            let Recognition { python, without_probe } = recognition_of(connection.pid);
            connection.known = KnownStacks::new(connection.process.0, python).ok();
            let calls = calls.get(&connection.socket.as_raw_fd()).map(AsFd::as_fd);
            let handed_calls = self.handed_calls.as_ref().filter(|_| without_probe);
            connection.launches = handed_calls.and_then(|_| Launches::new().ok());
            if let (Some(known), Some(_)) = (&connection.known, &connection.launches) {
                known.set_without_probe(true);
            }
            let known = connection.known.as_ref().map(KnownStacks::file);
            let launches = connection.launches.as_ref().map(Launches::file);
            let memories: Vec<_> =
                known.into_iter().chain(calls).chain(launches).chain(handed_calls.map(AsFd::as_fd)).collect();
            match memories[..] {
                [] => send_byte(connection.socket.as_raw_fd(), wire::WELCOME),
                _ => send_with(&connection.socket, wire::WELCOME, &memories),
            }
        }
    }

    /// Requests that the libraries flush, send what they have, and stop.
    pub fn request_finish(&self) {
        for connection in &self.connections {
            send_byte(connection.socket.as_raw_fd(), wire::FINISH);
        }
    }

    /// Whether any session has not ended yet.
    pub fn any_open(&self) -> bool {
        self.connections.iter().any(Connection::is_open)
    }

    /// Passes on the events that wait for their threads, which are known by now if they ever are. `threads` are those that began before the
    /// probes' records were read, which was after the events arrived.
    fn push_awaiting(&mut self, threads: &ThreadIds, push: &mut dyn FnMut(Event)) {
        for (sender, mut event) in self.awaiting.drain(..) {
            let known = sender.translate(&mut event, threads);
            push(if known { event } else { without_thread(event, &mut self.refused) });
        }
    }

    /// Counts a launch whose thread is not known.
    pub fn count_unknown_thread(&mut self, unknown: bool) {
        self.refused.add(LossCause::UnknownThreads, unknown.into());
    }

    /// Counts a launch that named a stack of another process.
    pub fn count_foreign(&mut self) {
        self.refused.count(LossCause::ForeignStacks);
    }

    /// Counts a launch that the thread reported by itself.
    pub fn count_unprobed(&mut self, python: bool) {
        self.count_recognised(Recognised { native: true, python });
        self.recognised.unprobed += 1;
    }

    /// Counts a launch that the probe saw.
    pub fn count_probed(&mut self, recognised: Recognised) {
        self.count_recognised(recognised);
        self.recognised.probed += 1;
    }

    /// Counts a launch by the parts of its stack that the thread recognised itself.
    fn count_recognised(&mut self, recognised: Recognised) {
        self.recognised.native += u64::from(recognised.native);
        self.recognised.python += u64::from(recognised.python);
    }

    /// Returns the number of launches whose stack was recognised by the thread itself.
    pub fn recognised(&self) -> RecognisedLaunches {
        self.recognised
    }

    /// Adds a walked stack, which the session's threads can recognise from now on. It may have no Python frames.
    pub fn remember(&mut self, memo: &Memo, without_python: bool) {
        let Some((id, of)) = self.ids.get(&memo.session) else { return };
        if of.0 != memo.image {
            return;
        }
        let used: usize = self.connections.iter().filter_map(|c| c.known.as_ref()).map(KnownStacks::bytes).sum();
        let connection = self.connections.iter_mut().find(|connection| connection.session == Some(*id));
        if let Some(known) = connection.and_then(|connection| connection.known.as_mut())
            && used < MOST_KNOWN_BYTES
        {
            known.add(memo, without_python);
        }
    }

    /// Adds a Python stack, which the session's threads can recognise from now on.
    pub fn remember_python(&mut self, session: SessionId, hash: u64, id: u64) {
        let connection = self.connections.iter_mut().find(|connection| connection.session == Some(session));
        if let Some(known) = connection.and_then(|connection| connection.known.as_mut()) {
            known.add_python(hash, id);
        }
    }

    /// Handles the discovery that a process runs Python: if its threads do not know that, the probe takes their Python stacks.
    pub fn found_python(&self, process: ProcessId) {
        let known = self.connections.iter().filter(|c| c.process == process).filter_map(|c| c.known.as_ref());
        known.filter(|known| !known.has_python()).for_each(|known| known.set_without_probe(false));
    }

    /// Reads the launches that threads have reported by themselves. Returns `true` if there may be more.
    pub fn read_launches(&mut self, each: &mut dyn FnMut(ReportedLaunch)) -> bool {
        for (sender, mut launches) in self.left.drain(..) {
            let lost = launches.read_rest(&mut |launch| each(sender.reported(launch)));
            self.refused.add(LossCause::UnwrittenLaunches, lost);
        }
        let mut left = LAUNCHES;
        let count = self.connections.len();
        for index in (0..count).map(|at| (self.first + at) % count) {
            let connection = &mut self.connections[index];
            let most = left.min(LAUNCHES_OF_ONE);
            if let (Some(sender), Some(launches)) = (Sender::of(connection), &mut connection.launches) {
                left -= launches.read(most, &mut |launch| each(sender.reported(launch)));
            }
        }
        left == 0
    }

    /// Reads the last launches of a process image that has ended.
    pub fn read_last_launches(&mut self, process: ProcessId, each: &mut dyn FnMut(ReportedLaunch)) {
        for connection in self.connections.iter_mut().filter(|connection| connection.process == process) {
            if let (Some(sender), Some(mut launches)) = (Sender::of(connection), connection.launches.take()) {
                let lost = launches.read_rest(&mut |launch| each(sender.reported(launch)));
                self.refused.add(LossCause::UnwrittenLaunches, lost);
            }
        }
    }

    /// Invalidates all known stacks: other code may have replaced code that was walked.
    pub fn forget_known(&mut self) {
        self.connections.iter_mut().filter_map(|connection| connection.known.as_mut()).for_each(KnownStacks::forget);
    }

    /// Invalidates all Python stacks.
    pub fn forget_python(&mut self) {
        self.connections.iter_mut().filter_map(|c| c.known.as_mut()).for_each(KnownStacks::forget_python);
    }

    /// Ends the recording. Launches may belong to sessions that never sent a [`wire::Hello`], for example of a process
    /// that was killed at once: these are reported as sessions truncated at their beginning.
    pub fn finish(&mut self, threads: &ThreadIds, push: &mut dyn FnMut(Event)) {
        let silent = self.ids.values().map(|(id, _)| *id).filter(|id| !self.greeted.contains(id));
        for id in silent {
            push(Event::Session(Session { id, process: ProcessId(0), cupti: 0, driver: 0 }));
        }
        self.connections.iter_mut().for_each(|connection| connection.stalls.pass_on(push));
        self.push_awaiting(threads, push);
        self.count_refused(push);
        self.silent.finish(&self.rejected_peers, push);
    }

    /// Returns the cubins with line information.
    pub fn take_cubins(&mut self) -> HashMap<(SessionId, u32), Vec<u8>> {
        std::mem::take(&mut self.cubins)
    }

    fn count_refused(&mut self, push: &mut dyn FnMut(Event)) {
        for (cause, count) in self.refused.drain() {
            push(Event::Loss(Loss { cause, count }));
        }
    }

    /// Reads pending messages, either from all connections (`accept_hellos`) or only from those that have sent a hello.
    /// `image_of` returns the image that a pid runs; `threads` are those that began before the probes' records were read. Returns
    /// `true` if anything was read.
    pub fn read(
        &mut self,
        accept_hellos: bool,
        image_of: &dyn Fn(u32) -> Option<ProcessId>,
        threads: &ThreadIds,
        push: &mut dyn FnMut(Event),
    ) -> bool {
        if accept_hellos {
            self.push_awaiting(threads, push);
        }
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
            if !accept_hellos && self.connections[index].session.is_none() {
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
                        let sound = self.packet(index, &packet[..length], (image_of, threads), push);
                        self.packet = packet;
                        if let Err(why) = sound {
                            // Both sides come from one binary: the sender of this is not our library.
                            if why == Rejection::Malformed {
                                self.refused.count(LossCause::MalformedPackets);
                            }
                            closed.push(index);
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The peer exited without reading its welcome: this is reported once, and what it sent can still be
                    // read.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        closed.push(index);
                        break;
                    }
                }
            }
            if let Some(totals) = self.connections[index].new_totals() {
                push(totals);
            }
            self.connections[index].stalls.tick(push);
        }
        closed.sort_unstable_by(|a, b| b.cmp(a));
        for index in closed {
            let mut closed = self.connections.swap_remove(index);
            closed.stalls.pass_on(push);
            self.left.extend(Sender::of(&closed).zip(closed.launches.take()));
        }
        self.count_refused(push);
        any
    }

    fn packet(
        &mut self,
        index: usize,
        mut packet: &[u8],
        (image_of, threads): (&dyn Fn(u32) -> Option<ProcessId>, &ThreadIds),
        push: &mut dyn FnMut(Event),
    ) -> Result<(), Rejection> {
        while let Some(message) = Message::next(&mut packet)? {
            if let Message::Hello(hello) = message {
                if hello.version != wire::VERSION || self.connections[index].session.is_some() {
                    return Err(Rejection::Malformed);
                }
                let process = image_of(self.connections[index].pid).unwrap_or(ProcessId(0));
                let id = self.id(hello.session, process).ok_or(Rejection::Refused)?;
                // Keys are random: an accidental duplicate is practically impossible.
                if !self.greeted.insert(id) {
                    return Err(Rejection::Malformed);
                }
                let connection = &mut self.connections[index];
                connection.session = Some(id);
                connection.process = process;
                connection.own_pid = hello.pid;
                connection.clock_offset = hello.clock_offset;
                self.silent.connected(process);
                push(Event::Session(Session { id, process, cupti: hello.cupti, driver: hello.driver }));
                continue;
            }
            let connection = &mut self.connections[index];
            let session = connection.session.ok_or(Rejection::Malformed)?;
            match message {
                Message::Function(number, name) if self.calls => connection.add_function(number, name),
                Message::FunctionsEnd(end) if connection.announced.is_none() => {
                    connection.announced = Some(end.reported != 0);
                }
                _ => {}
            }
            let Connection { stalls, used, .. } = connection;
            let mut keep = |number, bytes| drop(self.cubins.insert((session, number), bytes));
            if stalls.message(session, &message, (used, &mut self.used), &mut keep, push) {
                continue;
            }
            match connection.allowed(&mut self.used, &message) {
                Ok(()) => {
                    if let Some(mut event) = connection.event(session, message) {
                        if let Event::Device(device) = &mut event {
                            device.identity.machine_index = self.machine.index(device.identity.gpu);
                        }
                        let sender = Sender { session, process: connection.process, renamed: connection.is_renamed() };
                        if sender.translate(&mut event, threads) {
                            push(event);
                        } else if self.awaiting.len() < MOST_AWAITING {
                            self.awaiting.push((sender, event));
                        } else {
                            push(without_thread(event, &mut self.refused));
                        }
                    }
                }
                Err(cause) => self.refused.count(cause),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a library waits for the unwind tables of its process from the moment when its mappings are known, however long
    /// reading them took, and not for ever.
    #[test]
    fn the_welcome_is_delayed_for_unwind_tables() {
        let (own, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let socket = own.as_raw_fd();
        let mut sessions = Sessions::attached(&[]);
        sessions.connections.push(Connection::new(own.into(), 7));
        let mut ready = |walkable: bool, since: Option<Duration>| {
            if let Some(since) = since {
                sessions.connections[0].waits_since = Instant::now().checked_sub(since);
            }
            let mut waiting = vec![socket];
            sessions.keep_ready(&mut waiting, &|_| walkable);
            !waiting.is_empty()
        };
        assert!(!ready(false, None), "its mappings have just been read");
        assert!(!ready(false, Some(MOST_DELAY_OF_STARTED / 2)));
        assert!(ready(true, None));
        assert!(ready(false, Some(MOST_DELAY_OF_STARTED * 2)));
    }
}
