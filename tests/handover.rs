//! Work handed to other threads: the kernels of a stand-in for PyTorch's autograd appear under the call that caused them.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

use crate::support::{
    Ended, Scene, folded,
    jsonl::Events,
    programs::{libraries, run, sources},
    pythons::{Python, installed},
    scene::{self, number},
};

pub const BOUNDARY: &str = "[handed over by ";
const WORKS: &str = "torch::autograd::Engine::evaluate_function";
const ROUNDS: u64 = 50;
/// Enough for threads to recognise their stacks, and to report launches without the probe.
const MANY: u64 = 2000;

/// Builds the engine, the program and the library for Python.
fn build(scene: &Scene) {
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall", "-pthread"];
    let source = |name| sources().join("programs/autograd").join(name);
    let sim = format!("-L{}", libraries().display());
    let directory = scene.text("");
    let engine = scene.path("libtorch_cpu.so");
    run(Command::new("c++").args(flags).args(["-shared", "-fPIC", "-o"]).args([&engine, &source("engine.cpp")]));
    for (name, more) in [("train", &[][..]), ("libtrain.so", &["-shared", "-fPIC"])] {
        run(Command::new("cc")
            .args(flags)
            .args(more)
            .arg("-o")
            .args([&scene.path(name), &source("train.c"), &engine])
            .args([&sim, "-lcudart", "-lcuda", "-ldl"])
            .arg(format!("-Wl,-rpath,{directory}")));
    }
}

/// Builds them, with the Python code as an installed package.
fn built_for_python() -> Scene {
    let built = Scene::new();
    build(&built);
    std::fs::create_dir(built.path("site-packages")).expect("a directory");
    let library = sources().join("programs/autograd/tensor.py");
    std::fs::copy(library, built.path("site-packages/tensor.py")).expect("it is there");
    built
}

/// What was lost, without records of mapped files: the kernel's buffers for these are shared by the machine.
pub fn lost(report: &Value) -> u64 {
    scene::lost(report) - number(&report["lost"], "mappings")
}

/// Whether the frames contain these functions, in this order.
fn contains(frames: &[&str], functions: &str) -> bool {
    let mut frames = frames.iter();
    functions.split('>').all(|function| frames.any(|frame| *frame == function))
}

/// Checks that a stack has the path in a kernel's name; returns its segments, one for each thread.
#[track_caller]
pub fn check_path<'f, 'n>(frames: &'f [&'n str], path: &str) -> Vec<&'f [&'n str]> {
    let segments: Vec<&[&str]> = frames.split(|frame| frame.starts_with(BOUNDARY)).collect();
    let expected: Vec<&str> = path.split('|').collect();
    let same = segments.len() == expected.len() && segments.iter().zip(&expected).all(|(s, e)| contains(s, e));
    assert!(same, "{path} has the stack {}", frames.join(";"));
    segments
}

/// The same, with threads of autograd.
#[track_caller]
fn check(frames: &[&str], path: &str) {
    // All but the first thread work for another.
    for segment in &check_path(frames, path)[1..] {
        assert!(
            segment.iter().any(|frame| frame.starts_with(WORKS) || frame.contains("post_processing")),
            "{segment:?}"
        );
    }
}

