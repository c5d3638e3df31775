//! The loop that serves all connections.

use std::{
    io::{ErrorKind, Write},
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    Request, Response,
    connection::{Connection, Flow},
};

/// The most connections at a time; others wait in the kernel, or take the place of one that only rests.
const MOST: usize = 64;
/// How long answers may still be read when the server stops.
const TO_FINISH: Duration = Duration::from_secs(1);
/// After an `accept` that failed, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What answers requests. It runs on the server's thread.
pub type Handler = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address`, such as `127.0.0.1:9400`, and answers there. The error is a sentence for the user.
    pub fn start(address: &str, handler: Handler) -> Result<Self, String> {
        let listener = listen(address)?;
        let failed = |error: std::io::Error| format!("cannot serve on {address}: {error}");
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        let serve = move || Loop { listener, woken, handler, connections: Vec::new(), pause: None }.run();
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Self { address: local, wake, thread: Some(thread) })
    }

    /// Where it listens; tells the port where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    /// Answers that are being sent are finished, within a second.
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
        .map_err(|_| format!("{address} is not an address to listen on: it should look like 127.0.0.1:9400"))?
        .collect();
    TcpListener::bind(&addresses[..]).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => format!(
            "cannot listen on {address}: another program does already (perhaps another warpscope); \
             stop it, or choose another address with --metrics-addr"
        ),
        ErrorKind::AddrNotAvailable => {
            format!("cannot listen on {address}: this machine does not have that address")
        }
        ErrorKind::PermissionDenied => {
            format!("cannot listen on {address}: not permitted; ports below 1024 need root")
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}

struct Loop {
    listener: TcpListener,
    woken: UnixStream,
    handler: Handler,
    connections: Vec<Connection>,
    /// No new connections until then.
    pause: Option<Instant>,
}

impl Loop {
    fn run(mut self) {
        let handler = self.handler.clone();
        let handler = move |request: &Request| {
            catch_unwind(AssertUnwindSafe(|| handler(request)))
                .unwrap_or_else(|_| Response::text(500, "warpscope failed to answer; its log says why\n"))
        };
        let mut stop: Option<Instant> = None;
        loop {
            let now = Instant::now();
            self.connections.retain(|connection| connection.until > now);
            if let Some(stop) = stop {
                self.connections.retain(Connection::wants_to_write);
                if self.connections.is_empty() || now >= stop {
                    return;
                }
            }
            self.pause = self.pause.filter(|until| *until > now);
            let ready = self.wait(stop);
            if stop.is_none() && ready[0] {
                stop = Some(Instant::now() + TO_FINISH);
            }
            let mut ready_connections = ready[2..].iter();
            self.connections.retain_mut(|connection| {
                let is_ready = ready_connections.next().copied().unwrap_or(false);
                !is_ready || connection.advance(&handler) == Flow::On
            });
            if ready[1] {
                self.accept();
            }
        }
    }

    /// Waits until something can be done: for the wish to stop, the listener, and each connection.
    fn wait(&self, stop: Option<Instant>) -> Vec<bool> {
        let listen = stop.is_none() && self.pause.is_none();
        let mut polled = vec![
            poll_for(if stop.is_none() { self.woken.as_raw_fd() } else { -1 }, libc::POLLIN),
            poll_for(if listen { self.listener.as_raw_fd() } else { -1 }, libc::POLLIN),
        ];
        polled.extend(self.connections.iter().map(|connection| {
            let events = if connection.wants_to_write() { libc::POLLOUT } else { libc::POLLIN };
            poll_for(connection.stream.as_raw_fd(), events)
        }));
        let first = self.connections.iter().map(|connection| connection.until).chain(stop).chain(self.pause).min();
        let timeout = first.map_or(-1, |until| {
            let left = until.saturating_duration_since(Instant::now());
            i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX)
        });
        // SAFETY: the pointer and the length are the vector's own.
        let count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        polled.iter().map(|fd| count > 0 && fd.revents != 0).collect()
    }

    fn accept(&mut self) {
        // A few at a time, so that those who wait for an answer get theirs.
        for _ in 0..16 {
            if self.connections.len() >= MOST && !self.make_room() {
                // The list is full of others; wait in the kernel for one to end.
                self.pause = Some(Instant::now() + PAUSE);
                return;
            }
            match self.listener.accept() {
                Ok((stream, _)) => self.connections.extend(Connection::new(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.pause = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }

    /// Closes the connection that has done nothing for the longest time, but nobody who is being answered. So whoever
    /// comes and asks at once is served, however many came before and hang.
    fn make_room(&mut self) -> bool {
        let candidates = self.connections.iter().enumerate().filter(|(_, connection)| !connection.wants_to_write());
        let least = candidates.min_by_key(|(_, connection)| connection.since);
        let Some((place, _)) = least else { return false };
        self.connections.remove(place);
        true
    }
}

fn poll_for(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}
