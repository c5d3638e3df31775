//! Injected libraries: who connects, and what they say.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use model::event::{
    self, Activity, Captured, Direction, Event, Failed, KernelName, Loss, LossCause, Note, ProcessId, Session,
    SessionId, Totals, Work,
};
use wire::{Message, Notice};

/// More connections than this at once are refused.
const MOST_CONNECTIONS: usize = 4096;

/// All sessions of a recording.
pub struct Sessions {
    listener: OwnedFd,
    /// Peers must run as this user, or as root.
    uid: u32,
    connections: Vec<Connection>,
    ids: HashMap<u64, SessionId>,
    /// Those that have said hello.
    heard: HashSet<SessionId>,
    packet: Vec<u8>,
}

struct Connection {
    socket: OwnedFd,
    pid: u32,
    session: Option<SessionId>,
    /// To add to a record's times, wrapping, to get CLOCK_MONOTONIC.
    clock_offset: u64,
    totals: wire::Totals,
    ended: bool,
    welcomed: bool,
}

impl Sessions {
    /// Sessions that connect to `listener`.
    pub fn new(listener: OwnedFd, uid: u32) -> Self {
        Self {
            listener,
            uid,
            connections: Vec::new(),
            ids: HashMap::new(),
            heard: HashSet::new(),
            packet: vec![0; wire::MAX_PACKET],
        }
    }

    /// The id of the session with this key; a new one at first sight.
    pub fn id(&mut self, key: u64) -> SessionId {
        let next = SessionId(self.ids.len() as u32);
        *self.ids.entry(key).or_insert(next)
    }

    /// Descriptors to wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        std::iter::once(self.listener.as_raw_fd()).chain(self.connections.iter().map(|c| c.socket.as_raw_fd()))
    }

    /// Takes new connections.
    pub fn accept(&mut self) {
        while let Ok(socket) = accept(&self.listener) {
            let Ok(peer) = credentials(&socket) else { continue };
            if (peer.uid != self.uid && peer.uid != 0) || self.connections.len() >= MOST_CONNECTIONS {
                continue;
            }
            self.connections.push(Connection {
                socket,
                pid: peer.pid as u32,
                session: None,
                clock_offset: 0,
                totals: wire::Totals::default(),
                ended: false,
                welcomed: false,
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
            // SAFETY: one byte, on a socket of ours that does not block. Who has gone needs no welcome.
            unsafe {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                libc::send(connection.socket.as_raw_fd(), [wire::WELCOME].as_ptr().cast(), 1, flags);
            }
        }
    }

    /// The recording ends. Launches may have come of sessions that never said hello, as of a process that was killed at
    /// once: these are sessions too, cut off at their beginning.
    pub fn finish(&self, push: &mut dyn FnMut(Event)) {
        let silent = self.ids.values().filter(|id| !self.heard.contains(*id));
        for id in silent {
            push(Event::Session(Session { id: *id, process: ProcessId(0), cupti: 0, driver: 0 }));
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
        let mut index = 0;
        while index < self.connections.len() {
            if !newcomers && self.connections[index].session.is_none() {
                index += 1;
                continue;
            }
            let mut closed = false;
            // A busy session does not keep the others waiting for ever.
            for _ in 0..256 {
                let fd = self.connections[index].socket.as_raw_fd();
                match receive(fd, &mut self.packet) {
                    Ok(0) => {
                        closed = true;
                        break;
                    }
                    Ok(length) => {
                        any = true;
                        let packet = std::mem::take(&mut self.packet);
                        let sound = self.packet(index, &packet[..length], image_of, push);
                        self.packet = packet;
                        if sound.is_err() {
                            push(Event::Loss(Loss { cause: LossCause::MalformedPackets, count: 1 }));
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // A peer that ended without reading its welcome: said once, and what it sent is still there.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        closed = true;
                        break;
                    }
                }
            }
            if closed {
                self.connections.swap_remove(index);
            } else {
                index += 1;
            }
        }
        any
    }

    fn packet(
        &mut self,
        index: usize,
        mut packet: &[u8],
        image_of: &dyn Fn(u32) -> Option<ProcessId>,
        push: &mut dyn FnMut(Event),
    ) -> Result<(), wire::Malformed> {
        while let Some(message) = Message::next(&mut packet)? {
            if let Message::Hello(hello) = message {
                if hello.version != wire::VERSION || self.connections[index].session.is_some() {
                    return Err(wire::Malformed);
                }
                let id = self.id(hello.session);
                self.heard.insert(id);
                let connection = &mut self.connections[index];
                connection.session = Some(id);
                connection.clock_offset = hello.clock_offset;
                let process = image_of(connection.pid).unwrap_or(ProcessId(0));
                push(Event::Session(Session { id, process, cupti: hello.cupti, driver: hello.driver }));
                continue;
            }
            let connection = &mut self.connections[index];
            let session = connection.session.ok_or(wire::Malformed)?;
            if !matches!(message, Message::Notice(Notice::Library, _)) {
                push(connection.event(session, message));
            }
        }
        Ok(())
    }
}

impl Connection {
    fn time(&self, time: u64) -> u64 {
        // 0 means that the time is not known.
        if time == 0 { 0 } else { time.wrapping_add(self.clock_offset) }
    }

    fn event(&mut self, session: SessionId, message: Message<'_>) -> Event {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match message {
            Message::Hello(_) => unreachable!("taken care of by the caller"),
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
                self.totals_event(session)
            }
            Message::Goodbye(_) => {
                self.ended = true;
                self.totals_event(session)
            }
            Message::Name(id, name) => Event::KernelName(KernelName { session, id, name: text(name) }),
            Message::Device(index, name) => Event::Device(event::Device { session, index, name: text(name) }),
            Message::Notice(notice, words) => Event::Note(Note { text: sentence(notice, self.pid, &text(words)) }),
        }
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

fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: a plain accept on our own listener; no address is asked for.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn credentials(socket: &OwnedFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is as long as `length` says.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if answer == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let length = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    if length < 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}
