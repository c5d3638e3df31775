//! Attacks by the files that programs map: libraries that are truncated while they are read, or that invent functions; and a
//! program that maps code all the time. The monitor survives within its unit's 256 MiB, answers scrapes and counts on.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, chown},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::bombs::{self, Library};
use crate::support::{
    Scene,
    attacker::{Attacker, id},
    monitor::{Monitor, Watched, get},
    programs, wait_until,
};

/// What `deploy/warpscope-monitor.service` allows the monitor.
const MOST_MEMORY: u64 = 256 << 20;
/// Wide: on a machine that runs other tests too, everything takes longer. Prometheus waits 10 s.
const SLOWEST: Duration = Duration::from_secs(1);

/// The share of a CPU that an attack may cost the monitor.
const MOST_CPU: f64 = 0.3;

/// An attack under way. Ends when it is dropped.
struct Attack(Child);

impl Attack {
    /// Starts `files.c` as the attacker, in the scene's control group, and waits until it has done its worst.
    fn start(scene: &Scene, attacker: &Attacker, mode: &str, files: &[String]) -> Self {
        let mut command = attacker.command_in(scene, program(attacker));
        command.env("LD_LIBRARY_PATH", programs::libraries()).arg(mode).args(files).stdin(Stdio::piped());
        let mut child = command.stderr(Stdio::inherit()).spawn().expect("the attack starts");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut said).expect("it talks");
        assert_eq!(said, "done\n", "{mode}");
        Self(child)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// `files.c`, compiled.
fn program(attacker: &Attacker) -> std::path::PathBuf {
    let program = attacker.path("files");
    if !program.exists() {
        let source = programs::sources().join("hostile/files.c");
        let libraries = format!("-L{}", programs::libraries().display());
        let flags = ["-O1", "-Wall", "-D_GNU_SOURCE", "-pthread", "-o"];
        programs::run(
            Command::new("cc").args(flags).args([&program, &source]).args([&libraries, "-lcudart", "-lcuda"]),
        );
    }
    program
}

/// The most memory that a process has had at a time.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// CPU time that a process has used.
fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|i| fields[*i].parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

/// How long one scrape takes.
fn scrape(monitor: &Monitor) -> Duration {
    let begun = Instant::now();
    let (head, _) = get(&monitor.address, "/metrics", "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    begun.elapsed()
}

/// Scrapes a few times; the slowest.
fn scrapes(monitor: &Monitor) -> Duration {
    (0..20).map(|_| scrape(monitor)).max().expect("some")
}

/// Insists that the monitor has survived within its bounds, and counts exactly what an honest program does.
fn counts_on(scene: &Scene, monitor: &Monitor, attack: &str, slowest: Duration) {
    let mut worker = Watched::start(scene);
    worker.does("work");
    let metrics = monitor.scrape();
    let pid = worker.pid().to_string();
    assert_eq!(metrics.sum("warpscope_launches_total", &[("pid", &pid)]), 12, "{attack}");
    let memory = peak(monitor.pid());
    eprintln!("{attack}: peak memory {} MiB, slowest scrape {} ms", memory >> 20, slowest.as_millis());
    assert!(memory < MOST_MEMORY, "{attack}: {} MiB", memory >> 20);
    assert!(slowest < SLOWEST, "{attack}: {slowest:?}");
    worker.end();
}

/// Insists that libraries which nobody has mapped before are watched soon, and then counted exactly.
fn watches_new_libraries(scene: &Scene, attacker: &Attacker, monitor: &Monitor) {
    // The attack has loaded the simulator's libraries: a copy is new.
    let copies = attacker.path("sim");
    programs::run(Command::new("cp").arg("-r").arg(programs::libraries()).arg(&copies));
    let mut command = scene.bare_cuda("watched");
    command.env("LD_LIBRARY_PATH", &copies);
    let mut late = Watched::of(&mut command);
    let pid = late.pid().to_string();
    wait_until("the library that came later is watched", || {
        late.does("launch 1");
        monitor.scrape().any(&[("pid", &pid)])
    });
    let before = monitor.scrape().sum("warpscope_launches_total", &[("pid", &pid)]);
    late.does("launch 1000");
    assert_eq!(monitor.scrape().sum("warpscope_launches_total", &[("pid", &pid)]), before + 1000);
    late.end();
}

/// Libraries are truncated and written again all the time, while the monitor reads them for names and stacks: it was killed by
/// SIGBUS.
#[test]
fn libraries_that_are_truncated() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let (monitor, pilot) = Monitor::with_pilot(&scene, "");
    let sound = Library::build(&attacker.path(""));
    let mut slowest = Duration::ZERO;
    for round in 0..6 {
        let copy = |i: usize| {
            let path = attacker.path(&format!("cut-{round}-{i}.so"));
            fs::copy(&sound, &path).expect("a copy");
            give(&attacker, &path);
            path.to_str().expect("text").to_owned()
        };
        let files: Vec<String> = (0..20).map(copy).collect();
        let attack = Attack::start(&scene, &attacker, "cut", &files);
        slowest = slowest.max(scrapes(&monitor));
        drop(attack);
    }
    counts_on(&scene, &monitor, "libraries that are truncated", slowest);
    pilot.end();
    monitor.stop();
}

/// 33,000 invented functions, then 30 libraries with 60,000 each: a library that comes later is watched all the same, and
/// memory stays within bounds.
#[test]
fn libraries_of_invented_functions() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let monitor = Monitor::start(&scene, "");
    let invented = bombs::symbols(&attacker.path(""), "cuZ", 33_000);
    let first = Library::read(&invented).write(&attacker.path("libcuda.so.7"));
    let first = Attack::start(&scene, &attacker, "map", &[first]);
    let second = Attack::start(&scene, &attacker, "map", &invented_libraries(&attacker, 30));
    let slowest = scrapes(&monitor);
    watches_new_libraries(&scene, &attacker, &monitor);
    counts_on(&scene, &monitor, "libraries of invented functions", slowest);
    drop((first, second));
    let log = monitor.stop();
    assert!(log.err().contains("are not watched: there are too many"), "{}", log.err());
}

