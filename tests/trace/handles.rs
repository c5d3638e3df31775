//! Kernels that a library launches by handles which it got before warpscope attached: their names are in the driver's objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::PipeWriter,
    process::Command,
};

use serde_json::Value;

use crate::support::{Running, Scene, programs};

/// The program's own kernels, and the library's, by the width of their grids.
const OWN: [(u64, &str); 4] = [(1, "scale(float*, int)"), (2, "plain_sum"), (3, "reduce<int>(int*)"), (4, "copy")];
const FUNCTIONS: [(u64, &str); 2] = [(11, "gemm(float const*, float const*, float*)"), (12, "sgemm_32x32")];
const KERNELS: [(u64, &str); 2] = [(13, "gemv(float const*, float*)"), (14, "splitk_reduce")];
const LOOKED_UP: (u64, &str) = (15, "axpy(float, float*)");

/// Starts the program, stripped, and waits until it has launched all kernels. It ends with the pipe.
fn start(scene: &Scene, arguments: &str, script: &str) -> (Running, PipeWriter) {
    let path = scene.path("program");
    if !path.exists() {
        programs::copy(programs::program("handles"), &path);
        programs::run(Command::new("strip").arg(&path));
    }
    let (input, end) = std::io::pipe().expect("a pipe");
    let mut command = scene.bare(&path);
    command.args(arguments.split_whitespace()).stdin(input);
    command.env("LD_LIBRARY_PATH", programs::libraries()).env("WARPSCOPE_SIM", script);
    let mut program = Running::start(&mut command);
    assert_eq!(program.stdout_line(), "ready");
    (program, end)
}

/// Returns the names of the kernels in all launches of a process, outermost and nested, by grid; `?` for a handle.
fn kernels(trace: &str, pid: libc::pid_t) -> BTreeMap<u64, BTreeSet<String>> {
    let mut kernels = BTreeMap::<_, BTreeSet<String>>::new();
    let lines = trace.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    for line in lines.filter(|line| line["pid"].as_i64() == Some(pid.into())) {
        if let Some(grid) = line["args"]["grid"][0].as_u64() {
            let kernel = line["args"]["kernel"].as_str().expect("a launch has a kernel");
            let kernel = if kernel.starts_with("0x") { "?" } else { kernel };
            kernels.entry(grid).or_default().insert(kernel.to_owned());
        }
    }
    kernels
}

fn expected(named: &[(u64, &str)], unknown: &[u64]) -> BTreeMap<u64, BTreeSet<String>> {
    let unknown = unknown.iter().map(|grid| (*grid, "?"));
    named.iter().copied().chain(unknown).map(|(grid, name)| (grid, [name.to_owned()].into())).collect()
}

/// Traces the program, and asserts that every launch has the right name: these, and none else.
#[track_caller]
fn assert_names(arguments: &str, script: &str, named: &[(u64, &str)], unknown: &[u64]) {
    let scene = Scene::new();
    let (program, end) = start(&scene, arguments, script);
    let pid = program.pid();
    Running::start(&mut scene.trace(&format!("-q -p {pid} -d 0.5 -o t.jsonl -o t.wscope"), "")).wait().exits(0);
    let trace = scene.read("t.jsonl");
    assert_eq!(kernels(&trace, pid), expected(named, unknown), "{arguments} {script}");
    let report = scene.report("t.wscope");
    let launches = report["trace"]["launches"].as_array().expect("launches");
    let any_unknown = launches.iter().any(|row| row["kernel"] == "[unknown kernel]");
    assert_eq!(any_unknown, !unknown.is_empty(), "{launches:?}");
    drop(end);
    program.wait().exits(0);
}

/// Check that layouts of both kinds are learned from the program's own kernels and applied to the library's, wherever the driver
/// has the names.
#[test]
fn names_are_read_from_objects() {
    let all = [&OWN[..], &FUNCTIONS, &KERNELS, &[LOOKED_UP]].concat();
    for script in ["", "function_name=0x3f8:0x3f8,kernel_name=16", "function_name=0x30:8,kernel_name=0x30"] {
        assert_names("both 4", script, &all, &[]);
    }
}

/// Check that a layout is applied to objects of its kind only: launches by host function reveal functions, and launches by handle
/// kernels. A function and the kernel for which it is looked up share their name.
#[test]
fn kinds_are_learned_separately() {
    assert_names("functions 4", "", &[&OWN[..], &FUNCTIONS, &[LOOKED_UP]].concat(), &[13, 14]);
    assert_names("handles 4", "", &[&OWN[..], &KERNELS, &[LOOKED_UP]].concat(), &[11, 12]);
    let scene = Scene::new();
    let (program, end) = start(&scene, "functions 4", "");
    Running::start(&mut scene.trace(&format!("-q -p {} -d 0.5 -o t.jsonl", program.pid()), "")).wait().exits(0);
    let lines = scene.read("t.jsonl");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lookups: BTreeSet<_> = lines
        .filter(|line| line["name"] == "cuKernelGetFunction")
        .map(|line| line["args"]["kernel"].as_str().expect("a kernel").to_owned())
        .collect();
    assert_eq!(lookups, [LOOKED_UP.1.to_owned()].into());
    drop(end);
    program.wait().exits(0);
}

/// Check that nothing is learned from two names, and nothing about functions if one of them has the name of another.
#[test]
fn nothing_is_learned_without_proof() {
    assert_names("both 2", "", &OWN[..2], &[11, 12, 13, 14, 15]);
    assert_names("functions 4 swapped 0x48", "", &OWN, &[11, 12, 13, 14, 15]);
    assert_names("both 4 swapped 0x48", "", &[&OWN[..], &KERNELS, &[LOOKED_UP]].concat(), &[11, 12]);
}

/// Check that objects of the layout that a driver is known to have give their names without any known one, but not if some of
/// them have none, or one has a wrong name.
#[test]
fn the_usual_layout_needs_no_known_names() {
    let kept = [&FUNCTIONS[..], &KERNELS, &[LOOKED_UP]].concat();
    let usual = "function_name=8,kernel_name=8";
    assert_names("both 0", usual, &kept, &[]);
    assert_names("both 0", "kernel_name=8", &[], &[11, 12, 13, 14, 15]);
    assert_names("functions 4 swapped 8", usual, &OWN, &[11, 12, 13, 14, 15]);
}

/// Check that objects full of garbage have no names, and that nothing else suffers.
#[test]
fn hostile_objects_have_no_names() {
    for script in ["", "function_name=0x3f8:0x3f8,kernel_name=16", "function_name=8,kernel_name=8"] {
        assert_names("both 4 hostile", script, &OWN, &[11, 12, 13, 14, 15]);
    }
}

/// Check that what was learned in one process names the kernels of another one with the same driver, which launches no kernels
/// of its own.
#[test]
fn layouts_are_remembered() {
    let scene = Scene::new();
    let (alone, alone_end) = start(&scene, "both 0", "");
    let (teacher, teacher_end) = start(&scene, "both 4", "");
    let options = format!("-q -p {} -p {} -d 0.5 -o t.jsonl", alone.pid(), teacher.pid());
    Running::start(&mut scene.trace(&options, "")).wait().exits(0);
    let named = [&FUNCTIONS[..], &KERNELS, &[LOOKED_UP]].concat();
    assert_eq!(kernels(&scene.read("t.jsonl"), alone.pid()), expected(&named, &[]));
    for (program, end) in [(alone, alone_end), (teacher, teacher_end)] {
        drop(end);
        program.wait().exits(0);
    }
    assert_names("both 0", "", &[], &[11, 12, 13, 14, 15]);
}
