//! Attacks on the monitor's HTTP server.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{
    Scene,
    attacker::Attacker,
    monitor::{Monitor, Watched, get},
    programs,
};

/// How often and how many times an honest scraper sends a request.
const INTERVAL: Duration = Duration::from_millis(100);
const SCRAPES: u32 = 50;
/// Generous, because other tests may run on the same machine. Prometheus waits 10 s.
const SLOWEST: Duration = Duration::from_secs(3);

/// A scraper that reuses its connection, as Prometheus does, and reconnects if the server has closed it.
struct Scraper<'a> {
    address: &'a str,
    stream: Option<BufReader<TcpStream>>,
}

impl Scraper<'_> {
    /// Scrapes once, and returns the length of the body.
    fn scrape(&mut self) -> usize {
        let reused = self.stream.is_some();
        match self.request() {
            Ok(length) => length,
            Err(_) if reused => {
                self.stream = None;
                self.request().expect("a new connection is answered")
            }
            Err(error) => panic!("a new connection is not answered: {error}"),
        }
    }

    fn request(&mut self) -> std::io::Result<usize> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(self.address)?),
        };
        stream.get_ref().set_read_timeout(Some(Duration::from_secs(20)))?;
        let stream = self.stream.insert(stream);
        stream.get_mut().write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        Ok(length)
    }
}

/// `storm.c`, which attacks until it is dropped.
pub(super) struct Storm(Child);

impl Storm {
    /// Starts all its attacks on a server.
    pub fn start(attacker: &Attacker, address: &str) -> Self {
        let storm = attacker.path("storm");
        if !storm.exists() {
            let source = programs::sources().join("hostile/storm.c");
            programs::run(Command::new("cc").args(["-O1", "-Wall", "-o"]).args([&storm, &source]));
        }
        let port = address.rsplit(':').next().expect("a port");
        let mut attack = attacker.command(&storm).arg(port).stdin(Stdio::piped()).spawn().expect("the attack starts");
        let mut announced = String::new();
        BufReader::new(attack.stdout.take().expect("a pipe")).read_line(&mut announced).expect("a line");
        assert_eq!(announced, "attacking\n");
        Self(attack)
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Check that every scrape of another user succeeds within a time limit while a local user opens hundreds of connections: some
/// send requests without end, some do not read, some send nothing, some connect and close as fast as they can, from as many
/// loopback addresses as they like.
#[test]
fn scrapes_succeed_during_a_connection_flood() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let (monitor, mut pilot) = Monitor::with_pilot(&scene, "");
    pilot.does("work");
    let attack = Storm::start(&attacker, &monitor.address);

    let mut kept = Scraper { address: &monitor.address, stream: None };
    let mut times = Vec::new();
    let mut next = Instant::now();
    for _ in 0..SCRAPES {
        let started = Instant::now();
        let (head, body) = get(&monitor.address, "/metrics", "");
        times.push(started.elapsed());
        assert!(head.starts_with("HTTP/1.1 200") && body.contains("warpscope_processes"), "{head}");
        let started = Instant::now();
        assert!(kept.scrape() > 0);
        times.push(started.elapsed());
        next += INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    assert!(get(&monitor.address, "/healthz", "").0.starts_with("HTTP/1.1 200"));
    drop(attack);
    times.sort();
    let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!("scrapes under attack: {} answered, median {median:?}, slowest {slowest:?}", times.len());
    assert!(slowest < SLOWEST, "a scrape took {slowest:?}");

    // The monitor still counts, and has not grown.
    let mut worker = Watched::start(&scene);
    worker.does("work");
    let metrics = monitor.scrape();
    assert_eq!(metrics.sum("warpscope_launches_total", &[("pid", &worker.pid().to_string())]), 12);
    let resident = metrics.one("warpscope_resident_memory_bytes", &[]);
    eprintln!("memory of the monitor after the attack: {:.0} MiB", resident / f64::from(1 << 20));
    assert!(resident < 256e6, "{resident}");
    worker.end();
    pilot.end();
    monitor.stop();
}
