//! Python functions replace the interpreter's own frames, in every installed version of CPython; the output names those that are
//! not installed.

use std::{collections::HashMap, process::Command};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    coverage::not_covered,
    folded,
    jsonl::is_python,
    program,
    programs::sources,
    pythons::{Python, installed},
    scene::{lost, number, unprobed},
};

fn script(name: &str) -> String {
    sources().join("programs").join(name).canonicalize().expect("it is there").to_string_lossy().into_owned()
}

fn events(scene: &Scene, file: &str) -> Vec<Value> {
    scene.read(file).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// The stacks of a recording by number, outermost frame first.
fn stacks(events: &[Value]) -> HashMap<u64, Vec<String>> {
    let names = |frames: &Value| -> Vec<String> {
        let frames = frames.as_array().expect("frames");
        frames.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    let stacks = events.iter().filter(|event| event["type"] == "stack");
    stacks.map(|stack| (number(stack, "stack"), names(&stack["frames"]))).collect()
}

/// Check that a program file that contains Python has Python frames from its first instruction on: no sample shows the interpreter's
/// loop instead.
#[test]
fn interpreters_are_known_before_they_start() {
    const PYTHON: &str = "/usr/bin/python3";
    let libraries = Command::new("ldd").arg(PYTHON).output().expect("ldd runs");
    if String::from_utf8_lossy(&libraries.stdout).contains("libpython") {
        return not_covered("interpreters known before they start: /usr/bin/python3 has its interpreter in a library");
    }
    let scene = Scene::new();
    let command = format!("{PYTHON} {} 0.1", script("busy.py"));
    Ended::of(&mut scene.record("--cpu-only -q -F 4999 -o x.folded", &command)).exits(0);
    let folded = scene.read("x.folded");
    assert!(folded.contains("spin (busy.py:"), "{folded}");
    // Some instructions after the loop was entered for the first time, its frame is linked: until then there is none to read.
    let is_first = |line: &str| line.contains(";PyImport_ImportFrozenModuleObject;") && !line.contains(".py:");
    let is_unknown = |line: &&str| line.contains(";_PyEval_EvalFrame") && !is_first(line);
    let unknown: Vec<&str> = folded.lines().filter(is_unknown).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Check that each launch's stack has exactly the Python frames that the interpreter itself reports, with their lines, and native
/// frames where native code called, for every kind of call: functions, methods, generators, coroutines, threads, callbacks from
/// C, code made at run time.
#[test]
fn launches_have_exact_python_stacks() {
    let script = script("launches.py");
    for python in installed() {
        let scene = Scene::new();
        let command = format!("{python} {script} paths");
        let run = Ended::of(&mut scene.record("--sim -q --gpu-only -o x.jsonl -o x.wscope", &command)).exits(0);
        let report = scene.report("x.wscope");
        let events = events(&scene, "x.jsonl");
        let stacks = stacks(&events);
        let paths: HashMap<String, Vec<String>> = scene
            .read("paths")
            .lines()
            .map(|line| {
                let mut fields = line.split('\t').map(str::to_owned);
                (format!("py:{}", fields.next().expect("a number")), fields.collect())
            })
            .collect();
        let of_launch: HashMap<u64, u64> = events
            .iter()
            .filter(|event| event["type"] == "launch")
            .map(|launch| (number(launch, "correlation"), number(launch, "stack")))
            .collect();

        let mut seen = 0;
        for event in events.iter().filter(|event| event["type"] == "kernel") {
            let name = event["name"].as_str().expect("a name");
            let stack = &stacks[&of_launch[&number(event, "correlation")]];
            check_path(&python, &paths[name], stack);
            seen += 1;
        }
        assert!(seen > 300, "{python} launched {seen}");
        assert_eq!((seen, run.out()), (paths.len(), &*format!("launched {seen}\n")), "{python}");
        assert_eq!(report["gpu_stack_ends"], serde_json::json!({"whole": seen}), "{python}");
        assert_eq!(lost(&report), 0, "{python}: {}", report["lost"]);
    }
}

/// Check that a program that embeds Python may close it and launch kernels: the loader keeps it while the injected library may call it.
#[test]
fn python_may_be_closed_by_its_host() {
    let library = |python: Python| {
        let script = "import sysconfig as s; print(s.get_config_var('LIBDIR') + '/' + s.get_config_var('INSTSONAME'))";
        let output = Command::new(&python.path).args(["-c", script]).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (path.contains(".so") && std::path::Path::new(&path).is_file()).then_some(path)
    };
    let found = installed().into_iter().find_map(library);
    let Some(library) = found else { return not_covered("a host that closes Python: there is no shared libpython") };
    let scene = Scene::new();
    let command = format!("{} {library} 300", program("embeds"));
    let mut run = scene.record("--sim -q --gpu-only -o x.wscope", &command);
    let run = Ended::of(run.env("WARPSCOPE_SIM", "kernel_ns=1us")).exits(0);
    assert_eq!(run.out(), "kept\n");
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), number(&report, "matched"), lost(&report)), (600, 600, 0));
}

