//! Recordings of processes that already run: `record -p`. They must be exact, and leave nothing behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    hash::{BuildHasher, RandomState},
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    jsonl::Events,
    oracle::Kind,
    program,
    programs::WARPSCOPE,
    scene::{lost, number},
    wait_until,
};

/// `programs/attached.c`: threads that launch and check their results until their input ends.
pub(crate) struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Target {
    pub fn start(scene: &Scene, threads: u32) -> Self {
        Self::of(scene.bare_cuda("attached").arg(threads.to_string()))
    }

    fn of(command: &mut Command) -> Self {
        Self::with(command, "kernel_ns=1us")
    }

    fn with(command: &mut Command, script: &str) -> Self {
        let child = command.env("WARPSCOPE_SIM", script).stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.expect("the program starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { child, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `record -v OPTIONS -p PID`
    fn record(&self, scene: &Scene, options: &str) -> Command {
        let pid = self.pid().to_string();
        let mut arguments = vec!["record", "-v", "-p", &pid];
        arguments.extend(options.split_whitespace());
        scene.warpscope(&arguments)
    }

    /// Records until at least this many launches are in the recording, then stops as with Ctrl-C.
    fn record_launches(&self, scene: &Scene, options: &str, launches: u64) -> Ended {
        let run = self.recording(scene, options, launches);
        run.signal(libc::SIGINT);
        run.wait().exits(0)
    }

    /// Returns a recording that has at least this many launches.
    fn recording(&self, scene: &Scene, options: &str, launches: u64) -> Running {
        let mut run = Running::start(&mut self.record(scene, &format!("{options} -o x.wscope")));
        run.stderr_until("attached to process");
        wait_until("there are launches", || {
            let report = Ended::of(&mut scene.warpscope(&["report", "--json", "x.wscope.partial"]));
            let report: Option<Value> = serde_json::from_str(report.out()).ok();
            report.is_some_and(|report| report["launches"].as_u64().is_some_and(|count| count >= launches))
        });
        run
    }

    /// What recordings may not leave behind, by number: threads, open files, mappings of shared memory.
    fn possessions(&self) -> BTreeMap<&'static str, usize> {
        let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", self.pid())).expect("it runs").count();
        BTreeMap::from([
            ("threads", self.threads().len()),
            ("files", count("fd")),
            ("shared memory", self.shared_memory().len()),
        ])
    }

    /// The sizes of warpscope's shared memory in it.
    fn shared_memory(&self) -> Vec<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("it runs");
        let size = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        };
        maps.lines().filter(|line| line.contains("s ") && line.contains("warpscope")).filter_map(size).collect()
    }

    /// The names of its threads, except that of CUPTI, which starts when it is first needed, and stays.
    fn threads(&self) -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs").flatten();
        let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).ok();
        threads.filter_map(name).filter(|name| name != "cupti-worker\n").collect()
    }

    /// What each of its threads waits for in the kernel.
    fn system_calls(&self) -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs").flatten();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let of = |thread: PathBuf| ["comm", "wchan", "syscall"].map(|file| read(thread.join(file))).join(" ");
        threads.map(|thread| of(thread.path())).collect()
    }

    /// Waits until it has no more than before; a thread that has finished may still exist for a moment.
    fn has_only(&self, before: &BTreeMap<&'static str, usize>) {
        wait_until("nothing is left behind", || self.possessions() == *before);
    }

    /// Ends it; it has checked everything.
    pub fn ends_well(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its output");
        assert!(self.child.wait().expect("its end").success());
        assert!(rest.starts_with("launched "), "{rest}");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that every launch has its GPU work, and nothing was lost.
fn is_exact(report: &Value) {
    let numbers = ["sessions_cut_off", "sessions_left", "pending_launches", "unmatched_activities"];
    assert_eq!(numbers.map(|key| number(report, key)), [0; 4], "{}", report["ledger"]);
    assert_eq!((number(report, "matched"), lost(report)), (number(report, "launches"), 0), "{}", report["ledger"]);
}

/// A target that had a recording, so that libcupti, which stays, and its thread are there. Returns what it has.
fn visited(scene: &Scene, threads: u32) -> (Target, BTreeMap<&'static str, usize>) {
    let target = Target::start(scene, threads);
    target.record_launches(scene, "--gpu-only", 100);
    fs::remove_file(scene.path("x.wscope")).expect("the recording");
    let mut seen = target.possessions();
    wait_until("the sender has ended", || {
        let before = std::mem::replace(&mut seen, target.possessions());
        !target.threads().iter().any(|name| name.starts_with("warpscope")) && before == seen
    });
    assert_eq!(seen["shared memory"], 0);
    (target, seen)
}

/// Check that kernels to which CUPTI gives its own clock, because ours was set again, have their times: after their launches, and
/// within the recording.
#[test]
fn kernels_of_later_recordings_have_our_clock() {
    let scene = Scene::new();
    let target = Target::with(scene.bare_cuda("attached").arg("1"), "kernel_ns=1us,clock=spoils");
    for _ in 0..3 {
        target.record_launches(&scene, "--gpu-only -o x.jsonl", 200);
        is_exact(&scene.report("x.wscope"));
        let events = Events::read(&scene.read("x.jsonl"));
        for kernel in events.of("kernel") {
            let launch = events.launch_of(kernel);
            // Two readings of two clocks are compared.
            let after = (number(kernel, "ts_ns") + 1_000_000).saturating_sub(number(launch, "ts_ns"));
            assert!((1..60_000_000_000).contains(&after), "{kernel} {launch}");
        }
        fs::remove_file(scene.path("x.wscope")).expect("the recording");
    }
}

/// Check that a running program with 8 threads is recorded exactly: every kernel is matched with the stack that launched it,
/// CPU samples are taken, the program's results are unchanged, and the stop of its thread is printed.
#[test]
fn running_processes_are_recorded_exactly() {
    let scene = Scene::new();
    let target = Target::start(&scene, 8);
    let run = target.record_launches(&scene, "-F 499 -o x.jsonl", 5_000);
    assert!(run.err().contains("ms\n") && run.err().contains("matched 100 %"), "{}", run.err());
    let report = scene.report("x.wscope");
    is_exact(&report);
    assert!(number(&report, "cpu_samples") > 0);
    let counts = Events::read(&scene.read("x.jsonl")).counts("");
    let kernels: u64 = counts.values().sum();
    assert_eq!(kernels, number(&report, "launches"));
    let paths: Vec<_> = counts.keys().map(|(kind, device, path)| (*kind, *device, path.as_str())).collect();
    assert_eq!(paths, [(Kind::Kernel, 0, "worker>a>leaf0"), (Kind::Kernel, 0, "worker>b>leaf1")]);
    assert_eq!(report["notes"], serde_json::json!([]));
    target.ends_well();
}

/// Check that recordings are exact if launches are under way when they begin and when they end, and do not return soon.
#[test]
fn slow_launches_are_recorded_exactly() {
    let scene = Scene::new();
    let mut command = scene.bare_cuda("attached");
    let target = Target::with(command.arg("8"), "kernel_ns=1us,slow=cuLaunchKernel:30ms");
    for _ in 0..4 {
        target.record_launches(&scene, "--gpu-only", 20);
        is_exact(&scene.report("x.wscope"));
        fs::remove_file(scene.path("x.wscope")).expect("the recording");
    }
    target.ends_well();
}

/// Check that a program can be recorded again and again, also for too short a time to begin: each recording is exact, the
/// program's results are unchanged, and no thread, file or shared memory is left behind.
#[test]
fn recordings_come_and_go() {
    rounds(6);
}

/// The same for 1,000 rounds on 32 threads.
#[test]
#[ignore = "takes a quarter of an hour: run it by name with --ignored"]
fn a_thousand_recordings_come_and_go() {
    rounds(1000);
}

fn rounds(count: u32) {
    let scene = Scene::new();
    let (target, before) = visited(&scene, 32);
    for round in 0..count {
        let duration = ["0.01", "0.5", "0.2"][round as usize % 3];
        let options = format!("--gpu-only -d {duration} -o x.wscope");
        Ended::of(&mut target.record(&scene, &options)).exits(0);
        is_exact(&scene.report("x.wscope"));
        fs::remove_file(scene.path("x.wscope")).expect("the recording");
        target.has_only(&before);
    }
    target.record_launches(&scene, "--gpu-only", 100);
    is_exact(&scene.report("x.wscope"));
    target.has_only(&before);
    target.ends_well();
}

/// Check that a program is not harmed when warpscope is killed at a random moment: it runs on, its session ends by itself, and
/// it can be recorded again. Only an interrupted step of attaching may leave a file open, or the code of that step.
#[test]
fn killed_recordings_do_no_harm() {
    killed(6);
}

/// The same for 200 rounds.
#[test]
#[ignore = "takes many minutes: run it by name with --ignored"]
fn two_hundred_killed_recordings_do_no_harm() {
    killed(200);
}

/// The size of the code that a step of attaching maps.
const CODE: u64 = 8192;

fn killed(count: u64) {
    let scene = Scene::new();
    let (target, before) = visited(&scene, 32);
    for round in 0..count {
        let run = Running::start(&mut target.record(&scene, "--gpu-only -o x.wscope"));
        thread::sleep(Duration::from_micros(RandomState::new().hash_one(round) % 1_500_000));
        run.signal(libc::SIGKILL);
        run.wait().dies_of(libc::SIGKILL);
        // The unfinished recording, if there is one.
        for name in scene.files() {
            fs::remove_file(scene.path(&name)).expect("a recording");
        }
    }
    let begin = Instant::now();
    loop {
        let now = target.possessions();
        let left = target.shared_memory();
        if now["threads"] == before["threads"] && left.iter().all(|size| *size == CODE) && left.len() as u64 <= count {
            break;
        }
        let patience = Duration::from_secs(60);
        let calls = target.system_calls();
        assert!(begin.elapsed() < patience, "the last session has not ended: {now:?}, {left:?}, {calls:?}");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(target.possessions()["files"] <= before["files"] + count as usize);
    target.record_launches(&scene, "--gpu-only", 100);
    is_exact(&scene.report("x.wscope"));
    target.ends_well();
}

/// Check that a process that one warpscope records is not recorded by another, which says so.
#[test]
fn one_recording_at_a_time() {
    let scene = Scene::new();
    let target = Target::start(&scene, 2);
    let mut first = Running::start(&mut target.record(&scene, "--gpu-only -o first.wscope"));
    first.stderr_until("attached to process");
    let second = Ended::of(&mut target.record(&scene, "-d 0.1 -o second.wscope")).exits(0);
    assert!(second.err().contains("another warpscope is recording it"), "{}", second.err());
    first.signal(libc::SIGINT);
    first.wait().exits(0);
    is_exact(&scene.report("first.wscope"));
    target.ends_well();
}

/// Check that where the library cannot be loaded safely, CPU samples are taken, one sentence gives the reason, and the program
/// runs on.
#[test]
fn unsafe_processes_are_sampled_only() {
    let scene = Scene::new();
    let mut sandboxed = scene.bare_cuda("sandboxed");
    sandboxed.arg(program("attached")).arg("2");
    let target = Target::of(&mut sandboxed);
    let run = Running::start(&mut target.record(&scene, "-F 997 -o x.wscope"));
    // It sleeps most of the time.
    wait_until("it is sampled", || {
        let report = Ended::of(&mut scene.warpscope(&["report", "--json", "x.wscope.partial"]));
        let report: Option<Value> = serde_json::from_str(report.out()).ok();
        report.is_some_and(|report| report["cpu_samples"].as_u64().is_some_and(|count| count > 0))
    });
    run.signal(libc::SIGINT);
    let run = run.wait().exits(0);
    assert!(run.err().contains("GPU activity was not recorded: process"), "{}", run.err());
    assert!(run.err().contains("runs under seccomp"), "{}", run.err());
    assert!(run.err().contains("use --no-inject to count its launches"), "{}", run.err());
    target.ends_well();
}

/// Check that `--no-inject` loads nothing and counts every launch by call stack, of a command and of a running process, and that
/// one sentence says what is missing.
#[test]
fn launches_are_counted_without_injection() {
    let scene = Scene::new();
    let mut command = scene.record_words("--sim --no-inject -o x.wscope", &[&program("attached"), "2"]);
    let run = Ended::of(command.env("WARPSCOPE_SIM", "kernel_ns=1us").stdin(Stdio::null())).exits(0);
    assert!(run.err().contains("nothing was loaded into the program (--no-inject)"), "{}", run.err());
    let launched: u64 =
        run.out().lines().find_map(|line| line.strip_prefix("launched ")?.parse().ok()).expect("a count");
    let kernels = |report: &Value| {
        let events = report["events"].as_array().expect("events");
        let event = events.iter().find(|event| event["name"] == "kernel-launches").expect("the event");
        number(event, "count")
    };
    let report = scene.report("x.wscope");
    assert_eq!((kernels(&report), number(&report, "launches"), lost(&report)), (launched, 0, 0));
    fs::remove_file(scene.path("x.wscope")).expect("the recording");

    let target = Target::start(&scene, 2);
    let mapped = || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("it runs");
        maps.lines().filter_map(|line| Some(line[line.find('/')?..].to_owned())).collect::<BTreeSet<String>>()
    };
    let before = mapped();
    let run = Running::start(&mut target.record(&scene, "--no-inject -o x.wscope"));
    wait_until("there are launches", || {
        let report = Ended::of(&mut scene.warpscope(&["report", "--json", "x.wscope.partial"]));
        serde_json::from_str(report.out())
            .is_ok_and(|report: Value| report["events"].is_array() && kernels(&report) > 100)
    });
    assert_eq!(mapped(), before);
    run.signal(libc::SIGINT);
    run.wait().exits(0);
    target.ends_well();
}

/// Check that `--no-inject` loses no stack of a running process that launches at full speed: launches are counted when the unwind
/// tables of its files are ready.
#[test]
fn no_stack_is_lost_while_tables_are_compiled() {
    let scene = Scene::new();
    let (input, end) = std::io::pipe().expect("a pipe");
    let mut command = scene.bare_cuda("busy");
    command.arg(WARPSCOPE).stdin(input).env("WARPSCOPE_SIM", "kernel_ns=1us");
    let mut target = Running::start(&mut command);
    assert_eq!(target.stdout_line(), "ready");
    let pid = target.pid().to_string();
    Ended::of(&mut scene.warpscope(&["record", "--no-inject", "-p", &pid, "-d", "0.5", "-o", "x.wscope"])).exits(0);
    let report = scene.report("x.wscope");
    let launches = report["events"].as_array().expect("events").iter().find(|event| event["name"] == "kernel-launches");
    assert!(number(launches.expect("the event"), "count") > 0);
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    drop(end);
    target.wait().exits(0);
}

/// Check that a process without CUDA is only sampled, and that a process that does not exist is an error.
#[test]
fn processes_without_cuda_are_sampled_only() {
    let scene = Scene::new();
    let mut busy = Running::start(scene.bare("sh").args(["-c", "while :; do :; done"]));
    let pid = busy.pid().to_string();
    let run = Ended::of(&mut scene.warpscope(&["record", "-p", &pid, "-d", "1", "-o", "x.wscope"])).exits(0);
    let why = format!("note: GPU activity was not recorded: process {pid} has not loaded CUDA");
    for line in [&why, "no GPU work was recorded: see the notes above"] {
        assert!(run.err().contains(line), "`{line}` is not in: {}", run.err());
    }
    assert!(number(&scene.report("x.wscope"), "cpu_samples") > 0);
    assert!(busy.is_running());
    busy.signal(libc::SIGKILL);
    busy.wait();
    Ended::of(&mut scene.warpscope(&["record", "-p", "4194304"])).exits(1).says(&["there is no process 4194304"]);
}

/// Check that processes are selected by name and by CUDA, each with its own GPU activity, and that no match is an error.
#[test]
fn processes_are_selected_by_name() {
    let scene = Scene::new();
    let renamed = scene.path("selected");
    crate::support::programs::copy(program("attached"), &renamed);
    let start =
        || Target::of(scene.bare(&renamed).arg("2").env("LD_LIBRARY_PATH", crate::support::programs::libraries()));
    let (one, other) = (start(), start());
    let mut run = Running::start(&mut scene.warpscope(&["record", "-v", "-a", "--comm", "select?d", "-o", "x.wscope"]));
    run.stderr_until("attached to process");
    run.stderr_until("attached to process");
    run.signal(libc::SIGINT);
    run.wait().exits(0);
    let report = scene.report("x.wscope");
    is_exact(&report);
    assert_eq!(number(&report, "processes"), 2);
    one.ends_well();
    other.ends_well();
    let none = Ended::of(&mut scene.warpscope(&["record", "-a", "--comm", "no-such-name"])).exits(1);
    none.says(&["no running process meets the conditions"]);
}

/// Check that a process is recorded until it ends.
#[test]
fn recordings_end_with_the_process() {
    let scene = Scene::new();
    let target = Target::start(&scene, 2);
    let run = target.recording(&scene, "--gpu-only", 100);
    target.ends_well();
    run.wait().exits(0);
    is_exact(&scene.report("x.wscope"));
}
