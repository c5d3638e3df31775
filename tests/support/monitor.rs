//! A monitor under test, programs that it watches, and what it tells of them.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use super::{Ended, Running, Scene, wait_until};

/// `warpscope monitor` on a free port of its own.
pub struct Monitor {
    running: Running,
    pub address: String,
}

impl Monitor {
    /// Starts one, and waits until it serves. It watches the scene's control group, where there can be one: other tests
    /// that run at the same time use CUDA too.
    pub fn start(scene: &Scene, options: &str) -> Self {
        let group = scene.group().map(|group| format!(" --cgroup {}", group.path().display()));
        Self::of_machine(scene, &(options.to_owned() + &group.unwrap_or_default()))
    }

    /// Starts one that watches the whole machine, or what the options say.
    pub fn of_machine(scene: &Scene, options: &str) -> Self {
        let mut arguments = vec!["monitor", "--metrics-addr", "127.0.0.1:0"];
        if !options.contains("--display-interval") {
            arguments.extend(["--display-interval", "0"]);
        }
        arguments.extend(options.split_whitespace());
        Self::of(&mut scene.warpscope(&arguments))
    }

    /// Any command that runs one.
    pub fn of(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        let line = running.stderr_until("metrics on http://");
        let address = line.rsplit("http://").next().and_then(|rest| rest.split('/').next()).expect("an address");
        Self { running, address: address.to_owned() }
    }

    /// One that watches the simulator's libraries already: a program has loaded them, and stays for as long.
    pub fn with_pilot(scene: &Scene, options: &str) -> (Self, Watched) {
        let monitor = Self::start(scene, options);
        let pilot = monitor.pilot(scene);
        (monitor, pilot)
    }

    /// A program that has loaded the simulator's libraries, so that they are watched.
    pub fn pilot(&self, scene: &Scene) -> Watched {
        let mut pilot = Watched::start(scene);
        let pid = pilot.pid().to_string();
        wait_until("the monitor has seen the pilot", || {
            pilot.does("launch 1");
            pilot.does("leak 1");
            pilot.does("free");
            self.scrape().any(&[("pid", &pid)])
        });
        pilot
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.running.pid().cast_unsigned()
    }

    /// What it tells now.
    pub fn scrape(&self) -> Metrics {
        Metrics::parse(&get(&self.address, "/metrics", "").1)
    }

    /// Ends it as a service manager would.
    pub fn stop(self) -> Ended {
        self.running.signal(libc::SIGTERM);
        self.running.wait().exits(0)
    }
}

/// Asks a server; the head and the body of the answer.
pub fn get(address: &str, path: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")
        .expect("the server takes requests");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head.to_owned(), body.to_owned())
}

/// The numbers of a scrape.
pub struct Metrics(Vec<Sample>);

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Reads the text of a scrape.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(sample).collect())
    }

    /// There is a number with these labels.
    pub fn any(&self, labels: &[(&str, &str)]) -> bool {
        self.0.iter().any(|sample| sample.has(labels))
    }

    /// There is a number of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|sample| sample.name == name)
    }

    /// The sum of all numbers of this name with these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let found = self.0.iter().filter(|sample| sample.name == name && sample.has(labels));
        found.map(|sample| sample.value as u64).sum()
    }

    /// The one number of this name with these labels.
    #[track_caller]
    pub fn one(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<f64> =
            self.0.iter().filter(|sample| sample.name == name && sample.has(labels)).map(|s| s.value).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        found[0]
    }

    /// The values that a label has where others have these.
    pub fn values(&self, name: &str, label: &str, labels: &[(&str, &str)]) -> Vec<(String, u64)> {
        let found = self.0.iter().filter(|sample| sample.name == name && sample.has(labels));
        found.filter_map(|s| Some((s.labels.get(label)?.clone(), s.value as u64))).collect()
    }
}

impl Sample {
    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(*name).is_some_and(|own| own == value))
    }
}

/// `name{label="value",...} 1`; values of these tests have no quotes and no backslashes in them.
fn sample(line: &str) -> Sample {
    let (left, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = left.split_once('{').unwrap_or((left, "}"));
    let labels = labels.strip_suffix('}').expect("labels end");
    let pair = |text: &str| {
        let (name, value) = text.split_once("=\"").expect("a label");
        (name.to_owned(), value.to_owned())
    };
    let labels = labels.strip_suffix('"').unwrap_or(labels);
    let labels = labels.split("\",").filter(|text| !text.is_empty()).map(pair).collect();
    Sample { name: name.to_owned(), labels, value: value.parse().expect("a number") }
}

/// `programs/watched`, which does what it is told.
pub struct Watched {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Watched {
    /// Starts one on the simulated GPU, and waits until it is ready.
    pub fn start(scene: &Scene) -> Self {
        Self::start_with(scene, "")
    }

    /// The same with a script for the simulator.
    pub fn start_with(scene: &Scene, script: &str) -> Self {
        let mut command = scene.bare_cuda("watched");
        if !script.is_empty() {
            command.env("WARPSCOPE_SIM", script);
        }
        Self::of(&mut command)
    }

    /// Any command that speaks as `watched` does.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let input = child.stdin.take();
        let mut watched = Self { child, input, output };
        watched.says("ready");
        watched
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to do something, and waits until it is done.
    #[track_caller]
    pub fn does(&mut self, what: &str) {
        self.begins(what);
        self.says("done");
    }

    /// Tells it to do something.
    pub fn begins(&mut self, what: &str) {
        writeln!(self.input.as_mut().expect("it listens"), "{what}").expect("it listens");
    }

    /// Waits for its next line.
    #[track_caller]
    pub fn says(&mut self, wanted: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it talks");
        assert_eq!(line.trim_end(), wanted);
    }

    /// Ends it in order.
    pub fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("it is our child").success());
    }

    /// Ends it by force.
    pub fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
