//! Against a real Prometheus, which scrapes, checks and answers queries.

use std::{
    net::TcpListener,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::exact::WORK;
use crate::support::{
    Running, Scene,
    monitor::{Monitor, Watched, get},
    wait_until,
};

fn query(address: &str, expression: &str) -> Option<u64> {
    let hex = |byte: u8| format!("%{byte:02x}");
    let encoded: String = expression.bytes().map(hex).collect();
    let (_, body) = get(address, &format!("/api/v1/query?query={encoded}"), "");
    // An answer may come in chunks, each with its length.
    let json = &body[body.find('{')?..=body.rfind('}')?];
    let answer: Value = serde_json::from_str(json).ok()?;
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

/// Prometheus finds the text good, scrapes it, and its queries give the workload's numbers to the unit.
#[test]
fn scraped_and_queried() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    let mut worker = Watched::start(&scene);
    worker.does("work");
    let pid = worker.pid().to_string();

    let (_, body) = get(&monitor.address, "/metrics", "");
    std::fs::write(scene.path("metrics"), &body).expect("a file");
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(scene.path("metrics")).expect("a file"))
        .output()
        .expect("promtool is installed (package prometheus)");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.is_empty(), "promtool: {said}");

    // A port that is free now; the server takes it at once.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let config = format!(
        "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\nscrape_configs:\n- job_name: gpu\n  static_configs:\n  - targets: ['{}']\n",
        monitor.address
    );
    std::fs::write(scene.path("prometheus.yml"), config).expect("a file");
    let mut command = scene.bare("prometheus");
    command
        .args(["--config.file", &scene.text("prometheus.yml"), "--storage.tsdb.path", &scene.text("data")])
        .args(["--web.listen-address", &free.to_string(), "--log.level", "warn"])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(scene.path("prometheus.log")).expect("a file"));
    let prometheus = Running::start(&mut command);
    let address = free.to_string();
    wait_until("Prometheus listens", || std::net::TcpStream::connect(&address).is_ok());
    wait_until("Prometheus has scraped", || query(&address, "sum(up{job=\"gpu\"})") == Some(1));
    wait_until("the worker is in it", || {
        query(&address, &format!("sum(warpscope_launches_total{{pid=\"{pid}\"}})")) == Some(12)
    });
    for (name, labels, wanted) in WORK {
        let labels: String = labels.iter().map(|(label, value)| format!(",{label}=\"{value}\"")).collect();
        let expression = format!("sum({name}{{pid=\"{pid}\"{labels}}})");
        assert_eq!(query(&address, &expression), Some(*wanted), "{expression}");
    }
    worker.does("leak 3");
    let leak = format!("sum(warpscope_memory_suspect_bytes{{pid=\"{pid}\",site=\"forget_to_free (watched.c:30)\"}})");
    wait_until("the leak is there", || query(&address, &leak) == Some(3 << 20));
    prometheus.signal(libc::SIGTERM);
    prometheus.wait();
    monitor.stop();
}
