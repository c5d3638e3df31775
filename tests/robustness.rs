//! Thousands of processes, broken or hostile files, and a reader that cannot keep up: warpscope finishes in time, within its
//! limits, and reports what it missed.

mod hostile;

use std::{fs, time::Instant};

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

/// The number of samples whose stacks reach the outermost frame, and of all samples.
fn whole(report: &Value) -> (u64, u64) {
    (
        report["cpu_stack_ends"]["whole"].as_u64().unwrap_or(0),
        number(report, "cpu_samples") + number(report, "own_samples"),
    )
}

/// Check that, if warpscope is stopped when its command starts, stacks may be truncated until it knows the mappings, but not
/// after that.
#[test]
fn stacks_are_whole_after_a_late_start() {
    let scene = Scene::new();
    let run = Running::start(&mut scene.record("--sim -q -o x.jsonl", &format!("{} loop 2", program("behave"))));
    let children = format!("/proc/{0}/task/{0}/children", run.pid());
    while fs::read_to_string(&children).unwrap_or_default().is_empty() {
        std::hint::spin_loop();
    }
    run.signal(libc::SIGSTOP);
    // The delay under test: the library waits 2 s for warpscope, and then there are more launches than stacks can be sent raw.
    std::thread::sleep(std::time::Duration::from_millis(2300));
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

/// Check 10,000 short processes in sequence: all are seen, nothing is lost, all stacks are whole, and warpscope needs hardly more
/// memory than for 1,000.
#[test]
fn ten_thousand_processes_are_recorded() {
    for mode in ["--cpu-only", "--sim"] {
        let record = |count: u64| {
            let scene = Scene::new();
            let command = format!("{} turn {count} {}", native("many"), native("tiny"));
            let begin = Instant::now();
            let (run, peak) =
                Running::start(&mut scene.record(&format!("{mode} -q -F 997 -o x.wscope"), &command)).wait_measured();
            let took = begin.elapsed().as_secs_f64();
            run.exits(0);
            let report = scene.report("x.wscope");
            println!(
                "{mode} {count}: {took:.1} s, {peak:?}, {} samples, {}",
                whole(&report).1,
                report["cpu_stack_ends"]
            );
            assert_eq!(lost(&report), 0, "{mode}: {}", report["lost"]);
            // Each process, including the parent, is seen as forked and as exec'ed.
            assert_eq!((number(&report, "processes"), number(&report, "images")), (count + 1, 2 * count + 2));
            let (whole, samples) = whole(&report);
            // A few samples are taken between an exec and the moment when its files are known.
            assert!(whole + 5 >= samples, "{mode}: {}", report["cpu_stack_ends"]);
            peak
        };
        let (few, many) = (record(1_000), record(10_000));
        assert!(many.memory < few.memory + (24 << 20), "{mode}: {few:?}, then {many:?}");
        assert!(many.descriptors <= few.descriptors + 2, "{mode}: {few:?}, then {many:?}");
    }
}

/// Check 200 processes at once, a process that execs itself 300 times, and 5,000 threads that exit at once.
#[test]
fn parallel_processes_exec_chains_and_threads_are_recorded() {
    for (way, count, processes, images) in [("once", 200, 201, 402), ("chain", 300, 1, 303), ("thread", 5_000, 1, 3)] {
        let scene = Scene::new();
        let command = format!("{} {way} {count} {}", native("many"), native("nothing"));
        let (run, peak) = Running::start(&mut scene.record("--sim -q -F 997 -o x.wscope", &command)).wait_measured();
        run.exits(0);
        let report = scene.report("x.wscope");
        println!("{way} {count}: {peak:?}, {}", report["cpu_stack_ends"]);
        assert_eq!(lost(&report), 0, "{way}: {}", report["lost"]);
        assert_eq!((number(&report, "processes"), number(&report, "images")), (processes, images), "{way}");
    }
}

/// Check that files that are not valid libraries, mapped as code several times each, are harmless, and that the rest of the
/// program is recorded.
#[test]
fn hostile_files_are_harmless() {
    let scene = Scene::new();
    let files = hostile::write(&scene.path("files"));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let maps = native("maps");
    let command = [&[maps.as_str(), "map", "3"], &files[..]].concat();
    let options = "--cpu-only -q -F 997 -o x.wscope -o x.folded -o x.jsonl -o x.svg -o x.json";
    let (run, peak) = Running::start(&mut scene.record_words(options, &command)).wait_measured();
    run.exits(0);
    let report = scene.report("x.wscope");
    println!("{} files: {peak:?}, {}", files.len(), report["cpu_stack_ends"]);
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    // One of the files has as much frame information as the limit allows.
    assert!(peak.memory < 512 << 20, "{peak:?}");
    assert!(whole(&report).0 > 0 && whole(&report).0 == whole(&report).1, "{}", report["cpu_stack_ends"]);
}

/// Check that a FIFO without a writer in the place of a deleted library does not block warpscope, and that unwind tables of other
/// files are built.
#[test]
fn fifo_in_place_of_a_library_does_not_block() {
    let scene = Scene::new();
    fs::copy(native("libplugin.so"), scene.path("x.so")).expect("a copy");
    let command = format!("{} replace 1 x.so; {} busy 0.3", native("maps"), native("cpp"));
    Ended::of(&mut scene.record_words("--sim --cpu-only -q -F 997 -o x.wscope", &["sh", "-c", &command])).exits(0);
    let (whole, samples) = whole(&scene.report("x.wscope"));
    assert!(samples > 5 && whole * 100 >= samples * 98, "{whole} of {samples}");
}

/// Check that 20,000 mappings in one process, far more than its stacks are walked with, are recorded in time, and that missed
/// ones are counted.
#[test]
fn thousands_of_mappings_are_bounded() {
    let scene = Scene::new();
    let command = format!("{} map 20000 {}", native("maps"), native("libplugin.so"));
    let (run, peak) = Running::start(&mut scene.record("--cpu-only -q -F 997 -o x.wscope", &command)).wait_measured();
    run.exits(0);
    let report = scene.report("x.wscope");
    println!("{peak:?}, {}", report["lost"]);
    assert_eq!(lost(&report), number(&report["lost"], "mappings"), "{}", report["lost"]);
    assert!(peak.memory < 256 << 20, "{peak:?}");
}

/// Check samples of deep stacks on 8 threads at the highest frequency.
#[test]
fn the_highest_sampling_rate_loses_nothing() {
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

/// Check that, if warpscope is stopped while the program keeps launching, the ring overflows and the ledger counts every lost
/// launch.
#[test]
fn ring_overflows_are_counted() {
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
