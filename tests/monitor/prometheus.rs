//! Tests with a real Prometheus that scrapes, checks and answers queries.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{deploy::deployed, exact::WORK};
use crate::support::{
    Running, Scene,
    monitor::{Monitor, Watched, get},
    programs, wait_until,
};

/// A Prometheus that scrapes a monitor, and evaluates the deployed rules, five times a second.
struct Prometheus {
    running: Running,
    address: String,
}

impl Prometheus {
    fn start(scene: &Scene, monitor: &Monitor) -> Self {
        // A port that is free now; the server binds it at once.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
             rule_files: ['{}']\n\
             scrape_configs: [{{job_name: warpscope, static_configs: [{{targets: ['{}']}}]}}]\n",
            deployed("prometheus/alerts.yml").display(),
            monitor.address
        );
        fs::write(scene.path("prometheus.yml"), config).expect("a file");
        let mut command = scene.bare("prometheus");
        command
            .args(["--config.file", &scene.text("prometheus.yml"), "--storage.tsdb.path", &scene.text("data")])
            .args(["--web.listen-address", &free.to_string(), "--log.level", "warn"])
            .stdout(Stdio::null())
            .stderr(fs::File::create(scene.path("prometheus.log")).expect("a file"));
        let prometheus = Self { running: Running::start(&mut command), address: free.to_string() };
        wait_until("Prometheus listens", || TcpStream::connect(&prometheus.address).is_ok());
        wait_until("Prometheus is ready", || prometheus.request("/api/v1/query?query=up").is_some());
        wait_until("Prometheus has scraped", || prometheus.query("sum(up)") == Some(1));
        prometheus
    }

    /// Requests a path of its API; `None` while it is not ready.
    fn request(&self, path: &str) -> Option<Value> {
        let (head, body) = get(&self.address, path, "");
        let body = if head.contains("Transfer-Encoding: chunked") { join_chunks(&body)? } else { body };
        serde_json::from_str(&body).ok()
    }

    /// The result of a query.
    fn series(&self, expression: &str) -> Vec<Value> {
        let hex = |byte: u8| format!("%{byte:02x}");
        let encoded: String = expression.bytes().map(hex).collect();
        let answer = self.request(&format!("/api/v1/query?query={encoded}")).expect("an answer");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().expect("a list").clone()
    }

    /// The first number in the result of a query.
    fn query(&self, expression: &str) -> Option<u64> {
        self.series(expression).first()?["value"][1].as_str()?.parse().ok()
    }

    fn stop(self) {
        self.running.signal(libc::SIGTERM);
        self.running.wait();
    }
}

/// Joins the chunks of a body, each of which follows a line with its length.
fn join_chunks(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n")?;
        let (chunk, rest) = rest.split_at_checked(usize::from_str_radix(length, 16).ok()?)?;
        if chunk.is_empty() {
            return Some(body);
        }
        body.push_str(chunk);
        chunks = rest.strip_prefix("\r\n")?;
    }
}

/// Check that promtool accepts the metrics, that Prometheus scrapes them, and that its queries give the exact numbers.
#[test]
fn prometheus_queries_are_exact() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    let mut worker = Watched::start(&scene);
    worker.does("work");
    let pid = worker.pid().to_string();

    let (_, body) = get(&monitor.address, "/metrics", "");
    fs::write(scene.path("metrics"), &body).expect("a file");
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(fs::File::open(scene.path("metrics")).expect("a file"))
        .output()
        .expect("promtool is installed (package prometheus)");
    let warnings = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && warnings.is_empty(), "promtool: {warnings}");

    let prometheus = Prometheus::start(&scene, &monitor);
    wait_until("the worker's launches are scraped", || {
        prometheus.query(&format!("sum(warpscope_launches_total{{pid=\"{pid}\"}})")) == Some(12)
    });
    for (name, labels, expected) in WORK {
        let labels: String = labels.iter().map(|(label, value)| format!(",{label}=\"{value}\"")).collect();
        let expression = format!("sum({name}{{pid=\"{pid}\"{labels}}})");
        assert_eq!(prometheus.query(&expression), Some(*expected), "{expression}");
    }
    worker.does("leak 3");
    let leak = format!("sum(warpscope_memory_suspect_bytes{{pid=\"{pid}\",site=\"forget_to_free (watched.c:30)\"}})");
    wait_until("the leak is scraped", || prometheus.query(&leak) == Some(3 << 20));
    prometheus.stop();
    monitor.stop();
}

/// Check that every panel of the dashboard has data and every alert is evaluated, with the simulated GPU's programs and a fake
/// NVML.
#[test]
fn dashboard_panels_have_data_and_alerts_fire() {
    let scene = Scene::new();
    let fake = programs::sources().join("../crates/gpu_counters/tests/nvml.c");
    let library = scene.path("libnvidia-ml.so.1");
    programs::run(Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).args([&library, &fake]));
    let mut command = scene.warpscope(&["monitor", "--metrics-addr", "127.0.0.1:0", "--display-interval", "0"]);
    command.args(scene.group().map(|group| format!("--cgroup={}", group.path().display())));
    let monitor = Monitor::of(command.env("LD_LIBRARY_PATH", scene.path("")));
    let mut worker = monitor.pilot(&scene);
    let prometheus = Prometheus::start(&scene, &monitor);

    // Queries that give a result only when something has gone wrong, or for programs that replay graphs.
    let may_be_empty = |expression: &str| expression.ends_with("> 0") || expression.ends_with(" == 1");
    let text = fs::read_to_string(deployed("grafana/warpscope.json")).expect("the dashboard is there");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<String> = targets
        .map(|target| target["expr"].as_str().expect("a query"))
        .map(|text| {
            text.replace("$instance", ".*")
                .replace("$pid", ".*")
                .replace("$__rate_interval", "5s")
                .replace("$__range", "1m")
        })
        .collect();
    assert!(expressions.len() > 30);
    for expression in &expressions {
        wait_until(&format!("there is something for {expression}"), || {
            worker.does("work");
            worker.does("leak 1");
            !prometheus.series(expression).is_empty() || may_be_empty(expression)
        });
    }

    let rules = || {
        let answer = prometheus.request("/api/v1/rules").expect("an answer");
        let groups = answer["data"]["groups"].as_array().expect("groups").clone();
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect::<Vec<Value>>()
    };
    wait_until("every rule was evaluated", || rules().iter().all(|rule| rule["health"] == "ok"));
    // The workload runs out of memory, and the fake NVML reports Xids.
    for firing in ["GpuAllocationsFail", "GpuXid"] {
        wait_until(firing, || rules().iter().any(|rule| rule["name"] == firing && rule["state"] == "firing"));
    }
    prometheus.stop();
    worker.end();
    monitor.stop();
}