/// Checks every kernel of a recording against the path in its name; returns how many there are of each.
#[track_caller]
pub fn kernels(scene: &Scene, check: impl Fn(&[&str], &str)) -> BTreeMap<String, u64> {
    let events = Events::read(&scene.read("x.jsonl"));
    let mut counts = BTreeMap::new();
    for kernel in events.of("kernel") {
        let name = kernel["name"].as_str().expect("a name");
        check(&events.stack(events.launch_of(kernel)), name);
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

/// The expected number of kernels of each name.
fn expected(rounds: u64, armed: bool) -> BTreeMap<String, u64> {
    let once = [
        ("first|work", 3),
        ("first>work", 1),
        ("second|work", 2),
        ("outer|work", 2),
        ("outer|inner>work", 2),
        ("outer|nest", 1),
        ("bystander", 1),
    ];
    let mut counts: BTreeMap<String, u64> = once.map(|(name, each)| (name.to_owned(), each * rounds)).into();
    if armed {
        for (name, each) in &once[..2] {
            *counts.entry((*name).to_owned()).or_default() += each;
        }
        for (name, each) in &once[3..6] {
            *counts.entry((*name).to_owned()).or_default() += each;
        }
        *counts.entry("bystander".into()).or_default() += rounds;
        for (name, each) in [("across|work", 1), ("across>work", 1), ("spread", 1), ("work", 1)] {
            counts.insert(format!("widely|{name}"), each * rounds);
        }
        for line in 0..4 {
            counts.insert(format!("line{line}|work"), 2 * rounds);
            counts.insert(format!("line{line}>work"), rounds);
        }
        counts.extend([("left|meet".into(), 1), ("right|meet".into(), 1), ("overlap".into(), 2)]);
    }
    counts
}

/// Records the program; returns what it printed.
fn record(scene: &Scene, options: &str, arguments: &str) -> Ended {
    let command = format!("{} {arguments}", scene.text("train"));
    let mut recording = scene.record(&format!("--sim {options} -o x.jsonl -o x.folded -o x.wscope"), &command);
    Ended::of(recording.env("WARPSCOPE_SIM", "kernel_ns=2us")).exits(0)
}

/// Check that every kernel of a single call, of calls within its work and of its completion appears under that call, and that
/// the caller's own work and that of other threads is where it was. Nothing is unknown.
#[test]
fn work_appears_under_the_call_that_handed_it_over() {
    let scene = Scene::new();
    build(&scene);
    let run = record(&scene, "-v --gpu-only", &MANY.to_string());
    let expected = expected(MANY, false);
    let total: u64 = expected.values().sum();
    assert_eq!(run.out(), format!("kernels {total}\n"));
    assert_eq!(kernels(&scene, |frames, path| check(frames, path)), expected);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "matched"), lost(&report)), (total, 0), "{}", report["lost"]);
    assert_eq!(report["gpu_stack_ends"], serde_json::json!({ "whole": total }));
    let unprobed = scene::unprobed(run.err());
    assert!(unprobed > 0, "no launch had a known stack");
    println!("{unprobed} of {total} launches were reported without a probe");
    for line in folded::read(&scene.read("x.folded")) {
        check(line.launcher(), line.on_gpu().expect("GPU work").name);
    }
}

/// Check that calls at the same time are distinguished to the last kernel once their nodes are probed, also those within the
/// work of others on several threads, and that the ledger counts what could not be distinguished before.
#[test]
fn calls_at_the_same_time_are_distinguished() {
    let scene = Scene::new();
    build(&scene);
    let run = record(&scene, "--gpu-only", &format!("{ROUNDS} armed"));
    assert_eq!(
        kernels(&scene, |frames, path| check(frames, path.replace("overlap", WORKS_HERE).as_str())),
        expected(ROUNDS, true)
    );
    let report = scene.report("x.wscope");
    assert_eq!((number(&report["lost"], "handovers"), lost(&report)), (2, 2), "{}", report["lost"]);
    let sentence = "2 launches and CPU samples of PyTorch's autograd or of XLA appear under their own threads";
    assert!(run.err().contains(sentence), "{}", run.err());
}

/// The kernels `overlap` stay on the thread that did the work.
const WORKS_HERE: &str = "meet";

/// Check that `--no-handover` shows threads as they are.
#[test]
fn threads_can_be_shown_as_they_are() {
    let scene = Scene::new();
    build(&scene);
    record(&scene, "-q --gpu-only --no-handover", "5");
    let own = |frames: &[&str], path: &str| check(frames, path.rsplit('|').next().expect("a thread"));
    assert_eq!(kernels(&scene, own), expected(5, false));
    assert!(!scene.read("x.folded").contains(BOUNDARY));
    assert_eq!(lost(&scene.report("x.wscope")), 0);
}

