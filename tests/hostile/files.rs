//! Attacks by the files that programs map: libraries that are truncated while they are read, that claim gigabytes, or that
//! invent functions; and a program that maps code all the time. The monitor survives within its unit's 256 MiB, answers
//! scrapes and counts on; a recording ends and is exact.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, chown},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::bombs::{self, HUGE, Library};
use crate::support::{
    Running, Scene,
    attacker::{Attacker, id, with_sudo},
    folded::kernels_by_path,
    monitor::{Monitor, Watched, get},
    oracle::{Kind, Walk},
    program as test_program, programs, wait_until,
};

/// What `deploy/warpscope-monitor.service` allows the monitor.
const MOST_MEMORY: u64 = 256 << 20;
/// What a recording may use while it reads bombs. 512 MiB of debug information in one file are within its budget.
const MOST_RECORDING: u64 = 1 << 30;
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

/// Writes libraries that a loader takes and whose sections are bombs.
fn loadable_bombs(attacker: &Attacker) -> Vec<String> {
    let sound = Library::build(&attacker.path(""));
    let sparse = |section: &str| {
        let path = attacker.path(&format!("large{section}.so"));
        Library::read(&sound).enlarge(section, HUGE).write_with_hole(&path, HUGE)
    };
    let sections =
        [".symtab", ".dynsym", ".dynstr", ".strtab", ".eh_frame", ".debug_info", ".debug_abbrev", ".shstrtab"];
    let mut files: Vec<String> = sections.map(sparse).to_vec();
    // A header that lies in either direction, and one that tells the truth.
    for (name, claimed, zeros) in
        [("claimed", 64 << 30, 1 << 20), ("true", 512 << 20, 512 << 20), ("hidden", 1 << 20, 512 << 20)]
    {
        let path = attacker.path(&format!("compressed-{name}.so"));
        files.push(Library::read(&sound).compress(".debug_info", claimed, zeros).write(&path));
    }
    files
}

/// Sections and notes of 3 GiB in sparse files, and compressed DWARF that grows to 512 MiB: the monitor was killed for its memory.
#[test]
fn libraries_of_gigabytes() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let (monitor, pilot) = Monitor::with_pilot(&scene, "");
    let bombs = loadable_bombs(&attacker);
    let attack = Attack::start(&scene, &attacker, "call", &bombs);
    let sound = Library::read(&attacker.path("through.so"));
    let notes = sound.enlarge_notes(HUGE).write_with_hole(&attacker.path("notes.so"), HUGE);
    let second = Attack::start(&scene, &attacker, "map", &[notes]);
    let pid = attack.0.id().to_string();
    // Every library is read before the map is complete.
    let mut slowest = Duration::ZERO;
    wait_until("the attacker's allocations have names", || {
        slowest = slowest.max(scrape(&monitor));
        let (head, map) = get(&monitor.address, &format!("/map?pid={pid}"), "");
        head.starts_with("HTTP/1.1 200") && map.contains("allocate") && !map.contains(metrics::map::INCOMPLETE)
    });
    // One allocation of its own, and one through each library.
    assert_eq!(
        monitor.scrape().sum("warpscope_memory_allocations_total", &[("pid", &pid)]),
        bombs.len() as u64 + 1,
        "calls through these libraries"
    );
    counts_on(&scene, &monitor, "libraries of gigabytes", slowest);
    drop((attack, second));
    pilot.end();
    let log = monitor.stop();
    for refused in [
        "large.symtab.so: names were not read: its symbol table has 3.0 GiB",
        "large.debug_info.so: source lines are missing or incomplete: its debug information has 3.0 GiB",
        "compressed-claimed.so: source lines are missing or incomplete: its debug information has 64.0 GiB",
    ] {
        assert!(log.err().contains(refused), "`{refused}` is not in {}", log.err());
    }
}