/// A program maps code at fresh addresses all the time, which took a CPU of the monitor's; another loads libraries that take
/// long to read, which held up the monitor's main loop until records of other processes were lost.
#[test]
fn a_storm_of_mappings() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let (monitor, pilot) = Monitor::with_pilot(&scene, "");
    let sound = Library::build(&attacker.path(""));
    let libraries = invented_libraries(&attacker, 60);
    let storm = Attack::start(&scene, &attacker, "storm", &[sound.to_str().expect("text").to_owned()]);
    let (begun, before) = (Instant::now(), cpu(monitor.pid()));
    let loads = Attack::start(&scene, &attacker, "map", &libraries);
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(5) {
        slowest = slowest.max(scrape(&monitor));
        std::thread::sleep(Duration::from_millis(200));
    }
    let share = (cpu(monitor.pid()) - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    eprintln!("a storm of mappings: {:.1} % of a CPU", share * 100.0);
    assert!(share < MOST_CPU, "{share}");
    watches_new_libraries(&scene, &attacker, &monitor);
    counts_on(&scene, &monitor, "a storm of mappings", slowest);
    drop((storm, loads));
    pilot.end();
    monitor.stop();
}

/// Libraries of the attacker's with 60,000 invented functions each.
fn invented_libraries(attacker: &Attacker, count: usize) -> Vec<String> {
    let many = Library::read(&bombs::symbols(&attacker.path(""), "cudaQxx", 60_000));
    let copy = |i: usize| {
        let path = attacker.path(&format!("libcudart.so.{}", 100 + i));
        let written = many.clone().rename(b"cudaQxx", format!("cudaQ{i:02}").as_bytes()).write(&path);
        give(attacker, &path);
        written
    };
    (0..count).map(copy).collect()
}

/// Gives a file to the attacker.
fn give(attacker: &Attacker, path: &std::path::Path) {
    let number = |option: &str| id(option).parse().expect("an id is a number");
    chown(path, Some(number("-u")), Some(number("-g"))).expect("root may do that");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("root may do that");
    assert!(path.starts_with(attacker.path("")));
}