/// Check that the CPU samples of workers appear under the call, too, and that none is under a wrong one.
#[test]
fn samples_appear_under_the_call_that_handed_the_work_over() {
    let scene = Scene::new();
    build(&scene);
    record(&scene, "-q -F 4999", "400");
    let mut handed = 0;
    for line in folded::read(&scene.read("x.folded")).iter().filter(|line| line.on_gpu().is_none()) {
        let segments: Vec<&[&str]> = line.frames.split(|frame| frame.starts_with(BOUNDARY)).collect();
        let callers = ["first", "second", "outer"];
        let works = |segment: &[&str]| segment.iter().any(|frame| frame.starts_with(WORKS));
        if segments.len() > 1 {
            assert!(callers.iter().any(|caller| segments[0].contains(caller)) && !works(segments[0]), "{line:?}");
            handed += 1;
        } else if works(segments[0]) {
            assert!(callers.iter().any(|caller| segments[0].contains(caller)), "a worker without a caller: {line:?}");
        }
    }
    assert!(handed > 0, "no sample of a worker");
}

/// The stacks of the GPU work of `threads.py`, by kernel.
fn threads(python: &Python, options: &str) -> BTreeMap<String, Vec<String>> {
    stacks_of("threads.py", python, options)
}

/// The stacks of the GPU work of a script, by kernel.
fn stacks_of(script: &str, python: &Python, options: &str) -> BTreeMap<String, Vec<String>> {
    let script = sources().join("programs").join(script).canonicalize().expect("it is there");
    let scene = Scene::new();
    let command = format!("{python} {}", script.display());
    let options = format!("--sim -q --gpu-only {options} -o x.jsonl -o x.wscope");
    Ended::of(scene.record(&options, &command).env("PYTHONDONTWRITEBYTECODE", "1")).exits(0);
    assert_eq!(lost(&scene.report("x.wscope")), 0, "{python}");
    let events = Events::read(&scene.read("x.jsonl"));
    let stack = |kernel| events.stack(events.launch_of(kernel)).into_iter().map(str::to_owned).collect();
    let name = |kernel: &Value| kernel["name"].as_str().expect("a name").to_owned();
    events.of("kernel").map(|kernel| (name(kernel), stack(kernel))).collect()
}

/// Check that Python's threads appear under the line that started them, also those of a pool, in every installed version, and
/// that work that is given to a thread later does not appear under another line.
#[test]
fn python_threads_appear_under_the_code_that_started_them() {
    for python in installed() {
        let stacks = threads(&python, "");
        for (kernel, boundary, outer) in [
            ("started", "[started by start (threads.py:24)]", "starts (threads.py:24)"),
            ("nested", "[started by start (threads.py:30)]", "nests (threads.py:36)"),
            ("submitted", "[started by submit (threads.py:42)]", "submits (threads.py:42)"),
            ("later", "[started by submit (threads.py:42)]", "submits (threads.py:42)"),
        ] {
            let stack = &stacks[kernel];
            let at = stack.iter().rposition(|frame| frame.starts_with("[started by ")).expect("a boundary");
            assert_eq!(stack[at], boundary, "{python}: {stack:#?}");
            assert!(stack[..at].iter().any(|frame| frame == outer), "{python}: {stack:#?}");
            let own = &stack[at + 1..];
            assert!(own.iter().any(|frame| frame.contains("_bootstrap (threading.py:")), "{python}: {stack:#?}");
            assert!(own.iter().any(|frame| frame.starts_with("work (threads.py:")), "{python}: {stack:#?}");
            assert!(!stack.iter().any(|frame| frame.starts_with("later (")), "{python}: {stack:#?}");
        }
        assert!(!stacks["main"].iter().any(|frame| frame.starts_with("[started by ")), "{python}");
    }
}

/// Check that a thread appears under the line that started it although 70,000 others have started and ended since, and that their ends
/// make room for a later one.
#[test]
fn threads_are_remembered_until_they_end() {
    let python = installed().pop().expect("a Python");
    let stacks = stacks_of("many_threads.py", &python, "");
    for (kernel, outer) in [("early", "first (many_threads.py:"), ("late", "last (many_threads.py:")] {
        let stack = &stacks[kernel];
        assert!(stack.iter().any(|frame| frame.starts_with("[started by start (many_threads.py:")), "{stack:#?}");
        assert!(stack.iter().any(|frame| frame.starts_with(outer)), "{stack:#?}");
    }
}

