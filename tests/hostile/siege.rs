//! A siege: the attacks of an unprivileged user, in random order and side by side, against one monitor and one recording after
//! another. No file of root changes, memory stays bounded, every scrape is answered in time, honest programs are exact, and
//! nothing is left behind.
//!
//! `./test` runs it for twenty seconds. `WARPSCOPE_SIEGE_SECONDS` makes it longer, `WARPSCOPE_SIEGE_SEED` repeats an order.

use std::{
    any::Any,
    collections::BTreeMap,
    env, fs,
    hash::{BuildHasher, RandomState},
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{attaching, files, hoards, http, sessions};
use crate::{
    attach::Target,
    support::{
        Ended, Running, Scene,
        attacker::Attacker,
        monitor::{Monitor, Watched, get},
        program,
        programs::{self, WARPSCOPE},
        running::peak_memory,
        scene::number,
        wait_until,
    },
};

/// The limit for the monitor, and for each recording.
const MOST_MEMORY: u64 = 400 << 20;
/// The limit for a scrape.
const SLOWEST: Duration = Duration::from_secs(1);
/// The limit for the end of a recording, from the signal to the exit.
const LONGEST_END: Duration = Duration::from_secs(5);
/// Without `WARPSCOPE_SIEGE_SECONDS`.
const SECONDS: u64 = 20;

/// The name of an attack, and what starts it.
type Attack = (&'static str, fn(&Ground) -> Box<dyn Any>);

/// Attacks that run until they are dropped, beside whatever is checked.
const ATTACKS: [Attack; 7] = [
    ("libraries that are truncated", |ground| ground.files("cut", files::copies(&ground.attacker, "siege", 20))),
    ("libraries of gigabytes", |ground| ground.files("call", files::loadable_bombs(&ground.attacker))),
    ("libraries of invented functions", |ground| ground.files("map", files::invented_libraries(&ground.attacker, 10))),
    ("a storm of mappings", |ground| ground.files("storm", files::copies(&ground.attacker, "mapped", 1))),
    ("a storm of connections", |ground| Box::new(http::Storm::start(&ground.attacker, &ground.address))),
    ("a hoarder", |ground| Box::new(ground.hoarder())),
    ("a target that replaces files", |ground| Box::new(ground.swaps())),
];

/// Recordings of commands, with an attacker inside and an honest program beside it.
const INSIDERS: [(&str, fn()); 5] = [
    ("a flood of packets", || _ = sessions::record_beside(&Scene::new(), "flood", 4)),
    ("forged launches", || _ = sessions::record_beside(&Scene::new(), "forged", 4)),
    ("many places", hoards::many_places_of_an_engine_are_bounded),
    ("many engines", hoards::many_engines_are_bounded),
    ("stacks of others", hoards::stacks_of_other_processes_are_refused),
];

/// The scene of the siege.
struct Ground {
    scene: Scene,
    attacker: Attacker,
    /// The monitor's.
    address: String,
}

impl Ground {
    fn files(&self, mode: &str, files: Vec<String>) -> Box<dyn Any> {
        Box::new(files::Attack::start(&self.scene, &self.attacker, mode, &files))
    }

    /// A program that leaks 100,000 allocations.
    fn hoarder(&self) -> Watched {
        let copy = self.attacker.path("hoarder");
        if !copy.exists() {
            programs::copy(program("watched"), &copy);
        }
        let mut command = self.attacker.command_in(&self.scene, copy);
        let mut hoarder = Watched::of(command.env("LD_LIBRARY_PATH", programs::libraries()));
        hoarder.does("hoard 100000");
        hoarder
    }

    /// A program that replaces the files that root creates in it.
    fn swaps(&self) -> (attaching::Target, UnixStream) {
        let (target, service) = attaching::swaps(&self.attacker);
        let group = self.scene.group().expect("control groups").path().join("cgroup.procs");
        fs::write(group, target.pid().to_string()).expect("root may move it");
        (target, service)
    }

    /// Checks the monitor's numbers of a new program.
    fn watch(&self, monitor: &Monitor) {
        let mut worker = Watched::start(&self.scene);
        worker.does("work");
        let launches = monitor.scrape().sum("warpscope_launches_total", &[("pid", &worker.pid().to_string())]);
        assert_eq!(launches, 12, "launches of an honest program");
        worker.end();
    }

    /// Attaches to all processes of the scene, the attackers' too. Returns peak memory and how long the end took.
    fn attach(&self) -> (u64, Duration) {
        let honest = Target::start(&self.scene, 4);
        let pid = honest.pid().to_string();
        let group = self.scene.group().expect("control groups").path().display().to_string();
        let arguments = ["record", "-v", "-a", "--cgroup", &group, "-o", "a.wscope"];
        let mut recording = Running::start(&mut self.scene.warpscope(&arguments));
        recording.stderr_until(&format!("attached to process {pid}"));
        let result = self.ends(recording, |report| report["launches"].as_u64() >= Some(100), "a.wscope");
        let report = Ended::of(&mut self.scene.warpscope(&["report", "--json", "--pid", &pid, "a.wscope"])).exits(0);
        let report: serde_json::Value = serde_json::from_str(report.out()).expect("JSON");
        assert!(number(&report, "launches") >= 100);
        assert_eq!(number(&report, "matched"), number(&report, "launches"), "{}", report["ledger"]);
        honest.ends_well();
        fs::remove_file(self.scene.path("a.wscope")).expect("the recording");
        result
    }

    /// Ends a recording once its contents are as wanted. Returns peak memory and how long the end took.
    fn ends(&self, recording: Running, enough: impl Fn(&serde_json::Value) -> bool, name: &str) -> (u64, Duration) {
        let partial = format!("{name}.partial");
        wait_until("there are launches", || {
            let report = Ended::of(&mut self.scene.warpscope(&["report", "--json", &partial]));
            serde_json::from_str(report.out()).is_ok_and(|report| enough(&report))
        });
        recording.signal(libc::SIGINT);
        let ended = Instant::now();
        let (run, peak) = recording.wait_measured();
        run.exits(0);
        (peak.memory, ended.elapsed())
    }
}

/// Scrapes until it is stopped. Returns the number of scrapes, and the longest. Prints the slow ones.
fn scrape(address: &str, over: &AtomicBool) -> (u64, Duration) {
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let (head, body) = get(address, "/metrics", "");
        assert!(head.starts_with("HTTP/1.1 200") && body.contains("warpscope_processes"), "{head}");
        let took = started.elapsed();
        if took > SLOWEST / 2 {
            eprintln!("a scrape took {} ms", took.as_millis());
        }
        slowest = slowest.max(took);
        count += 1;
        thread::sleep(Duration::from_millis(200));
    }
    (count, slowest)
}

/// What identifies the state of root's files: inode, size, times, mode and owner of everything below `/etc` and `/root`, but
/// for cargo's directory, where a build beside this test writes.
fn roots_files() -> BTreeMap<PathBuf, [i64; 6]> {
    let cargo = env::var_os("CARGO_HOME").map_or_else(|| PathBuf::from("/root/.cargo"), PathBuf::from);
    fn walk(directory: &Path, left_out: &Path, found: &mut BTreeMap<PathBuf, [i64; 6]>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path() == left_out {
                continue;
            }
            let Ok(info) = fs::symlink_metadata(entry.path()) else { continue };
            let numbers = [info.ino() as i64, info.size() as i64, info.mtime(), info.mtime_nsec()];
            let [inode, size, time, part] = numbers;
            found.insert(entry.path(), [inode, size, time, part, info.mode().into(), info.uid().into()]);
            if info.is_dir() {
                walk(&entry.path(), left_out, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    for directory in ["/etc", "/root"] {
        walk(Path::new(directory), &cargo, &mut found);
    }
    found
}

/// Processes that run the binary under test, without those that read files for one of them.
fn own_processes() -> Vec<u32> {
    let pids = fs::read_dir("/proc").expect("proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let program = fs::canonicalize(WARPSCOPE).expect("the binary");
    let runs = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    let all: Vec<u32> = pids.filter(runs).collect();
    let parent = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    all.iter().copied().filter(|pid| parent(pid).is_none_or(|parent| !all.contains(&parent))).collect()
}

/// A number below a bound, from a state that changes.
fn draw(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % bound
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Check the monitor, recordings of running processes and recordings of commands while attacks run beside them, one to three at a
/// time, in random order.
#[test]
#[ignore = "takes both CPUs: ./test runs it after the others"]
fn a_siege_gains_nothing() {
    let length = Duration::from_secs(setting("WARPSCOPE_SIEGE_SECONDS").unwrap_or(SECONDS));
    let seed = setting("WARPSCOPE_SIEGE_SEED").unwrap_or_else(|| RandomState::new().hash_one("siege"));
    eprintln!("WARPSCOPE_SIEGE_SEED={seed}");
    let before = roots_files();
    let scene = Scene::new();
    let (monitor, pilot) = Monitor::with_pilot(&scene, "");
    let ground = Ground { scene, attacker: Attacker::new(), address: monitor.address.clone() };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let scraper = scope.spawn(|| scrape(&ground.address, &over));
        let _ends = OnDrop(&over);
        let (started, mut state, mut rounds) = (Instant::now(), seed, 0_u32);
        let (mut most, mut longest) = (0, Duration::ZERO);
        while started.elapsed() < length {
            let mut chosen: Vec<usize> =
                (0..1 + draw(&mut state, 3)).map(|_| draw(&mut state, ATTACKS.len())).collect();
            chosen.sort_unstable();
            chosen.dedup();
            let names: Vec<&str> = chosen.iter().map(|i| ATTACKS[*i].0).collect();
            let check = draw(&mut state, 2 + INSIDERS.len());
            eprintln!("{:4} s: {} during {}", started.elapsed().as_secs(), check_name(check), names.join(", "));
            let attacks: Vec<Box<dyn Any>> = chosen.iter().map(|i| ATTACKS[*i].1(&ground)).collect();
            match check {
                0 => ground.watch(&monitor),
                1 => {
                    let (memory, end) = ground.attach();
                    (most, longest) = (most.max(memory), longest.max(end));
                }
                insider => INSIDERS[insider - 2].1(),
            }
            drop(attacks);
            ground.attacker.secret_is_untouched();
            // The process that reads files for a recording ends a moment after it.
            wait_until("nothing is left behind", || own_processes() == [monitor.pid()]);
            rounds += 1;
        }
        over.store(true, Ordering::Relaxed);
        let (scrapes, slowest) = scraper.join().expect("every scrape succeeds");
        let memory = peak_memory(monitor.pid().cast_signed());
        eprintln!(
            "{rounds} rounds in {} s; {scrapes} scrapes, the slowest {} ms; peak memory: monitor {} MiB, recordings {} MiB; \
             longest end of a recording {:.1} s",
            started.elapsed().as_secs(),
            slowest.as_millis(),
            memory >> 20,
            most >> 20,
            longest.as_secs_f64()
        );
        assert!(slowest < SLOWEST, "{slowest:?}");
        assert!(memory < MOST_MEMORY && most < MOST_MEMORY, "{memory} {most}");
        assert!(longest < LONGEST_END, "{longest:?}");
    });
    let after = roots_files();
    let changed: Vec<_> = after.iter().filter(|(path, state)| before.get(*path) != Some(state)).collect();
    assert!(changed.is_empty(), "{changed:?}");
    pilot.end();
    monitor.stop();
}

fn check_name(check: usize) -> &'static str {
    match check {
        0 => "monitor",
        1 => "record -a",
        insider => INSIDERS[insider - 2].0,
    }
}

/// Stops the scraper also if a check fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
