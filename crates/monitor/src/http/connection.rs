//! One client connection: received input, pending output and deadline.

use std::{
    io::{ErrorKind, IoSlice, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Peer, Request, Response,
    host::names_loopback,
    message::{MAX_HEAD, Method, Refusal},
    slots::{Slot, State},
};

/// For the whole head of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// For the server to produce an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// For the client to read a whole answer. A large one gets more, at the lowest rate in bytes per second: a report may be
/// read over a slow link.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const LARGE: usize = 2 << 20;
const MIN_RATE: u64 = 64 << 10;
/// Between two requests: scrapers usually send one every minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// After the last answer, until the client has closed the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes sent to one connection before others get their turn.
const PORTION: usize = 256 << 10;

/// Whether the connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Over,
}

pub(super) struct Connection {
    /// Distinguishes it from all other connections.
    pub(super) id: u64,
    pub(super) stream: TcpStream,
    /// The deadline of the current state.
    pub(super) until: Instant,
    slot: Slot,
    /// The name that the server was given, if it listens on the loopback interface only.
    loopback: Option<Arc<str>>,
    input: Vec<u8>,
    /// The request to answer.
    request: Option<Result<Request, Refusal>>,
    head: Vec<u8>,
    body: Arc<[u8]>,
    sent: usize,
    keep_alive: bool,
}

impl Connection {
    /// `loopback` is the name that the server was given, if it listens on the loopback interface only.
    pub(super) fn new(id: u64, stream: TcpStream, peer: Peer, loopback: Option<Arc<str>>) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            id,
            stream,
            until: now + REQUEST_TIMEOUT,
            slot: Slot { peer, state: State::Idle, since: now, answers: 0 },
            loopback,
            input: Vec::new(),
            request: None,
            head: Vec::new(),
            body: Arc::default(),
            sent: 0,
            keep_alive: true,
        })
    }

    /// The peer and the state.
    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// The events to poll for. While an answer is pending, only a hangup matters.
    pub(super) fn events(&self) -> libc::c_short {
        match self.slot.state {
            State::Closing | State::Idle | State::Receiving => libc::POLLIN,
            State::Pending => 0,
            State::Sending => libc::POLLOUT,
        }
    }

    fn enter(&mut self, state: State, time: Duration) {
        let now = Instant::now();
        (self.slot.state, self.slot.since, self.until) = (state, now, now + time);
    }

    /// Does what is possible without blocking, within the fair share.
    pub(super) fn advance(&mut self) -> Flow {
        match self.slot.state {
            State::Closing => self.discard_input(),
            State::Idle | State::Receiving => self.receive(),
            // The connection was reset.
            State::Pending => Flow::Over,
            State::Sending => self.send(),
        }
    }

    fn receive(&mut self) -> Flow {
        let mut bytes = [0; 4096];
        while self.request.is_none() {
            // Pipelined requests stay in the kernel until the previous ones are answered.
            match self.stream.read(&mut bytes) {
                Ok(0) => return Flow::Over,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::On,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Flow::Over,
            }
            debug_assert!(self.input.len() <= MAX_HEAD + bytes.len());
            if self.slot.state == State::Idle {
                self.enter(State::Receiving, REQUEST_TIMEOUT);
            }
            self.parse_request();
        }
        Flow::On
    }

    /// Parses the next request, if it is complete.
    fn parse_request(&mut self) {
        let Some((request, length)) = Request::parse(&self.input) else { return };
        self.input.drain(..length);
        self.request = Some(request.and_then(|request| self.accept(request)));
        self.enter(State::Pending, ANSWER_TIMEOUT);
    }

    /// Rejects a request for another host, such as that of a web page whose name leads here.
    fn accept(&self, request: Request) -> Result<Request, Refusal> {
        match &self.loopback {
            Some(given) if !request.authority.is_empty() && !names_loopback(&request.authority, given) => {
                Err(Refusal::Host)
            }
            _ => Ok(request.from(self.slot.peer)),
        }
    }

    /// Returns the request to answer, unless it is refused.
    pub(super) fn request(&self) -> Option<&Request> {
        self.request.as_ref()?.as_ref().ok()
    }

    /// Answers the request, and sends as much as possible. Without a response the request is refused, or waits on.
    pub(super) fn answer(&mut self, response: Option<Response>) -> Flow {
        let (response, method) = match (&self.request, response) {
            (Some(Ok(request)), Some(response)) => (response, request.method),
            (Some(Err(refusal)), _) => (refusal.response(), Method::Get),
            (Some(Ok(_)), None) | (None, _) => return Flow::On,
        };
        let Some(request) = self.request.take() else { return Flow::On };
        self.keep_alive = request.is_ok_and(|request| request.keep_alive);
        self.head = response.head(self.keep_alive);
        self.body = if method != Method::Head { response.body } else { Arc::default() };
        self.sent = 0;
        let time = SEND_TIMEOUT + Duration::from_secs(self.body.len().saturating_sub(LARGE) as u64 / MIN_RATE);
        self.enter(State::Sending, time);
        self.send()
    }

    fn send(&mut self) -> Flow {
        let whole = self.head.len() + self.body.len();
        let enough = whole.min(self.sent + PORTION);
        while self.sent < enough {
            let head = self.head.get(self.sent..).unwrap_or_default();
            let body = &self.body[self.sent.saturating_sub(self.head.len())..];
            let body = &body[..body.len().min(PORTION)];
            match self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(0) => return Flow::Over,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::On,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Flow::Over,
            }
        }
        if self.sent < whole {
            return Flow::On;
        }
        (self.head, self.body) = (Vec::new(), Arc::default());
        self.slot.answers += 1;
        if !self.keep_alive {
            return self.close();
        }
        if self.input.is_empty() {
            self.enter(State::Idle, IDLE_TIMEOUT);
        } else {
            self.enter(State::Receiving, REQUEST_TIMEOUT);
            self.parse_request();
        }
        Flow::On
    }

    fn close(&mut self) -> Flow {
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return Flow::Over;
        }
        self.input = Vec::new();
        self.enter(State::Closing, CLOSE_TIMEOUT);
        self.discard_input()
    }

    fn discard_input(&mut self) -> Flow {
        let mut bytes = [0; 4096];
        // Bounded: a client that keeps sending is read a little at a time, and only until the deadline.
        for _ in 0..16 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Flow::Over,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::On,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Flow::Over,
            }
        }
        Flow::On
    }
}
