//! A monitor under test, programs that it watches, and its metrics.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use super::{Ended, Running, Scene, wait_until};

/// `warpscope monitor` on a free port.
pub struct Monitor {
    pub running: Running,
    pub address: String,
}

impl Monitor {
    /// Starts a monitor, and waits until it serves. It watches the scene's control group, if possible, because other tests that
    /// run at the same time use CUDA too.
    pub fn start(scene: &Scene, options: &str) -> Self {
        let group = scene.group().map(|group| format!(" --cgroup {}", group.path().display()));
        Self::of_machine(scene, &(options.to_owned() + &group.unwrap_or_default()))
    }

    /// Starts a monitor that watches the whole machine, or what the options say.
    pub fn of_machine(scene: &Scene, options: &str) -> Self {
        let mut arguments = vec!["monitor", "--metrics-addr", "127.0.0.1:0"];
        if !options.contains("--display-interval") {
            arguments.extend(["--display-interval", "0"]);
        }
        arguments.extend(options.split_whitespace());
        Self::of(&mut scene.warpscope(&arguments))
    }

    /// Starts any command that runs a monitor.
    pub fn of(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        let line = running.stderr_until("metrics on http://");
        let address = line.rsplit("http://").next().and_then(|rest| rest.split('/').next()).expect("an address");
        Self { running, address: address.to_owned() }
    }

    /// Starts a monitor that already watches the simulator's libraries, because a running program has loaded them.
    pub fn with_pilot(scene: &Scene, options: &str) -> (Self, Watched) {
        let monitor = Self::start(scene, options);
        let pilot = monitor.pilot(scene);
        (monitor, pilot)
    }

    /// Starts a program that has loaded the simulator's libraries, and waits until they are watched.
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

    /// The monitor's pid.
    pub fn pid(&self) -> u32 {
        self.running.pid().cast_unsigned()
    }

    /// The niceness of the monitor's thread of this name.
    pub fn niceness(&self, name: &str) -> i64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the monitor runs");
        let mut stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let stat = stats.find(|stat| stat.contains(&format!("({name})"))).expect(name);
        // The 19th field; the name ends the second.
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        fields.split(' ').nth(16).and_then(|niceness| niceness.parse().ok()).expect("a number")
    }

    /// Scrapes the metrics.
    pub fn scrape(&self) -> Metrics {
        Metrics::parse(&get(&self.address, "/metrics", "").1)
    }

    /// Stops the monitor as a service manager would.
    pub fn stop(self) -> Ended {
        self.running.signal(libc::SIGTERM);
        self.running.wait().exits(0)
    }
}

/// Requests a text from a server, and returns the head and the body of the response.
pub fn get(address: &str, path: &str, accept: &str) -> (String, String) {
    let (head, body) = request(address, &format!("GET {path}"), &format!("Accept: {accept}"));
    (head, String::from_utf8(body).expect("text"))
}

/// Sends a request with one more header field to a server, and returns the head and the body of the response.
pub fn request(address: &str, what: &str, field: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    write!(stream, "{what} HTTP/1.1\r\nHost: {address}\r\n{field}\r\nConnection: close\r\n\r\n")
        .expect("the server accepts requests");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("the server answers");
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a response has a head");
    let body = response.split_off(end + 4);
    (String::from_utf8(response).expect("text"), body)
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

    /// Whether a metric has these labels.
    pub fn any(&self, labels: &[(&str, &str)]) -> bool {
        self.0.iter().any(|sample| sample.has(labels))
    }

    /// Whether there is a metric of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|sample| sample.name == name)
    }

    /// The sum of all metrics of this name with these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let found = self.0.iter().filter(|sample| sample.name == name && sample.has(labels));
        found.map(|sample| sample.value as u64).sum()
    }

    /// The only metric of this name with these labels.
    #[track_caller]
    pub fn one(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<f64> =
            self.0.iter().filter(|sample| sample.name == name && sample.has(labels)).map(|s| s.value).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        found[0]
    }

    /// Launches of a process's kernels without a name.
    pub fn unknown_launches(&self, labels: &[(&str, &str)]) -> u64 {
        let kernels = self.values("warpscope_kernel_launches_total", "kernel", labels);
        kernels.iter().filter(|(kernel, _)| kernel.starts_with("[unknown kernel ")).map(|(_, launches)| launches).sum()
    }

    /// The values of a label, with the metric's values, where the other labels match.
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

/// Parses `name{label="value",...} 1`. Label values in these tests contain no quotes and no backslashes.
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

/// `programs/watched`, which executes commands from its input.
pub struct Watched {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Watched {
    /// Starts the program on the simulated GPU, and waits until it is ready.
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

    /// Starts any command with the same protocol as `watched`.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let input = child.stdin.take();
        let mut watched = Self { child, input, output };
        watched.says("ready");
        watched
    }

    /// Starts a program that maps a new file as code, which is no library.
    pub fn with_invalid_library(scene: &Scene, path: &Path) -> Self {
        fs::write(path, vec![b'x'; 8192]).expect("a file");
        let script = "import mmap,sys,time; f=open(sys.argv[1],'rb'); \
                      m=mmap.mmap(f.fileno(),4096,prot=mmap.PROT_READ|mmap.PROT_EXEC,flags=mmap.MAP_PRIVATE); \
                      print('ready',flush=True); sys.stdin.read()";
        Self::of(scene.bare("python3").args(["-c", script]).arg(path))
    }

    /// The program's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command, and waits until it is done.
    #[track_caller]
    pub fn does(&mut self, what: &str) {
        self.begins(what);
        self.says("done");
    }

    /// Sends a command.
    pub fn begins(&mut self, what: &str) {
        writeln!(self.input.as_mut().expect("an open pipe"), "{what}").expect("an open pipe");
    }

    /// Waits for the next line, which must be this one.
    #[track_caller]
    pub fn says(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), expected);
    }

    /// Closes its input, and waits for a successful exit.
    pub fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("it is our child").success());
    }

    /// Kills it.
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