/// The honest program that is recorded beside an attack: its command, and how often it launches which kernel by which path.
fn honest(attacker: &Attacker) -> (String, Walk) {
    let walk = Walk { processes: 1, threads: 2, streams: 1, devices: 1, launches: 500, graphs: false };
    fs::copy(test_program("truth"), attacker.path("truth")).expect("a copy");
    (format!("{} {}", attacker.path("truth").display(), walk.arguments()), walk)
}

/// A folded line as it is without `--lines`: without ` (FILE:LINE)` in its frames, and without the frame of `launch`, which is
/// inlined into every leaf of the honest program.
fn without_lines(line: &str) -> String {
    let frame = |frame: &str| match frame.split_once(" (") {
        Some((name, place)) => name.to_owned() + place.split_once(')').map_or("", |(_, rest)| rest),
        None => frame.to_owned(),
    };
    line.split(';').map(frame).filter(|frame| frame != "launch").collect::<Vec<_>>().join(";")
}

/// Records a script as the attacker who called sudo, with lines. `during` runs beside it. The honest program's kernels are
/// exact; the answer is the recorder's peak memory.
fn recorded(scene: &Scene, attacker: &Attacker, script: &str, walk: &Walk, during: impl FnOnce(&mut Running)) -> u64 {
    let mut record = scene.record_words("--sim --lines -q -F 997 -o x.folded", &["sh", "-c", script]);
    with_sudo(&mut record).current_dir(attacker.path("")).env("WARPSCOPE_SIM", "kernel_ns=3us");
    let mut running = Running::start(&mut record);
    during(&mut running);
    let mut most = 0;
    while running.is_running() {
        let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap_or_default();
        let kib = |line: &str| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        most = most.max(status.lines().find_map(kib).unwrap_or(0) << 10);
        std::thread::sleep(Duration::from_millis(2));
    }
    running.wait().exits(0);
    let folded = fs::read_to_string(attacker.path("x.folded")).expect("an output");
    let folded: String = folded.lines().map(|line| without_lines(line) + "\n").collect();
    let expected = walk.counts().into_iter().filter(|((kind, ..), _)| *kind == Kind::Kernel).collect();
    assert_eq!(kernels_by_path(&folded, 3), expected);
    assert!(folded.lines().any(|line| line.starts_with("files;") && line.contains(";allocate")), "{folded}");
    most
}

/// The same files in a recording, mapped by the recorded program itself.
#[test]
fn libraries_of_gigabytes_in_a_recording() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let bombs = loadable_bombs(&attacker);
    let (command, walk) = honest(&attacker);
    let script = format!("{} call {} < /dev/null && {command}", program(&attacker).display(), bombs.join(" "));
    let begun = Instant::now();
    let most = recorded(&scene, &attacker, &script, &walk, |_| {});
    eprintln!("libraries of gigabytes in a recording: peak memory {} MiB, {:?}", most >> 20, begun.elapsed());
    assert!(most > 0 && most < MOST_RECORDING, "{} MiB", most >> 20);
}

/// Libraries are truncated and written again from before the recorded program ends until the outputs are written: tables
/// and names are read meanwhile.
#[test]
fn libraries_that_are_truncated_in_a_recording() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let sound = Library::build(&attacker.path(""));
    let (command, walk) = honest(&attacker);
    let copy = |i: usize| {
        let path = attacker.path(&format!("cut-{i}.so"));
        fs::copy(&sound, &path).expect("a copy");
        give(&attacker, &path);
        path.to_str().expect("text").to_owned()
    };
    let files: Vec<String> = (0..20).map(copy).collect();
    let program = program(&attacker);
    let script = format!(
        "{} call {} < /dev/null && {command} && until [ -e go ]; do sleep 0.01; done",
        program.display(),
        files.join(" ")
    );
    let mut attack = None;
    let most = recorded(&scene, &attacker, &script, &walk, |running| {
        assert_eq!(running.stdout_line().trim_end(), "done");
        attack = Some(Attack::start(&scene, &attacker, "trim", &files));
        fs::write(attacker.path("go"), "").expect("a file");
    });
    drop(attack);
    eprintln!("libraries that are truncated in a recording: peak memory {} MiB", most >> 20);
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
