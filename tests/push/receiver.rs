//! A receiver on this machine that behaves as it is asked to.

use std::{
    collections::VecDeque,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// What is done with one connection. When the list is over, everything is accepted.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// A status, headers and text.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The connection is closed when the request was read.
    Close,
    /// Success, with half of its contents.
    CloseMidBody,
    /// Nothing, as long as the client waits.
    Silent,
    /// One byte of a header after the other, as long as the client waits.
    Drip,
    /// Bytes that are no answer.
    Garbage,
    /// Success, and contents without end.
    Huge,
    /// Headers without end.
    HugeHeaders,
    /// From now on, requests with more uncompressed bytes are too large.
    Limit(usize),
    /// It is a proxy: connects to this address.
    Forward(String),
}

impl Behaviour {
    pub fn answer(status: u16, text: &str) -> Self {
        Self::Answer(status, vec![("Content-Type", "text/plain".to_owned())], text.to_owned())
    }
}

/// A request that was received.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its first line.
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// It was answered with success.
    pub accepted: bool,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Ends when it is dropped.
pub struct Receiver {
    port: u16,
    scheme: &'static str,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    behaviours: Mutex<VecDeque<Behaviour>>,
    limit: Mutex<Option<usize>>,
    requests: Mutex<Vec<Request>>,
    sent: AtomicU64,
    over: AtomicBool,
}

trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

impl Receiver {
    /// Listens on a free port.
    pub fn start(behaviours: Vec<Behaviour>) -> Self {
        Self::with("http", behaviours, |stream| Some(Box::new(stream)))
    }

    /// The same with TLS, as `localhost`.
    pub fn start_encrypted(behaviours: Vec<Behaviour>) -> Self {
        let file =
            |name| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/push").join(name)).expect(name);
        let certificate = CertificateDer::from_pem_slice(&file("server.pem")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(&file("server.key")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(vec![certificate], key))
            .map(Arc::new)
            .expect("a configuration");
        Self::with("https", behaviours, move |stream| {
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).ok()?, stream);
            // Fails if the client does not trust the certificate.
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock).ok()?;
            }
            Some(Box::new(stream))
        })
    }

    fn with(
        scheme: &'static str,
        behaviours: Vec<Behaviour>,
        accept: impl Fn(TcpStream) -> Option<Box<dyn Connection>> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State { behaviours: Mutex::new(behaviours.into()), ..State::default() });
        let shared = state.clone();
        let serve = move || {
            for stream in listener.incoming() {
                if shared.over.load(Ordering::SeqCst) {
                    break;
                }
                let Some((raw, stream)) = stream.ok().and_then(|stream| Some((stream.try_clone().ok()?, stream)))
                else {
                    continue;
                };
                let Some(mut stream) = accept(stream) else { continue };
                // A client may go away at any time.
                let _ = shared.serve(&mut *stream, &raw);
            }
        };
        Self { port, scheme, state, thread: Some(thread::spawn(serve)) }
    }

    /// Its address.
    pub fn url(&self) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}", self.scheme, self.port)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().expect("nobody panics").clone()
    }

    /// The bytes that a client took of an answer without end.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        // Wakes the thread.
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn serve(&self, stream: &mut dyn Connection, raw: &TcpStream) -> io::Result<()> {
        let Some(mut request) = read(stream)? else { return Ok(()) };
        let mut behaviour = self.behaviours.lock().expect("nobody panics").pop_front();
        if let Some(Behaviour::Limit(limit)) = behaviour {
            *self.limit.lock().expect("nobody panics") = Some(limit);
            behaviour = None;
        }
        let too_large = self.limit.lock().expect("nobody panics").is_some_and(|limit| {
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(&*request.body).read_to_end(&mut bytes).expect("gzip") > limit
        });
        let behaviour = match behaviour {
            Some(behaviour) => behaviour,
            None if too_large => Behaviour::answer(413, "too large"),
            None => Behaviour::Answer(200, vec![("Content-Type", "application/x-protobuf".to_owned())], String::new()),
        };
        request.accepted = matches!(behaviour, Behaviour::Answer(200, ..));
        self.requests.lock().expect("nobody panics").push(request);
        self.answer(stream, raw, behaviour)
    }

    fn answer(&self, stream: &mut dyn Connection, raw: &TcpStream, behaviour: Behaviour) -> io::Result<()> {
        match behaviour {
            Behaviour::Answer(status, headers, text) => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let length = text.len();
                write!(
                    stream,
                    "HTTP/1.1 {status} -\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{text}"
                )?;
            }
            Behaviour::Close | Behaviour::Limit(_) => {}
            Behaviour::CloseMidBody => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?,
            Behaviour::Silent => {
                // Until the client closes.
                while stream.read(&mut [0; 64])? > 0 {}
            }
            Behaviour::Drip => {
                write!(stream, "HTTP/1.1 200 OK\r\nX: ")?;
                loop {
                    stream.write_all(b"x")?;
                    stream.flush()?;
                    thread::sleep(std::time::Duration::from_millis(10));
                }
            }
            Behaviour::Garbage => stream.write_all(b"\x16\x03garbage\xff\r\n\r\n\r\n")?,
            Behaviour::Huge => {
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000000000\r\n\r\n")?;
                loop {
                    stream.write_all(&[b'x'; 65_536])?;
                    self.sent.fetch_add(65_536, Ordering::SeqCst);
                }
            }
            Behaviour::HugeHeaders => {
                write!(stream, "HTTP/1.1 200 OK\r\n")?;
                loop {
                    write!(stream, "X-Header: {}\r\n", "x".repeat(1_000))?;
                }
            }
            Behaviour::Forward(to) => {
                let other = TcpStream::connect(to)?;
                write!(stream, "HTTP/1.1 200 Connection established\r\n\r\n")?;
                relay(raw, &other)?;
            }
        }
        stream.flush()
    }
}

/// Passes bytes on in both directions, until one of the two closes.
fn relay(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    let pass = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    };
    thread::scope(|scope| {
        scope.spawn(|| pass(client, server));
        pass(server, client);
    });
    Ok(())
}

/// Reads a request with a known length. `None` if the client sends none.
fn read(stream: &mut dyn Connection) -> io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream);
    let mut line = || -> io::Result<String> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    let first = line()?;
    if first.is_empty() {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let text = line()?;
        let Some((name, value)) = text.split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut request = Request { line: first, headers, body: Vec::new(), accepted: false };
    let length = request.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    request.body = vec![0; length];
    reader.read_exact(&mut request.body)?;
    Ok(Some(request))
}
