//! The event loop that serves all connections.

use std::{
    collections::HashMap,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    Method, Peer, Request, Response,
    connection::{Connection, Flow},
    host::host,
    owner::Owners,
    slots::{Slot, State, Verdict, verdict},
};
use crate::openmetrics::Format;

/// Connections accepted in one round.
const MAX_ACCEPTED: usize = 512;
/// Requests of one peer answered in one round.
const MAX_ANSWERED: usize = 16;
/// After a round, no answers are produced for this multiple of its duration, up to a limit.
const REST_FACTOR: u32 = 2;
const MAX_REST: Duration = Duration::from_millis(100);
/// The length of the kernel's queue of new connections, as far as the system allows. Beyond it a client has to wait for a
/// second until it tries again, and a local user can open thousands of connections while the server has no CPU.
const BACKLOG: libc::c_int = 4096;
/// How long answers may still be sent when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// After a failed `accept`, for example because the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests. It runs on a thread of its own, so that it may wait while connections are accepted.
pub type Handler = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address`, such as `127.0.0.1:9400`, and serves requests. The error is a message for the user.
    pub fn start(address: &str, handler: Handler) -> Result<Self, String> {
        let listener = listen(address)?;
        let failed = |error: std::io::Error| format!("cannot serve on {address}: {error}");
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        // Without it all local clients count as one peer.
        let owners = Owners::open().ok();
        let named = local.ip().is_loopback().then(|| host(address).unwrap_or_default().into());
        let (answers_ready, done) = UnixStream::pair().map_err(failed)?;
        let ((requests, asked), (produced, answers)) = (mpsc::channel(), mpsc::channel());
        let produce = move || produce(&handler, &asked, &produced, &done);
        let producer = std::thread::Builder::new().name("answers".to_owned()).spawn(produce).map_err(failed)?;
        let serve = move || {
            let connections = Vec::new();
            let (pause, rest, next, is_answering) = (None, None, 0, false);
            Loop {
                listener,
                named,
                woken,
                requests,
                answers,
                answers_ready,
                is_answering,
                owners,
                connections,
                next,
                pause,
                rest,
            }
            .run();
            let _ = producer.join();
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Self { address: local, wake, thread: Some(thread) })
    }

    /// Returns the listening address, with the actual port if 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    /// Answers being sent are finished, within a second.
    fn drop(&mut self) {
        let _ = self.wake.write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(address: &str) -> Result<TcpListener, String> {
    let addresses: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|_| format!("cannot listen on {address}: expected ADDRESS:PORT, such as 127.0.0.1:9400"))?
        .collect();
    let listener = TcpListener::bind(&addresses[..]).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => format!(
            "cannot listen on {address}: the address is in use (perhaps by another warpscope); \
             stop it, or choose another address with --metrics-addr"
        ),
        ErrorKind::AddrNotAvailable => {
            format!("cannot listen on {address}: this machine does not have that address")
        }
        ErrorKind::PermissionDenied => {
            format!("cannot listen on {address}: not permitted; ports below 1024 need root")
        }
        _ => format!("cannot listen on {address}: {error}"),
    })?;
    // SAFETY: the descriptor is that of a listening socket, whose queue this lengthens.
    unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
    Ok(listener)
}

struct Loop {
    listener: TcpListener,
    /// The host of the address that the user gave, if it is the loopback interface.
    named: Option<Arc<str>>,
    woken: UnixStream,
    /// To and from the thread that produces answers; the socket can be read when it is done.
    requests: Sender<Requests>,
    answers: Receiver<Answers>,
    answers_ready: UnixStream,
    /// It is at work.
    is_answering: bool,
    owners: Option<Owners>,
    connections: Vec<Connection>,
    /// The next connection's number.
    next: u64,
    /// No new connections until then.
    pause: Option<Instant>,
    /// No more answers until then.
    rest: Option<Instant>,
}

impl Loop {
    fn run(mut self) {
        let mut stop: Option<Instant> = None;
        loop {
            let now = Instant::now();
            self.connections.retain(|connection| connection.until > now);
            if let Some(stop) = stop {
                self.connections.retain(|connection| connection.slot().state == State::Sending);
                if self.connections.is_empty() || now >= stop {
                    return;
                }
            }
            self.pause = self.pause.filter(|until| *until > now);
            self.rest = self.rest.filter(|until| *until > now);
            let ready = self.wait(stop);
            if stop.is_none() && ready[0] {
                stop = Some(Instant::now() + SHUTDOWN_TIMEOUT);
            }
            let mut ready_connections = ready[3..].iter();
            self.connections.retain_mut(|connection| {
                let is_ready = ready_connections.next().copied().unwrap_or(false);
                !is_ready || connection.advance() == Flow::On
            });
            if ready[1] {
                self.accept();
            }
            if ready[2] {
                self.answered();
            }
            if !self.is_answering && self.rest.is_none_or(|until| Instant::now() >= until) {
                self.answer();
            }
        }
    }

    /// Waits until there is something to do: a stop request, a new connection, answers, or a ready connection.
    fn wait(&self, stop: Option<Instant>) -> Vec<bool> {
        let listen = stop.is_none() && self.pause.is_none();
        let mut polled = vec![
            poll_for(if stop.is_none() { self.woken.as_raw_fd() } else { -1 }, libc::POLLIN),
            poll_for(if listen { self.listener.as_raw_fd() } else { -1 }, libc::POLLIN),
            poll_for(if self.is_answering { self.answers_ready.as_raw_fd() } else { -1 }, libc::POLLIN),
        ];
        polled.extend(self.connections.iter().map(|c| poll_for(c.stream.as_raw_fd(), c.events())));
        let is_pending = |connection: &Connection| connection.slot().state == State::Pending;
        let waiting = !self.is_answering && self.connections.iter().any(is_pending);
        let turn = waiting.then(|| self.rest.unwrap_or_else(Instant::now));
        let first = self.connections.iter().map(|connection| connection.until);
        let first = first.chain(stop).chain(self.pause).chain(turn).min();
        let timeout = first.map_or(-1, |until| {
            let left = until.saturating_duration_since(Instant::now());
            i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
        });
        // SAFETY: the pointer and the length are the vector's own.
        let count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        polled.iter().map(|fd| count > 0 && fd.revents != 0).collect()
    }

    /// Accepts new connections. All clients share the kernel's queue, so it is kept short: a connection without a slot
    /// is closed.
    fn accept(&mut self) {
        for _ in 0..MAX_ACCEPTED {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(_) => {
                    self.pause = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            };
            let Some(peer) = Peer::of(&stream, self.owners.as_ref()) else { continue };
            let slots: Vec<Slot> = self.connections.iter().map(Connection::slot).collect();
            match verdict(&slots, peer, Instant::now()) {
                Verdict::Accept => {}
                Verdict::Replace(index) => {
                    self.connections.swap_remove(index);
                }
                Verdict::Refused => continue,
            }
            self.next += 1;
            let Ok(mut connection) = Connection::new(self.next, stream, peer, self.named.clone()) else { continue };
            // Most clients have already sent their request.
            if connection.advance() == Flow::On {
                self.connections.push(connection);
            }
        }
    }

    /// Begins a round: the oldest few requests of each peer. Identical requests share one answer, produced after all of them
    /// arrived.
    fn answer(&mut self) {
        let mut waiting: Vec<(Instant, Peer, usize)> = Vec::new();
        for (index, connection) in self.connections.iter().enumerate() {
            let slot = connection.slot();
            if slot.state == State::Pending {
                waiting.push((slot.since, slot.peer, index));
            }
        }
        waiting.sort();
        let mut turns = HashMap::<Peer, usize>::new();
        waiting.retain(|(_, peer, _)| {
            let turn = turns.entry(*peer).or_default();
            *turn += 1;
            *turn <= MAX_ANSWERED
        });
        let (mut requests, mut over) = (Vec::new(), Vec::new());
        for (_, _, index) in waiting {
            let connection = &mut self.connections[index];
            let request = connection.request().cloned();
            if let Some(request) = request {
                requests.push((connection.id, request));
            } else if connection.answer(None) == Flow::Over {
                over.push(index);
            }
        }
        self.remove(over);
        self.is_answering = !requests.is_empty() && self.requests.send(requests).is_ok();
    }

    /// Ends a round: sends its answers to the connections that are still there.
    fn answered(&mut self) {
        let Ok(Answers { took, responses }) = self.answers.try_recv() else { return };
        let mut byte = [0];
        let _ = (&self.answers_ready).read(&mut byte);
        self.is_answering = false;
        let mut over = Vec::new();
        for (id, response) in responses {
            let at = self.connections.iter().position(|connection| connection.id == id);
            if let Some(index) = at
                && self.connections[index].answer(Some(response)) == Flow::Over
            {
                over.push(index);
            }
        }
        self.remove(over);
        // Limits answers to a part of one CPU, however many clients there are.
        self.rest = Some(Instant::now() + (took * REST_FACTOR).min(MAX_REST));
    }

    fn remove(&mut self, mut over: Vec<usize>) {
        over.sort_unstable();
        for index in over.into_iter().rev() {
            self.connections.swap_remove(index);
        }
    }
}

/// Requests of a round, by their connection.
type Requests = Vec<(u64, Request)>;

/// The answers of a round.
struct Answers {
    took: Duration,
    responses: Vec<(u64, Response)>,
}

/// Produces answers until there are no more requests. They may have to wait for the monitor, while connections are still accepted.
fn produce(handler: &Handler, requests: &Receiver<Requests>, answers: &Sender<Answers>, mut ready: &UnixStream) {
    while let Ok(requests) = requests.recv() {
        let begun = Instant::now();
        let mut shared = HashMap::<(Method, String, Format), Response>::new();
        let respond = |(id, request): (u64, Request)| {
            let key = (request.method, request.path.clone(), Format::negotiate(&request.header("accept")));
            if let Some(response) = shared.get(&key) {
                return (id, response.clone());
            }
            let response = catch_unwind(AssertUnwindSafe(|| handler(&request)))
                .unwrap_or_else(|_| Response::text(500, "internal error: see warpscope's log\n"));
            if response.shared {
                shared.insert(key, response.clone());
            }
            (id, response)
        };
        let responses = requests.into_iter().map(respond).collect();
        if answers.send(Answers { took: begun.elapsed(), responses }).is_err() || ready.write_all(&[0]).is_err() {
            return;
        }
    }
}

fn poll_for(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

#[cfg(test)]
mod tests {
    use std::{fs, mem};

    use super::*;

    /// Check that the kernel's queue of new connections is as long as the system allows.
    #[test]
    fn the_queue_of_new_connections_is_long() {
        let listener = listen("127.0.0.1:0").expect("a port");
        // SAFETY: all zeroes is a valid value.
        let mut info: libc::tcp_info = unsafe { mem::zeroed() };
        let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
        let (socket, option, to) = (listener.as_raw_fd(), libc::TCP_INFO, &raw mut info);
        // SAFETY: the buffer has the size that is passed.
        let result = unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, option, to.cast(), &raw mut size) };
        let most: u32 =
            fs::read_to_string("/proc/sys/net/core/somaxconn").expect("it is there").trim().parse().expect("a number");
        // Of a listening socket, this is the length of the queue.
        assert_eq!((result, info.tcpi_sacked), (0, most.min(4096)));
    }
}
