//! One scraper: what it has sent, what is still to be sent to it, and until when.

use std::{
    io::{ErrorKind, IoSlice, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Peer, Request, Response,
    message::{LONGEST_HEAD, Method, Refusal},
    places::{Place, State},
};

/// For the whole of a request's head, however slowly it comes.
const TO_ASK: Duration = Duration::from_secs(5);
/// For an answer to be made.
const TO_WAIT: Duration = Duration::from_secs(30);
/// For the whole of an answer, however slowly it is read.
const TO_READ: Duration = Duration::from_secs(10);
/// Between two requests: scrapers come every minute or so.
const TO_REST: Duration = Duration::from_secs(150);
/// After the last answer, until the other side has closed.
const TO_LEAVE: Duration = Duration::from_secs(1);
/// Bytes that are sent to one connection before others have their turn.
const PORTION: usize = 256 << 10;

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Over,
}

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// When it is out of time.
    pub(super) until: Instant,
    place: Place,
    input: Vec<u8>,
    /// What waits to be answered.
    asked: Option<Result<Request, Refusal>>,
    head: Vec<u8>,
    body: Arc<[u8]>,
    sent: usize,
    keep_alive: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: Peer) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            stream,
            until: now + TO_ASK,
            place: Place { peer, state: State::Resting, since: now, answers: 0 },
            input: Vec::new(),
            asked: None,
            head: Vec::new(),
            body: Arc::default(),
            sent: 0,
            keep_alive: true,
        })
    }

    /// Who it is, and what it is at.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// What to poll for. While an answer is made, only its end is of interest.
    pub(super) fn events(&self) -> libc::c_short {
        match self.place.state {
            State::Leaving | State::Resting | State::Asking => libc::POLLIN,
            State::Waiting => 0,
            State::Answering => libc::POLLOUT,
        }
    }

    fn enter(&mut self, state: State, time: Duration) {
        let now = Instant::now();
        (self.place.state, self.place.since, self.until) = (state, now, now + time);
    }

    /// Does what can be done without waiting, and as much as is fair.
    pub(super) fn advance(&mut self) -> Flow {
        match self.place.state {
            State::Leaving => self.leave(),
            State::Resting | State::Asking => self.receive(),
            // It was reset.
            State::Waiting => Flow::Over,
            State::Answering => self.send(),
        }
    }

    fn receive(&mut self) -> Flow {
        let mut bytes = [0; 4096];
        while self.asked.is_none() {
            // Pipelined requests stay in the kernel until those before them are answered.
            match self.stream.read(&mut bytes) {
                Ok(0) => return Flow::Over,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::On,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Flow::Over,
            }
            debug_assert!(self.input.len() <= LONGEST_HEAD + bytes.len());
            if self.place.state == State::Resting {
                self.enter(State::Asking, TO_ASK);
            }
            self.understand();
        }
        Flow::On
    }

    /// Takes the next request, if the whole of it has come.
    fn understand(&mut self) {
        let Some((request, length)) = Request::parse(&self.input) else { return };
        self.input.drain(..length);
        self.asked = Some(request.map(|request| request.from(self.place.peer)));
        self.enter(State::Waiting, TO_WAIT);
    }

    /// Has its request answered, and sends what can be sent.
    pub(super) fn answer(&mut self, handler: &mut dyn FnMut(&Request) -> Response) -> Flow {
        let Some(asked) = self.asked.take() else { return Flow::On };
        let (response, method) = match &asked {
            Ok(request) => (handler(request), request.method),
            Err(refusal) => (refusal.response(), Method::Get),
        };
        self.keep_alive = asked.is_ok_and(|request| request.keep_alive);
        self.head = response.head(self.keep_alive);
        self.body = if method == Method::Get { response.body } else { Arc::default() };
        self.sent = 0;
        self.enter(State::Answering, TO_READ);
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
        self.place.answers += 1;
        if !self.keep_alive {
            return self.close();
        }
        if self.input.is_empty() {
            self.enter(State::Resting, TO_REST);
        } else {
            self.enter(State::Asking, TO_ASK);
            self.understand();
        }
        Flow::On
    }

    fn close(&mut self) -> Flow {
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return Flow::Over;
        }
        self.input = Vec::new();
        self.enter(State::Leaving, TO_LEAVE);
        self.leave()
    }

    fn leave(&mut self) -> Flow {
        let mut bytes = [0; 4096];
        // Not for ever: whoever sends without end is read a little at a time, and only until it should have left.
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