/// Check that `--no-handover` shows Python's threads as they are.
#[test]
fn python_threads_can_be_shown_as_they_are() {
    let python = installed().pop().expect("a Python");
    for (kernel, stack) in threads(&python, "--no-handover") {
        let starts = |frame: &String| frame.starts_with("starts (") || frame.starts_with("[started by ");
        assert!(!stack.iter().any(starts), "{kernel}: {stack:#?}");
    }
}

/// Check that the frame at the boundary names the line of Python that called backward, in every installed version: the user's
/// line, not the library's.
#[test]
fn boundaries_name_the_line_that_called_backward() {
    const ROUNDS: u64 = 20;
    let script = sources().join("programs/autograd/train.py").canonicalize().expect("it is there");
    let built = built_for_python();
    for python in installed() {
        let scene = Scene::new();
        let command = format!("{python} {} {ROUNDS}", script.display());
        let mut recording = scene.record("--sim -q --gpu-only -o x.jsonl -o x.wscope", &command);
        recording
            .env("WARPSCOPE_SIM", "kernel_ns=2us")
            .env("TRAIN_LIBRARIES", built.text(""))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        Ended::of(&mut recording).exits(0);
        let counts = kernels(&scene, |frames, path| {
            check(frames, path.replace("overlap", WORKS_HERE).as_str());
            if let Some((caller, _)) = path.split_once('|') {
                let line = caller.split_once(" (").expect("a line").1;
                let boundary = frames.iter().find(|frame| frame.starts_with(BOUNDARY)).expect("a boundary");
                assert_eq!(*boundary, format!("{BOUNDARY}backward ({line}]"), "{python}");
            }
        });
        let total: u64 = counts.values().sum();
        assert_eq!(total, 2 + ROUNDS * 3 * (1 + 2 + 1 + 2 + 1), "{python}: {counts:?}");
        assert_eq!(lost(&scene.report("x.wscope")), 2, "{python}");
    }
}

/// Check that backward work names the forward line that made its node, on request, and only where its number belongs to one
/// thread.
#[test]
fn backward_work_names_its_forward_line() {
    const ROUNDS: u64 = 20;
    let script = sources().join("programs/autograd/forward.py").canonicalize().expect("it is there");
    let built = built_for_python();
    let off = installed().pop().map(|python| (python, false));
    for (python, option) in installed().into_iter().map(|python| (python, true)).chain(off) {
        let scene = Scene::new();
        let command = format!("{python} {} {ROUNDS}", script.display());
        let options = if option { "--forward-lines" } else { "" };
        let mut recording = scene.record(&format!("--sim -q --gpu-only {options} -o x.jsonl -o x.wscope"), &command);
        recording
            .env("WARPSCOPE_SIM", "kernel_ns=2us")
            .env("TRAIN_LIBRARIES", built.text(""))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        Ended::of(&mut recording).exits(0);
        let counts = kernels(&scene, |frames, name| {
            let at = frames.iter().position(|frame| frame.starts_with(BOUNDARY)).expect("a boundary");
            let line = if name == "several" { "36" } else { "30" };
            assert_eq!(frames[at], format!("{BOUNDARY}backward (forward.py:{line})]"), "{python}");
            let forward = frames[at + 1].starts_with("[backward of ").then_some(frames[at + 1]);
            let expected = (option && name != "several").then(|| format!("[backward of {name}]"));
            assert_eq!(forward, expected.as_deref(), "{python}: {frames:#?}");
            assert!(contains(&frames[at + 1..], "work"), "{python}: {frames:#?}");
        });
        let of = |line: u32, each: u64| (format!("linear (forward.py:{line})"), each * (ROUNDS + 1));
        let expected = BTreeMap::from([of(16, 1), of(18, 3), of(23, 2), ("several".to_owned(), 1)]);
        assert_eq!(counts, expected, "{python}");
        assert_eq!(lost(&scene.report("x.wscope")), 0, "{python}");
    }
}
