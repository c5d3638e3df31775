//! The server with well-behaved and misbehaving clients.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    time::{Duration, Instant},
};

use monitor::{
    http::{Response, Server},
    map::Map,
    openmetrics::Format,
    serve::{Source, answer},
};

struct Fake;

impl Source for Fake {
    fn metrics(&self, format: Format) -> Option<String> {
        Some(format!("{format:?}\n"))
    }

    fn health(&self) -> Result<(), String> {
        Err("the probes are gone".to_owned())
    }

    fn map(&self, pid: u32, user: u32) -> Result<Map, (u16, String)> {
        let map = Map { pid, user: format!("for user {user}"), ..Map::default() };
        if pid == 7 { Ok(map) } else { Err((404, "there is none".to_owned())) }
    }
}

fn start() -> Server {
    Server::start("127.0.0.1:0", Arc::new(|request| answer(request, &Fake))).expect("a server")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    stream
}

/// Sends `request` and returns everything received until the server closes.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8(answer).expect("text")
}

fn get(address: SocketAddr, path: &str, more: &str) -> String {
    exchange(address, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n").as_bytes())
}

/// Check every path and the format negotiation.
#[test]
fn every_path_is_served() {
    let server = start();
    let plain = get(server.address(), "/metrics", "");
    assert!(plain.starts_with("HTTP/1.1 200 OK\r\n") && plain.ends_with("\r\n\r\nPrometheus\n"), "{plain}");
    assert!(plain.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let open = get(server.address(), "/metrics?x", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(open.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
    assert!(open.ends_with("OpenMetrics\n"));
    let health = get(server.address(), "/healthz", "");
    assert!(health.starts_with("HTTP/1.1 503 ") && health.ends_with("the probes are gone\n"));
    // SAFETY: takes nothing, and cannot fail.
    let ours = unsafe { libc::geteuid() };
    let map = get(server.address(), "/map?pid=7", "");
    assert!(map.contains("text/plain") && map.contains(&format!("(for user {ours}), pid 7: 0 live")), "{map}");
    let map = get(server.address(), "/map?pid=7&format=json", "");
    assert!(map.contains("Content-Type: application/json\r\n") && map.contains("\"live_bytes\":0"), "{map}");
    assert!(get(server.address(), "/map?pid=7&format=xml", "").starts_with("HTTP/1.1 400 "));
    assert!(get(server.address(), "/map?pid=8", "").starts_with("HTTP/1.1 404 "));
    assert!(get(server.address(), "/map?pid=x", "").starts_with("HTTP/1.1 400 "));
    assert!(get(server.address(), "/", "").contains("<a href=\"/metrics\">"));
    assert!(get(server.address(), "/etc/passwd", "").starts_with("HTTP/1.1 404 "));
    let refused =
        exchange(server.address(), b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
    assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("\r\nAllow: GET, HEAD\r\n"));
    let head = exchange(server.address(), b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.contains("Content-Length: 11\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

/// Check that pipelined requests are answered in order.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = start();
    let mut requests = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(500);
    requests.push_str("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answers = exchange(server.address(), requests.as_bytes());
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 501);
    assert!(answers.ends_with("</html>\n"));
}

/// Check that a connection can be reused, as Prometheus does.
#[test]
fn connections_are_reused() {
    let server = start();
    let mut stream = connect(server.address());
    for _ in 0..3 {
        stream.write_all(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            bytes.push(byte[0]);
        }
        assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
}

/// Check that a client which has closed its sending side still gets its answer.
#[test]
fn half_closed_connections_are_answered() {
    let server = start();
    let mut stream = connect(server.address());
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("Prometheus\n"));
}

/// Check that garbage gets a response or a close, and that the server keeps working.
#[test]
fn garbage_does_not_stop_the_server() {
    let server = start();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..200 {
        let bytes: Vec<u8> = (0..round * 7)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect();
        let mut stream = connect(server.address());
        let _ = stream.write_all(&bytes);
        let _ = stream.write_all(b"\r\n\r\n");
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    let endless = exchange(server.address(), &vec![b'x'; 64 * 1024]);
    assert!(endless.starts_with("HTTP/1.1 431 "), "{endless}");
    assert!(get(server.address(), "/metrics", "").starts_with("HTTP/1.1 200 "));
}

/// Check that a head sent byte by byte is answered.
#[test]
fn slow_requests_are_answered() {
    let server = start();
    let mut stream = connect(server.address());
    stream.set_nodelay(true).expect("no delay");
    for byte in b"GET /metrics HTTP/1.0\r\n\r\n" {
        stream.write_all(&[*byte]).expect("sent");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("Prometheus\n"));
}

/// Check that stalled clients (silent, partial request, or not reading) delay no one else.
#[test]
fn stalled_clients_delay_no_one() {
    let handler = |_: &_| Response::text(200, &"x".repeat(32 << 20));
    let server = Server::start("127.0.0.1:0", Arc::new(handler)).expect("a server");
    // Fewer than one peer may have: beyond that, a connection is refused while all others are new, and how new they are
    // depends on the machine.
    let hanging: Vec<TcpStream> = (0..240)
        .map(|place| {
            let mut stream = connect(server.address());
            let said: &[u8] = match place % 3 {
                0 => b"",
                1 => b"GET /metr",
                // At most twenty of these: a large answer that is not read is held until it times out.
                _ if place > 60 => b"GET",
                _ => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
            };
            let _ = stream.write_all(said);
            stream
        })
        .collect();
    // One after the other they would take 20 minutes to time out; the read times out after 20 seconds.
    let answer = get(server.address(), "/metrics", "");
    assert!(answer.ends_with("xxx"));
    drop(hanging);
}

/// Check that 200 concurrent scrapes are all answered, and that pending ones share an answer.
#[test]
fn concurrent_scrapes_share_answers() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = calls.clone();
    let handler = move |_: &_| {
        counting.fetch_add(1, Ordering::Relaxed);
        Response { shared: true, ..Response::text(200, &"y".repeat(100_000)) }
    };
    let server = Server::start("127.0.0.1:0", Arc::new(handler)).expect("a server");
    let address = server.address();
    let scrapers: Vec<_> = (0..200).map(|_| std::thread::spawn(move || get(address, "/metrics", ""))).collect();
    for scraper in scrapers {
        let answer = scraper.join().expect("a scraper");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&"y".repeat(100_000)));
    }
    assert!((1..200).contains(&calls.load(Ordering::Relaxed)), "{calls:?}");
}

/// Check that connections are accepted, and those beyond the limit closed, while an answer takes long: otherwise they fill the
/// queue that all clients share.
#[test]
fn connections_are_accepted_while_an_answer_is_produced() {
    let ((begun, begins), (go_on, goes_on)) = (channel(), channel());
    let goes_on = Mutex::new(goes_on);
    let handler = move |_: &_| {
        begun.send(()).expect("the test waits");
        goes_on.lock().expect("one request").recv().expect("the test goes on");
        Response::text(200, "late")
    };
    let server = Server::start("127.0.0.1:0", Arc::new(handler)).expect("a server");
    let address = server.address();
    let waiting = std::thread::spawn(move || get(address, "/", ""));
    begins.recv().expect("a request");
    let others: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    let closed = |stream: &TcpStream| libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = others.iter().map(closed).collect();
    // SAFETY: the pointer and the length are the vector's own.
    let count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 20_000) };
    assert!(count > 0, "no connection was closed");
    go_on.send(()).expect("the handler waits");
    assert!(waiting.join().expect("a client").ends_with("late"));
}

/// Check that a panicking handler only fails its own request.
#[test]
fn a_panic_fails_one_request() {
    let handler = |request: &monitor::http::Request| {
        assert_ne!(request.path, "/panic");
        Response::text(200, "fine")
    };
    let server = Server::start("127.0.0.1:0", Arc::new(handler)).expect("a server");
    assert!(get(server.address(), "/panic", "").starts_with("HTTP/1.1 500 "));
    assert!(get(server.address(), "/", "").ends_with("fine"));
}

/// Check the errors for unusable addresses, and that an address is free once the server is dropped.
#[test]
fn unusable_addresses_are_explained() {
    let server = start();
    let address = server.address().to_string();
    let start = |address: &str| Server::start(address, Arc::new(|_| Response::text(200, "")));
    let error = start(&address).err().expect("in use");
    assert!(error.starts_with(&format!("cannot listen on {address}: the address is in use")), "{error}");
    assert!(error.ends_with("choose another address with --metrics-addr"));
    let error = start("nonsense").err().expect("no address");
    assert!(error.starts_with("cannot listen on nonsense: expected ADDRESS:PORT"), "{error}");
    let error = start("192.0.2.1:9400").err().expect("not ours");
    assert!(error.contains("does not have that address"), "{error}");

    let begin = Instant::now();
    let idle = connect(server.address());
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(60), "the server waited for an idle connection");
    assert!(start(&address).is_ok());
    drop(idle);
}

/// Check that a web page whose name resolves to the loopback interface (DNS rebinding) gets nothing, whichever way it names
/// itself, and that the names of the interface work.
#[test]
fn requests_for_other_hosts_are_rejected() {
    let server = start();
    let answer = |target: &str, host: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(server.address(), text.as_bytes())
    };
    for host in ["evil.example", "evil.example:9400", "127.0.0.1.evil.example", "10.0.0.1"] {
        for path in ["/metrics", "/healthz", "/map?pid=7", "/"] {
            let answer = answer(path, host);
            assert!(answer.starts_with("HTTP/1.1 421 ") && answer.ends_with("use localhost\n"), "{host}: {answer}");
        }
    }
    assert!(answer("http://evil.example/metrics", "localhost").starts_with("HTTP/1.1 421 "));
    for host in ["localhost", "127.0.0.1:9400", "[::1]:1", "LOCALHOST:9400"] {
        assert!(answer("/metrics", host).ends_with("Prometheus\n"), "{host}");
    }
    // It has neither a name nor a browser.
    assert!(exchange(server.address(), b"GET /metrics HTTP/1.0\r\n\r\n").ends_with("Prometheus\n"));
}

