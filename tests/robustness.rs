//! Processes by the thousands, files that are broken or hostile, and a reader that cannot keep up: warpscope ends in time, within
//! its bounds, and says what it missed.

mod hostile;

use std::{fs, process::Command, time::Instant};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    jsonl::Events,
    natives::native,
    program,
    scene::{lost, number},
    truth::Truth,
    wait_until,
};

/// The most that warpscope had at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Footprint {
    /// In KiB.
    memory: u64,
    descriptors: usize,
}

/// Runs warpscope, watched all the time.
fn watched(command: &mut Command) -> (Ended, Footprint) {
    let mut running = Running::start(command);
    let mut most = Footprint::default();
    let process = format!("/proc/{}", running.pid());
    while running.is_running() {
        let status = fs::read_to_string(format!("{process}/status")).unwrap_or_default();
        let memory =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        most.memory = most.memory.max(memory.unwrap_or(0));
        most.descriptors = most.descriptors.max(fs::read_dir(format!("{process}/fd")).map_or(0, Iterator::count));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    (running.wait(), most)
}

/// Samples under stacks that reach the outermost frame, and all.
fn whole(report: &Value) -> (u64, u64) {
    (report["cpu_stack_ends"]["whole"].as_u64().unwrap_or(0), number(report, "cpu_samples"))
}

/// A reader that does not run when its command starts: stacks may be cut until it has learnt what is mapped, and none is
/// after that.
#[test]
fn the_reader_comes_late() {
    let scene = Scene::new();
    let run = Running::start(&mut scene.record("--sim -q -o x.jsonl", &format!("{} loop 2", program("behave"))));
    let children = format!("/proc/{0}/task/{0}/children", run.pid());
    while fs::read_to_string(&children).unwrap_or_default().is_empty() {
        std::hint::spin_loop();
    }
    run.signal(libc::SIGSTOP);
    // That is the delay: long enough for more launches than stacks can be sent raw.
    std::thread::sleep(std::time::Duration::from_millis(300));
    run.signal(libc::SIGCONT);
    run.wait().exits(0);
    let events = Events::read(&scene.read("x.jsonl"));
    let times: Vec<u64> = events.of("launch").map(|launch| number(launch, "ts_ns")).collect();
    let (first, last) = (times.iter().min().expect("launches"), times.iter().max().expect("launches"));
    let later = events.of("launch").filter(|launch| number(launch, "ts_ns") > first + (last - first) / 2);
    let cut = later.filter(|launch| {
        let frames = &events.stacks[&number(launch, "stack")];
        !frames.iter().any(|frame| frame == "main")
    });
    assert_eq!(cut.count(), 0);
}

/// 10,000 short processes in a row: all are seen, nothing is lost, stacks are whole to the last, and warpscope needs hardly more
/// than for 1,000.
#[test]
fn ten_thousand_processes() {
    for mode in ["--cpu-only", "--sim"] {
        let record = |count: u64| {
            let scene = Scene::new();
            let command = format!("{} turn {count} {}", native("many"), native("tiny"));
            let begin = Instant::now();
            let (run, most) = watched(&mut scene.record(&format!("{mode} -q -F 997 -o x.wscope"), &command));
            let took = begin.elapsed().as_secs_f64();
            run.exits(0);
            let report = scene.report("x.wscope");
            println!(
                "{mode} {count}: {took:.1} s, {most:?}, {} samples, {}",
                whole(&report).1,
                report["cpu_stack_ends"]
            );
            assert_eq!(lost(&report), 0, "{mode}: {}", report["lost"]);
            // Each as forked and as exec'ed; so is their parent.
            assert_eq!((number(&report, "processes"), number(&report, "images")), (count + 1, 2 * count + 2));
            let (whole, samples) = whole(&report);
            // A few are taken between an exec and the moment when its files are known.
            assert!(whole + 5 >= samples, "{mode}: {}", report["cpu_stack_ends"]);
            most
        };
        let (few, many) = (record(1_000), record(10_000));
        assert!(many.memory < few.memory + (24 << 10), "{mode}: {few:?}, then {many:?}");
        assert!(many.descriptors <= few.descriptors + 2, "{mode}: {few:?}, then {many:?}");
    }
}

/// 200 processes at once, a process that takes its own place 300 times, 5,000 threads that end at once.
#[test]
fn crowds_and_chains() {
    for (way, count, processes, images) in [("once", 200, 201, 402), ("chain", 300, 1, 303), ("thread", 5_000, 1, 3)] {
        let scene = Scene::new();
        let command = format!("{} {way} {count} {}", native("many"), native("nothing"));
        let (run, most) = watched(&mut scene.record("--sim -q -F 997 -o x.wscope", &command));
        run.exits(0);
        let report = scene.report("x.wscope");
        println!("{way} {count}: {most:?}, {}", report["cpu_stack_ends"]);
        assert_eq!(lost(&report), 0, "{way}: {}", report["lost"]);
        assert_eq!((number(&report, "processes"), number(&report, "images")), (processes, images), "{way}");
    }
}

/// Files that are no libraries, mapped as code, several times each: none of them harms, and what the program does besides is
/// recorded.
#[test]
fn hostile_files() {
    let scene = Scene::new();
    let files = hostile::write(&scene.path("files"));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let maps = native("maps");
    let command = [&[maps.as_str(), "map", "3"], &files[..]].concat();
    let options = "--cpu-only -q -F 997 -o x.wscope -o x.folded -o x.jsonl -o x.svg -o x.json";
    let (run, most) = watched(&mut scene.record_words(options, &command));
    run.exits(0);
    let report = scene.report("x.wscope");
    println!("{} files: {most:?}, {}", files.len(), report["cpu_stack_ends"]);
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    // One of them has as much frame information as is read at all.
    assert!(most.memory < 512 << 10, "{most:?}");
    assert!(whole(&report).0 > 0 && whole(&report).0 == whole(&report).1, "{}", report["cpu_stack_ends"]);
}

/// A library that is gone, with a FIFO in its place that nobody writes to: nobody waits for it, and tables of other files are made.
#[test]
fn a_fifo_in_a_librarys_place() {
    let scene = Scene::new();
    fs::copy(native("libplugin.so"), scene.path("x.so")).expect("a copy");
    let command = format!("{} replace 1 x.so; {} busy 0.3", native("maps"), native("cpp"));
    Ended::of(&mut scene.record_words("--sim --cpu-only -q -F 997 -o x.wscope", &["sh", "-c", &command])).exits(0);
    let (whole, samples) = whole(&scene.report("x.wscope"));
    assert!(samples > 5 && whole * 100 >= samples * 98, "{whole} of {samples}");
}

/// 20,000 mappings in one process, far more than its stacks are walked with: recorded in time, and what was missed is counted.
#[test]
fn thousands_of_mappings() {
    let scene = Scene::new();
    let command = format!("{} map 20000 {}", native("maps"), native("libplugin.so"));
    let (run, most) = watched(&mut scene.record("--cpu-only -q -F 997 -o x.wscope", &command));
    run.exits(0);
    let report = scene.report("x.wscope");
    println!("{most:?}, {}", report["lost"]);
    assert_eq!(lost(&report), number(&report["lost"], "mappings"), "{}", report["lost"]);
    assert!(most.memory < 256 << 10, "{most:?}");
}

/// As many samples as there can be, of deep stacks on 8 threads.
#[test]
fn a_storm_of_samples() {
    let scene = Scene::new();
    let command = format!("{} busy 1 threads", native("shapes"));
    Ended::of(&mut scene.record("--sim --cpu-only -q -F 9999 -o x.wscope", &command)).exits(0);
    let report = scene.report("x.wscope");
    let (whole, samples) = whole(&report);
    println!("{samples} samples, {}, {}", report["cpu_stack_ends"], report["lost"]);
    assert!(samples > 1_000, "{samples} samples");
    let cut = report["cpu_stack_ends"]["truncated"].as_u64().unwrap_or(0);
    assert!((whole + cut) * 1000 >= samples * 998, "{}", report["cpu_stack_ends"]);
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
}

/// A warpscope that is stopped while the program launches on: the ring runs over, and the ledger tells to the last launch what
/// did not fit.
#[test]
fn a_reader_that_stands_still() {
    let scene = Scene::new();
    let command = format!("{} 1 2 1 1 500000 --kernels", program("truth"));
    let script = format!("kernel_ns=100ns,truth={}", scene.text("truth"));
    let mut options = scene.record("--sim --gpu-only -v -o x.wscope", &command);
    let mut running = Running::start(options.env("WARPSCOPE_SIM", script));
    let child = running.stderr_until("recording process");
    let child = child.rsplit(' ').next().expect("a pid").to_owned();
    running.signal(libc::SIGSTOP);
    wait_until("the program has ended", || {
        let status = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        status.rsplit(')').next().is_some_and(|state| state.trim_start().starts_with('Z'))
    });
    running.signal(libc::SIGCONT);
    running.wait().exits(0);
    let report = scene.report("x.wscope");
    let truth = Truth::of(&scene, "truth");
    println!("{} launches, {}", number(&report, "launches"), report["lost"]);
    let missed = number(&report["lost"], "ring_launches");
    assert!(missed > 0, "{}", report["lost"]);
    assert_eq!(number(&report, "launches") + missed, truth.launched);
}