/// The frames of a thread itself, without those of the thread that started it.
fn own(stack: &[String]) -> &[String] {
    let starts = stack.iter().rposition(|frame| frame.starts_with("[started by "));
    &stack[starts.map_or(0, |at| at + 1)..]
}

fn check_path(python: &Python, path: &[String], stack: &[String]) {
    let stack = own(stack);
    let wrong = || format!("{python}: {path:#?} has the stack {stack:#?}");
    let places: Vec<usize> = (0..stack.len()).filter(|place| is_python(&stack[*place])).collect();
    let shown: Vec<&String> = places.iter().map(|place| &stack[*place]).collect();
    assert!(shown.iter().copied().eq(path), "another path: {}", wrong());
    let (first, last) = (places[0], places[places.len() - 1]);
    // Outside: the start of the program or the thread, and nothing of the interpreter.
    let outside = &stack[..first];
    assert!(
        outside
            .iter()
            .all(|f| ["_start", "main", "start_thread"].contains(&&**f) || f.contains("libc") || f.contains("clone")),
        "{}",
        wrong()
    );
    // Inside: the launch through ctypes.
    let inside = &stack[last + 1..];
    assert!(inside.iter().any(|f| f == "ffi_call") && inside.iter().any(|f| f == "cudaLaunchKernel"), "{}", wrong());
    assert!(!inside.iter().any(|f| f.starts_with("_Py") || f.starts_with("PyObject_")), "{}", wrong());
    // Between: C code that is not the interpreter's own.
    let between: Vec<&str> = stack[first..last].iter().map(String::as_str).filter(|f| !is_python(f)).collect();
    let callback = path.iter().any(|f| f.contains("called_back")) && between.iter().any(|f| f.starts_with("qsort"));
    let task = path.iter().any(|f| f.contains("(base_events.py:") || f.contains("(events.py:"));
    assert!(between.is_empty() || callback || task, "{}", wrong());
}

/// Check that Python stacks which differ in one instruction, at every depth, are distinguished when launches repeat
/// them, and that the main thread recognises them itself, once it has learned them, which takes some milliseconds of the program's time.
/// Other threads leave that to the probe. Before 3.12 every launch used to meet the probe.
#[test]
fn one_different_instruction_is_another_stack() {
    const DEPTH: usize = 40;
    const ROUNDS: u64 = 400;
    let script = script("alike.py");
    for (python, thread) in installed().iter().flat_map(|python| [(python, ""), (python, "thread")]) {
        let scene = Scene::new();
        let command = format!("{python} {script} {ROUNDS} {thread}");
        let mut recording = scene.record("--sim -v --gpu-only -o x.folded -o x.wscope", &command);
        let run = Ended::of(recording.env("WARPSCOPE_SIM", "kernel_ns=1us")).exits(0);
        let launches = ROUNDS * (DEPTH as u64 + 1);
        assert_eq!(run.out(), format!("launched {launches}\n"), "{python}");
        let mut seen = [0; DEPTH + 1];
        for line in folded::read(&scene.read("x.folded")) {
            let Some(kernel) = line.on_gpu() else { continue };
            let differs = kernel.name.strip_prefix("differs_").and_then(|n| n.parse::<usize>().ok());
            let differs = differs.expect("a kernel's path");
            let steps: Vec<&str> = line.launcher().iter().copied().filter(|frame| frame.starts_with("step ")).collect();
            // The calls at each level, then the launch.
            let calls = (1..=DEPTH).map(|level| if level == differs { "23" } else { "22" }).chain(["20"]);
            let expected: Vec<String> = calls.map(|line| format!("step (alike.py:{line})")).collect();
            assert_eq!(steps, expected, "{python} {}", kernel.name);
            seen[differs] += line.weight;
        }
        assert_eq!(seen, [ROUNDS; DEPTH + 1], "{python} {thread}");
        let recognised = run.err().split("and the Python stacks of ").nth(1).and_then(|text| text.split('\n').next());
        let recognised: u64 = recognised.and_then(|count| count.parse().ok()).expect("how many were recognised");
        let expected = if thread.is_empty() { launches / 2..launches } else { 0..1 };
        assert!(expected.contains(&recognised), "{python} {thread}: {recognised} of {launches}");
        // The others have Python frames that only the probe can read.
        let unprobed = unprobed(run.err());
        assert!(unprobed <= recognised && (recognised == 0 || unprobed > 0), "{python} {thread}: {unprobed}");
    }
}

