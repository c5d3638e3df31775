//! Tasks of a stand-in for XLA's thread pools: their kernels appear under the code that handed them over.

use std::{collections::BTreeMap, process::Command};

use crate::{
    handover::{BOUNDARY, check_path, kernels, lost},
    support::{
        Ended, Scene,
        programs::{libraries, run, sources},
        pythons::installed,
        scene::number,
    },
};

const ROUNDS: u64 = 200;
/// The functions that hand a task to one of the pools.
const FUNCTIONS: [&str; 6] =
    ["eigen_inside", "eigen_outside", "worker_inside", "worker_outside", "queue_inside", "queue_outside"];

/// Builds the pools, the program and the library for Python, with the Python code as an installed package.
fn build(scene: &Scene) {
    let flags = ["-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall", "-pthread"];
    let source = |name| sources().join("programs/xla").join(name);
    let sim = format!("-L{}", libraries().display());
    let pools = scene.path("xla_cuda_plugin.so");
    let local = ["-O2", "-std=c++17", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-shared", "-fPIC", "-o"];
    run(Command::new("c++").args(flags).args(local).args([&pools, &source("pools.cpp")]));
    for (name, more) in [("compile", &[][..]), ("libcompile.so", &["-shared", "-fPIC"])] {
        run(Command::new("cc")
            .args(flags)
            .args(["-O1"])
            .args(more)
            .arg("-o")
            .args([&scene.path(name), &source("compile.c"), &pools])
            .args([&sim, "-lcudart", "-lcuda"])
            .arg(format!("-Wl,-rpath,{}", scene.text(""))));
    }
    std::fs::create_dir(scene.path("site-packages")).expect("a directory");
    std::fs::copy(source("compiled.py"), scene.path("site-packages/compiled.py")).expect("it is there");
}

/// Check that every kernel of a task appears under the call that handed it over, those of tasks within tasks under the first
/// one, those of tasks that are run at once where they ran, and that equal tasks of different calls are counted as unknown.
#[test]
fn tasks_appear_under_the_call_that_handed_them_over() {
    let scene = Scene::new();
    build(&scene);
    let command = format!("{} {ROUNDS}", scene.text("compile"));
    let run = Ended::of(&mut scene.record("--sim --gpu-only -o x.jsonl -o x.wscope", &command)).exits(0);
    let counts = kernels(&scene, |frames, path| {
        check_path(frames, &path.replace("alike", "work"));
    });
    let of_functions = FUNCTIONS.iter().flat_map(|name| [format!("{name}|work"), format!("{name}>work")]);
    let mut expected: BTreeMap<String, u64> = of_functions.map(|name| (name, ROUNDS)).collect();
    for (name, each) in [
        ("beside|work", 1),
        ("full>work", 2),
        ("chain|second", 1),
        ("chain|second>work", 1),
        ("chain|third", 1),
        ("chain|work", 2),
        ("left|work", 2),
        ("alike", 2),
    ] {
        expected.insert(name.into(), each * ROUNDS);
    }
    let total: u64 = expected.values().sum();
    assert_eq!((counts, run.out()), (expected, format!("kernels {total}\n").as_str()));
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "matched"), total);
    assert_eq!((number(&report["lost"], "handovers"), lost(&report)), (2 * ROUNDS, 2 * ROUNDS), "{}", report["lost"]);
}

/// Check that `--no-handover` shows the threads of pools as they are.
#[test]
fn threads_of_pools_can_be_shown_as_they_are() {
    let scene = Scene::new();
    build(&scene);
    let command = format!("{} 2", scene.text("compile"));
    Ended::of(&mut scene.record("--sim -q --gpu-only --no-handover -o x.jsonl -o x.wscope", &command)).exits(0);
    kernels(&scene, |frames, path| {
        check_path(frames, path.replace("alike", "work").rsplit('|').next().expect("a thread"));
    });
    assert_eq!(lost(&scene.report("x.wscope")), 0);
}

/// Check that the frame at the boundary names the user's line that ran the program, in every installed version of Python.
#[test]
fn boundaries_of_tasks_name_the_users_line() {
    let built = Scene::new();
    build(&built);
    let script = sources().join("programs/xla/jit.py").canonicalize().expect("it is there");
    for python in installed() {
        let scene = Scene::new();
        let command = format!("{python} {} 20", script.display());
        let mut recording = scene.record("--sim -q --gpu-only -o x.jsonl -o x.wscope", &command);
        recording.env("COMPILE_LIBRARIES", built.text("")).env("PYTHONDONTWRITEBYTECODE", "1");
        Ended::of(&mut recording).exits(0);
        let counts = kernels(&scene, |frames, path| {
            check_path(frames, path);
            let line = path.strip_suffix("|work").expect("a task");
            assert!(frames.contains(&format!("{BOUNDARY}{line}]").as_str()), "{python}: {frames:#?}");
        });
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [20, 20], "{python}");
        assert_eq!(lost(&scene.report("x.wscope")), 0, "{python}");
    }
}

/// Check that a stripped library is named, with the reason why its tasks appear under its own threads.
#[test]
fn pools_without_symbols_are_named() {
    let scene = Scene::new();
    build(&scene);
    run(Command::new("strip").arg(scene.path("xla_cuda_plugin.so")));
    let command = format!("{} 2", scene.text("compile"));
    let run = Ended::of(&mut scene.record("--sim --gpu-only -o x.jsonl -o x.wscope", &command)).exits(0);
    let sentence = "the tasks of XLA appear under its own threads";
    assert!(run.err().contains(sentence) && run.err().contains("it has no symbol table"), "{}", run.err());
}