/// Check that a server that listens for other machines answers to every name: it cannot know its own.
#[test]
fn a_public_server_has_any_name() {
    let server = Server::start("0.0.0.0:0", Arc::new(|request| answer(request, &Fake))).expect("a server");
    let address = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    let text = b"GET /metrics HTTP/1.1\r\nHost: gpu1.example\r\nConnection: close\r\n\r\n";
    assert!(exchange(address, text).ends_with("Prometheus\n"));
}

/// Check that no request can be hidden in another one: whatever the framing, one answer is sent, and what follows is not read.
#[test]
fn requests_are_not_smuggled() {
    let server = start();
    let hidden = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let length = hidden.len();
    for fields in [
        format!("Content-Length: {length}\r\n"),
        "Transfer-Encoding: chunked\r\n".to_owned(),
        "Transfer-Encoding:\r\n".to_owned(),
        "Transfer-Encoding: identity\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "X: a\r\n Content-Length: 5\r\n".to_owned(),
        "X: a\nTransfer-Encoding: chunked\r\n".to_owned(),
        "X: a\rContent-Length: 5\r\n".to_owned(),
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: 0, {length}\r\n"),
        format!("Content-Length: +{length}\r\n"),
        format!("Content-Length: 0x{length:x}\r\n"),
        "Content-Length:\r\n".to_owned(),
        "Content-Length: -0\r\n".to_owned(),
        "Host: localhost\r\n".to_owned(),
    ] {
        for method in ["GET", "POST"] {
            let text = format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{hidden}");
            let answer = exchange(server.address(), text.as_bytes());
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{fields:?}: {answer}");
            assert!(answer.contains("\r\nConnection: close\r\n") && !answer.contains("probes"), "{fields:?}: {answer}");
        }
    }
}