/// Check that launches from code objects that were freed and made again, at the same addresses, have the right name, file and line. On
/// 3.11, 8 % of those that differed only in the line used to have a wrong one.
#[test]
fn remade_code_objects_are_distinguished() {
    const ROUNDS: u64 = 150;
    let script = script("remade.py");
    for python in installed() {
        let scene = Scene::new();
        let command = format!("{python} {script} {ROUNDS}");
        let mut recording = scene.record("--sim -q --gpu-only -o x.folded -o x.wscope", &command);
        let run = Ended::of(recording.env("WARPSCOPE_SIM", "kernel_ns=1us")).exits(0);
        let shared = run.out().split("shared ").nth(1).and_then(|n| n.trim().parse::<u64>().ok()).expect("a number");
        assert!(shared > 0, "{python}: no address was used twice");
        let mut launched: HashMap<&str, u64> = HashMap::new();
        let folded = scene.read("x.folded");
        for line in folded::read(&folded) {
            let Some(kernel) = line.on_gpu() else { continue };
            let parts: Vec<&str> = kernel.name.split('_').collect();
            let expected = format!("{} ({}.py:{})", parts[0], parts[1], parts[2]);
            let launcher = line.launcher();
            let remade = |frame: &&&str| ["one (", "two ("].iter().any(|name| frame.starts_with(name));
            assert_eq!(launcher.iter().filter(remade).collect::<Vec<_>>(), [&expected], "{python}");
            *launched.entry(kernel.name).or_default() += line.weight;
        }
        assert_eq!(
            (launched.len(), launched.values().all(|count| *count == 3 * ROUNDS)),
            (16, true),
            "{python}: {launched:?}"
        );
        assert_eq!(lost(&scene.report("x.wscope")), 0, "{python}");
    }
}

/// Check that at least 99.9 % of the samples of a busy program with two threads and a forked child, from the first to the last in
/// its work, are in the right functions and reach the start of the thread. One interpreter has too few samples for such a small
/// share; all of them together have enough.
#[test]
fn samples_are_in_the_right_functions() {
    let script = script("busy.py");
    let (mut all_right, mut all_wrong) = (0, Vec::new());
    for python in installed() {
        let scene = Scene::new();
        let command = format!("{python} {script} 1.5");
        Ended::of(&mut scene.record("--cpu-only -q -F 997 -o x.jsonl -o x.wscope", &command)).exits(0);
        let events = events(&scene, "x.jsonl");
        let stacks = stacks(&events);
        let mut threads: HashMap<u64, Vec<&[String]>> = HashMap::new();
        for sample in events.iter().filter(|event| event["type"] == "sample") {
            threads.entry(number(sample, "tid")).or_default().push(&stacks[&number(sample, "stack")]);
        }
        let (mut right, mut wrong) = (0, Vec::new());
        for samples in threads.values() {
            let works = |stack: &&[String]| stack.iter().any(|frame| frame.starts_with("work (busy.py:"));
            let Some(first) = samples.iter().position(works) else { continue };
            let last = samples.iter().rposition(works).unwrap_or(first);
            for stack in &samples[first..=last] {
                if is_work(stack) { right += 1 } else { wrong.push(stack) }
            }
        }
        assert!(right > 200, "{python}: {right} samples");
        all_right += right;
        all_wrong.extend(wrong.into_iter().map(|stack| format!("{python}: {stack:?}")));
        let report = scene.report("x.wscope");
        assert_eq!(lost(&report), 0, "{python}: {}", report["lost"]);
    }
    assert!(all_wrong.len() * 1000 <= all_right, "{all_right} right, but {all_wrong:#?}");
}

/// Whether a stack is one that `busy.py` has at work, from the outermost frame on.
fn is_work(stack: &[String]) -> bool {
    let function = |frame: &String| {
        let name = frame.split(" (").next().unwrap_or_default();
        name.rsplit('.').next().unwrap_or_default().to_owned()
    };
    let functions: Vec<String> = own(stack).iter().filter(|frame| is_python(frame)).map(function).collect();
    let begins: [&[&str]; 3] = [
        &["<module>", "main", "work"],
        &["<module>", "main", "child", "work"],
        &["_bootstrap", "_bootstrap_inner", "run", "work"],
    ];
    let ends: [&[&str]; 2] = [&["steps", "step", "spin"], &["<lambda>", "spin"]];
    let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
    let started =
        stack.first().is_some_and(|frame| frame == "_start" || frame.contains("libc") || frame.contains("clone"));
    started
        && begins.iter().any(|begin| {
            functions.strip_prefix(*begin).is_some_and(|rest| ends.iter().any(|end| end.starts_with(rest)))
        })
}
/// Check that `--no-python` shows the interpreter's own functions instead.
/// `--no-python` shows what runs the Python functions instead.
#[test]
fn no_python_shows_the_interpreter() {
    let python = installed().pop().expect("at least one");
    let scene = Scene::new();
    let command = format!("{python} {} 0.3", script("busy.py"));
    Ended::of(&mut scene.record("--no-python --cpu-only -q -F 499 -o x.folded", &command)).exits(0);
    let folded = scene.read("x.folded");
    assert!(folded.contains(";PyEval_EvalCode;"), "{folded}");
    assert!(!folded.contains("busy.py:"), "{folded}");
}
