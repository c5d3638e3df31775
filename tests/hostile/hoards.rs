//! Attacks that make warpscope keep more and more: memory, descriptors and probes are bounded, what is refused is counted, and
//! a recording ends in time. An honest program beside the attack is recorded exactly.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    attacker::with_sudo,
    folded::kernels_by_path,
    oracle::{Kind, Walk},
    program, programs,
    running::Footprint,
    scene::number,
    wait_until,
};

/// The limits of a recording under attack.
const MOST_MEMORY: u64 = 400 << 20;
const MOST_DESCRIPTORS: usize = 2048;
/// The longest end of a recording: from the end of the command to that of warpscope, with all outputs.
const LONGEST_END: Duration = Duration::from_secs(5);

/// What a recording under attack used, and what it reports.
struct Outcome {
    used: Footprint,
    report: Value,
}

impl Outcome {
    fn lost(&self, cause: &str) -> u64 {
        number(&self.report["lost"], cause)
    }
}

/// Records the ground-truth program beside an attack, which has begun before that program starts. Asserts the limits, and that
/// every kernel of the honest program is there, under its own path.
fn record_beside(scene: &Scene, attack: &str) -> Outcome {
    // Other users may have no access to the build directory.
    for name in ["truth", "hoard"] {
        programs::copy(program(name), scene.path(name));
    }
    for name in ["hoard.py", "cudart.py"] {
        programs::copy(programs::sources().join("programs").join(name), scene.path(name));
    }
    let walk = Walk { processes: 2, threads: 2, streams: 2, devices: 1, launches: 1_000, graphs: false };
    let script = format!(
        "{attack} & until [ -e ready ]; do sleep 0.01; done; ./truth {} && wait $! && touch ended",
        walk.arguments()
    );
    let mut command = scene.record_words("--sim --gpu-only -o x.wscope -o x.folded", &["sh", "-c", &script]);
    with_sudo(&mut command).env("WARPSCOPE_SIM", "kernel_ns=3us");
    let out = |name: &str| Stdio::from(fs::File::create(scene.path(name)).expect("a file"));
    let (ended, used) = Running::start(command.stdout(out("stdout")).stderr(out("stderr"))).wait_measured();
    let over = SystemTime::now();
    let errors = scene.read("stderr");
    assert_eq!(ended.status.code(), Some(0), "{errors}");
    // Beside what the honest program prints.
    assert!(scene.read("stdout").lines().any(|line| line == "done"), "{}", scene.read("stdout"));
    let since = fs::metadata(scene.path("ended")).and_then(|info| info.modified()).expect("a time");
    let took = over.duration_since(since).unwrap_or_default();
    eprintln!("{attack}: {} MiB, {} descriptors, ended in {took:?}", used.memory >> 20, used.descriptors);
    assert!((1..MOST_MEMORY).contains(&used.memory), "{} MiB: {errors}", used.memory >> 20);
    assert!(used.descriptors < MOST_DESCRIPTORS, "{} descriptors", used.descriptors);
    assert!(took < LONGEST_END, "the end took {took:?}: {errors}");
    eprintln!("{errors}");
    let folded = scene.read("x.folded");
    let own: String = folded.lines().filter(|line| line.contains("] truth:")).map(|line| format!("{line}\n")).collect();
    let expected = walk.counts().into_iter().filter(|((kind, ..), _)| *kind == Kind::Kernel).collect();
    assert_eq!(kernels_by_path(&own, 3), expected, "{errors}");
    Outcome { used, report: scene.report("x.wscope") }
}

/// Builds a library with the functions of PyTorch's engine, which return at once, in a directory of anybody.
fn build_engine(scene: &Scene) {
    let (source, library) = (scene.path("engine.s"), scene.path("libtorch_cpu.so"));
    let functions = [
        "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_11InputBufferE",
        "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE",
        "_ZN5torch8autograd9GraphTask41mark_as_completed_and_run_post_processingEv",
    ];
    let text = |name| format!(".globl {name}\n.type {name},@function\n{name}: nop\nret\n.size {name}, .-{name}\n");
    // One segment: the functions are in the first page, and there is another one.
    fs::write(&source, functions.map(text).concat() + ".skip 8192\n").expect("the directory is writable");
    programs::run(Command::new("cc").args(["-shared", "-nostdlib", "-Wl,-N", "-o"]).args([&library, &source]));
}

/// Check that a process that maps an engine of PyTorch 20,000 times and then forks 1,000 times does not make warpscope copy all of
/// that for each child.
#[test]
#[ignore = "fills rings that all recordings share: ./test runs it after the others"]
pub(super) fn many_places_of_an_engine_are_bounded() {
    let scene = Scene::new();
    build_engine(&scene);
    let outcome = record_beside(&scene, &format!("./hoard places ready {}", scene.text("")));
    assert!(outcome.lost("engines_refused") > 0, "{}", outcome.report["lost"]);
}

/// Check that mapping records which are lost beside a program that maps code all the time cost an honest program nothing: its
/// mappings are read again before its first launch.
#[test]
#[ignore = "fills rings that all recordings share: ./test runs it after the others"]
fn lost_mapping_records_are_made_up_for() {
    let outcome = record_beside(&Scene::new(), "./hoard mappings ready");
    assert!(outcome.lost("mappings") > 100_000, "{}", outcome.report["lost"]);
}

