//! A real Prometheus scrapes the server: it parses the text, and its query results equal the snapshot's values.

mod support;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use monitor::{
    http::Server,
    map::Map,
    openmetrics::{Exposition, Format, Limits},
    serve::{Source, answer},
};

struct Machine {
    exposition: Mutex<Exposition>,
    formats: Mutex<Vec<Format>>,
}

impl Source for Machine {
    fn metrics(&self, format: Format) -> Option<String> {
        self.formats.lock().expect("formats").push(format);
        let mut exposition = self.exposition.lock().expect("exposition");
        Some(exposition.render(&support::machine(3), format, Duration::from_millis(1)))
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn map(&self, pid: u32, user: u32) -> Result<Map, (u16, String)> {
        let map = Map { pid, user: format!("for user {user}"), ..Map::default() };
        if pid == 7 { Ok(map) } else { Err((404, "there is none".to_owned())) }
    }
}

/// Killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the value of the only series that a query yields, if there is one yet.
fn query(address: &str, query: &str) -> Option<f64> {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let body: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
    let results = body["data"]["result"].as_array()?;
    let [result] = results.as_slice() else { return None };
    result["value"][1].as_str()?.parse().ok()
}

/// Check a scrape end to end.
#[test]
fn prometheus_scrapes_the_server() {
    let machine = Arc::new(Machine {
        exposition: Mutex::new(Exposition::new(Limits::default())),
        formats: Mutex::new(Vec::new()),
    });
    let source = machine.clone();
    let server = Server::start("127.0.0.1:0", Arc::new(move |request| answer(request, &*source))).expect("a server");

    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: warpscope\n  static_configs: [{{targets: ['{}']}}]\n",
        server.address()
    );
    std::fs::write(&config, text).expect("written");
    // The port was free a moment ago; if another process takes it, Prometheus exits and the test fails.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").to_string();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = child.expect("prometheus is missing: install Debian's prometheus");
    let _running = Running(child);

    let begin = Instant::now();
    while query(&free, "up{job=\"warpscope\"}") != Some(1.0) {
        assert!(begin.elapsed() < Duration::from_secs(60), "Prometheus did not scrape");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(machine.formats.lock().expect("formats").first(), Some(&Format::OpenMetrics));
    for (expression, value) in [
        ("warpscope_memory_live_bytes{pid=\"4711\",space=\"device\"}", ((10_u64 << 30) + (3 << 28)) as f64),
        ("warpscope_memory_suspect_bytes{site=\"train.py:42 cache_batch\"}", ((2_u64 << 30) + (3 << 28)) as f64),
        ("warpscope_launches_total{pid=\"4711\"}", 315_077.0),
        ("sum(warpscope_kernel_launches_total{pid=\"4711\"})", 315_077.0),
        ("warpscope_copied_bytes_total{direction=\"HtoD\"}", (3_u64 << 33) as f64),
        ("warpscope_copy_duration_seconds_count{direction=\"HtoD\"}", 300.0),
        ("warpscope_errors_total{code=\"cudaErrorMemoryAllocation\"}", 6.0),
        ("warpscope_device_power_watts", 412.5),
        // The hostile process is included too, with its name intact.
        ("count(warpscope_launches_total{comm=~\"a\\\"b.*\"})", 1.0),
    ] {
        assert_eq!(query(&free, expression), Some(value), "{expression}");
    }
    let text = machine.metrics(Format::OpenMetrics).expect("current numbers");
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(query(&free, "scrape_samples_scraped"), Some(samples as f64));
}
