//! One scraper: what it has sent, what is still to be sent to it, and until when.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use super::{
    Request, Response,
    message::{LONGEST_HEAD, Method},
};

/// For the whole of a request's head, however slowly it comes.
const TO_ASK: Duration = Duration::from_secs(5);
/// For the whole of an answer, however slowly it is read.
const TO_READ: Duration = Duration::from_secs(10);
/// Between two requests: scrapers come every minute or so.
const TO_REST: Duration = Duration::from_secs(150);
/// After the last answer, until the other side has closed.
const TO_LEAVE: Duration = Duration::from_secs(1);

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The other side has its answer and should close. What it still sends is thrown away: closing at once would make the
    /// kernel reset the connection, and the answer could be lost.
    Leaving,
    /// The next request, or the first.
    Resting,
    /// The rest of a request.
    Asking,
    /// The answer to be taken.
    Answering,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Over,
}

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    state: State,
    /// When it came to this state, and when it is out of time.
    pub(super) since: Instant,
    pub(super) until: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    keep_alive: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            stream,
            state: State::Resting,
            since: now,
            until: now + TO_ASK,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            keep_alive: true,
        })
    }

    /// Whether it waits to be written to, rather than to be read.
    pub(super) fn wants_to_write(&self) -> bool {
        self.state == State::Answering
    }

    fn enter(&mut self, state: State, time: Duration) {
        let now = Instant::now();
        (self.state, self.since, self.until) = (state, now, now + time);
    }

    /// Does what can be done without waiting.
    pub(super) fn advance(&mut self, handler: &dyn Fn(&Request) -> Response) -> Flow {
        match self.state {
            State::Leaving => self.leave(),
            State::Answering => self.send(handler),
            State::Resting | State::Asking => self.receive(handler),
        }
    }

    fn receive(&mut self, handler: &dyn Fn(&Request) -> Response) -> Flow {
        let mut bytes = [0; 4096];
        loop {
            // Pipelined requests stay in the kernel until those before them are answered.
            match self.stream.read(&mut bytes) {
                Ok(0) => return Flow::Over,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::On,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Flow::Over,
            }
            debug_assert!(self.input.len() <= LONGEST_HEAD + bytes.len());
            if self.state == State::Resting {
                self.enter(State::Asking, TO_ASK);
            }
            if self.understand(handler) {
                return self.send(handler);
            }
        }
    }

    /// Makes the answer to the next request, if the whole of it has come.
    fn understand(&mut self, handler: &dyn Fn(&Request) -> Response) -> bool {
        let Some((request, length)) = Request::parse(&self.input) else { return false };
        self.input.drain(..length);
        self.output = match request {
            Ok(request) => {
                self.keep_alive = request.keep_alive;
                handler(&request).bytes(request.method, self.keep_alive)
            }
            Err(refusal) => {
                self.keep_alive = false;
                refusal.response().bytes(Method::Get, false)
            }
        };
        self.sent = 0;
        self.enter(State::Answering, TO_READ);
        true
    }

    fn send(&mut self, handler: &dyn Fn(&Request) -> Response) -> Flow {
        loop {
            while self.sent < self.output.len() {
                match self.stream.write(&self.output[self.sent..]) {
                    Ok(0) => return Flow::Over,
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::On,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return Flow::Over,
                }
            }
            self.output = Vec::new();
            if !self.keep_alive {
                return self.say_goodbye();
            }
            if self.understand(handler) {
                continue;
            }
            if self.input.is_empty() {
                self.enter(State::Resting, TO_REST);
            } else {
                self.enter(State::Asking, TO_ASK);
            }
            return Flow::On;
        }
    }

    fn say_goodbye(&mut self) -> Flow {
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