/// Check that a process with 400 engines of PyTorch gets no more than its share of descriptors and probes, whose removal takes
/// long, and that the recording ends in time.
#[test]
#[ignore = "fills rings that all recordings share: ./test runs it after the others"]
pub(super) fn many_engines_are_bounded() {
    let scene = Scene::new();
    build_engine(&scene);
    let outcome = record_beside(&scene, &format!("./hoard engines ready {}", scene.text("")));
    assert!(outcome.lost("engines_refused") > 100, "{}", outcome.report["lost"]);
    assert!(scene.read("stderr").contains("too many libraries of PyTorch"), "{}", scene.read("stderr"));
    // One for each mapped file, and those of the recording itself.
    assert!(outcome.used.descriptors < 1200, "{} descriptors", outcome.used.descriptors);
}

/// Check that launches which claim to stand for others cannot make the sums of their work grow: 4,000,000 different ones share the
/// limit of all sums.
#[test]
fn forged_sampling_rates_are_bounded() {
    let scene = Scene::new();
    let outcome = record_beside(&scene, "./hoard rates ready");
    assert!(outcome.lost("gpu_sums") > 3_000_000, "{}", outcome.report["lost"]);
}

/// Check that 200,000 different stacks of one process need no more than its share of the memory. Every launch is there.
#[test]
#[ignore = "fills rings that all recordings share: ./test runs it after the others"]
pub(super) fn ever_new_stacks_are_bounded() {
    let scene = Scene::new();
    let outcome = record_beside(&scene, "./hoard stacks ready");
    assert!(outcome.lost("stacks_refused") > 10_000, "{}", outcome.report["lost"]);
    let folded = scene.read("x.folded");
    let wandered = folded.lines().filter(|line| line.contains("wander"));
    let (left_out, kept): (Vec<&str>, Vec<&str>) = wandered.partition(|line| line.contains("[too many stacks]"));
    assert!(left_out.len() == 1 && kept.len() > 10_000, "{} and {}", left_out.len(), kept.len());
}

/// Check that 160,000 threads of one process, each with a name, are bounded.
#[test]
#[ignore = "fills rings that all recordings share: ./test runs it after the others"]
pub(super) fn ever_new_threads_are_bounded() {
    let outcome = record_beside(&Scene::new(), "./hoard threads ready");
    assert!(outcome.lost("processes_refused") > 10_000, "{}", outcome.report["lost"]);
}

/// Check that 80,000 Python functions with long names are bounded.
#[test]
#[ignore = "fills rings that all recordings share: ./test runs it after the others"]
pub(super) fn ever_new_python_code_is_bounded() {
    let outcome = record_beside(&Scene::new(), "/usr/bin/python3 hoard.py ready");
    assert!(outcome.lost("python_refused") > 1_000, "{}", outcome.report["lost"]);
}

/// Check that a process which reports launches with the stacks of another one gets no stack for them: the profiles of the two do not
/// mix, and the launches are counted.
#[test]
pub(super) fn stacks_of_other_processes_are_refused() {
    let scene = Scene::new();
    for name in ["truth", "hoard"] {
        programs::copy(program(name), scene.path(name));
    }
    let walk = Walk { processes: 1, threads: 2, streams: 1, devices: 1, launches: 50_000, graphs: false };
    let command = format!("./hoard foreign ready ./truth {}", walk.arguments());
    let mut command = scene.record("--sim --gpu-only -o x.wscope -o x.folded", &command);
    Ended::of(with_sudo(&mut command).env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
    let folded = scene.read("x.folded");
    let (forged, own): (Vec<&str>, Vec<&str>) = folded.lines().partition(|line| line.contains("kernel-0"));
    assert!(!forged.is_empty(), "no forged kernel: {folded}");
    for line in forged {
        assert!(line.starts_with("hoard;") && !line.contains("worker"), "a foreign stack: {line}");
    }
    let expected = walk.counts().into_iter().filter(|((kind, ..), _)| *kind == Kind::Kernel).collect();
    assert_eq!(kernels_by_path(&own.join("\n"), 3), expected);
    let report = scene.report("x.wscope");
    assert!(number(&report["lost"], "foreign_stacks") >= 10, "{}", report["lost"]);
}

/// Check that a recording ends although a process keeps writing to the ring buffer and to its socket: recording stops before the
/// rest is read, and that takes a limited time.
#[test]
fn a_recording_ends_while_a_process_never_rests() {
    const RECORDED: Duration = Duration::from_secs(2);
    let scene = Scene::new();
    programs::copy(program("hoard"), scene.path("hoard"));
    let mut command = scene.record("--sim --gpu-only -d 2 -o x.wscope", "./hoard events ready");
    let mut run = Running::start(with_sudo(&mut command));
    wait_until("it has begun", || scene.path("ready").exists());
    let begun = Instant::now();
    run.stderr_until("the command keeps running");
    let took = begun.elapsed();
    eprintln!("ended after {took:?}");
    assert!(took < RECORDED + LONGEST_END, "{took:?}");
    run.signal(libc::SIGTERM);
    run.wait().dies_of(libc::SIGTERM);
}
