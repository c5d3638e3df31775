//! The flight recorder when GPU memory is exhausted: who held it at that moment, to the byte.

use std::{collections::BTreeMap, io::Write, process::Stdio};

use serde_json::Value;

use crate::{
    memory::{MIB, build, in_use, line, lines, lost},
    support::{
        Ended, Running, Scene,
        programs::{program, sources},
        pythons::installed,
        scene::number,
    },
};

/// Bytes of the simulated GPU.
const ROOM: &str = "memory=104857600";

/// `programs/memory/exhaust.py` under the flight recorder.
struct Exhaust {
    run: Running,
    input: std::process::ChildStdin,
}

impl Exhaust {
    /// Starts it. The window is long enough for all failures on a machine that is busy with other things.
    fn start(scene: &Scene, python: &str, room: &str) -> Self {
        build(scene);
        let script = sources().join("programs/memory/exhaust.py").canonicalize().expect("it is there");
        let script = script.to_str().expect("text");
        let options = ["record", "--sim", "--gpu-only", "--last", "3600s", "--on-error", "-o", "x.wscope"];
        let mut command = scene.warpscope(&[&options[..], &["--", python, script]].concat());
        command.stdin(Stdio::piped()).env("LD_LIBRARY_PATH", scene.text("")).env("WARPSCOPE_SIM", room);
        let mut run = Running::start(&mut command);
        let input = run.take_stdin();
        assert_eq!(run.stdout_line(), "0 0 0");
        Self { run, input }
    }

    /// Runs a command; returns the failures so far, and what was allocated and reserved at the last one.
    fn does(&mut self, command: &str) -> [u64; 3] {
        writeln!(self.input, "{command}").expect("it reads commands");
        let answer = self.run.stdout_line();
        let numbers: Vec<u64> = answer.split(' ').map(|word| word.parse().expect("a number")).collect();
        numbers.try_into().expect("three numbers")
    }

    fn end(self) -> Ended {
        drop(self.input);
        self.run.wait()
    }
}

fn dump(report: &Value) -> (&str, &str) {
    let text = |name: &str| report["dump"][name].as_str().expect("a text");
    (text("reason"), text("text"))
}

/// Check, in every Python, that the first allocation that fails writes a dump although the program recovers, that the last
/// dump is about the one that the program dies of, and that both say who held memory when the driver refused, and at the
/// peak, to the byte and by line.
#[test]
fn failed_allocations_say_who_holds_memory() {
    for python in installed() {
        let python = python.to_string();
        let scene = Scene::new();
        let mut program = Exhaust::start(&scene, &python, ROOM);
        assert_eq!(program.does("recover"), [1, 30 * MIB, 66 * MIB], "{python}");
        program.run.stderr_until("wrote x.wscope");
        assert_eq!(program.does("die"), [3, 70 * MIB, 70 * MIB], "{python}");
        let ended = program.end().exits(1);
        assert!(ended.err().contains("OutOfMemoryError"), "{}", ended.err());
        let weights = line("tensor", "weights (exhaust.py:38)", 30 * MIB, 1);
        let other = line("other", "<module> (exhaust.py:57)", 7 * MIB, 1);
        let activations = |count| line("tensor", "activations (exhaust.py:44)", count * 12 * MIB, count);
        let large = line("tensor", "large (exhaust.py:49)", 40 * MIB, 1);

        let first = scene.report("x.wscope");
        let (reason, text) = dump(&first);
        assert_eq!(reason, "error", "{python}");
        let expected = "cudaMalloc of 40.0 MiB in process ";
        assert!(text.starts_with(expected) && text.ends_with(" failed: out of memory"), "{python}: {text}");
        check(&first, [36 * MIB, 0], [&[&weights, &other], &[&weights, &other, &activations(3)]], &python);

        let last = scene.report("x-2.wscope");
        let (reason, text) = dump(&last);
        assert_eq!(reason, "end", "{python}");
        assert!(text.starts_with("cudaMalloc of 36.0 MiB in process "), "{python}: {text}");
        assert!(text.ends_with(" failed: out of memory; then the command exited with status 1"), "{python}: {text}");
        let at_peak = [&weights, &other, &large, &activations(1)];
        check(&last, [0, 0], [&at_peak[..3], &at_peak], &python);
        assert_eq!(scene.files(), ["libc10_cuda.so", "x-2.wscope", "x.wscope"], "{python}");
    }
}

type Line = ((String, String), (u64, u64));

/// Checks what was cached and who held memory at the end and at the peak.
fn check(report: &Value, cached: [u64; 2], holders: [&[&Line]; 2], python: &str) {
    assert_eq!(lost(report), 0, "{python}: {}", report["lost"]);
    let memory = report["memory"].as_array().expect("memory");
    assert_eq!(memory.len(), 1, "{python}: {memory:?}");
    for ((moment, cached), holders) in ["end", "peak"].into_iter().zip(cached).zip(holders) {
        let moment = &memory[0][moment];
        assert_eq!(number(moment, "cached_bytes"), cached, "{python}: {moment}");
        let expected = holders.iter().map(|line| (*line).clone());
        assert_eq!(in_use(moment), BTreeMap::from_iter(expected), "{python}: {moment}");
    }
}

/// Check that nothing is written before the end if all allocations succeed, and that the last dump says who holds memory then.
#[test]
fn allocations_that_succeed_write_no_dump() {
    let scene = Scene::new();
    let python = installed().pop().expect("a Python").to_string();
    let mut program = Exhaust::start(&scene, &python, "memory=8589934592");
    assert_eq!(program.does("recover"), [0; 3]);
    assert_eq!(program.does("die"), [0; 3]);
    program.end().exits(0);
    assert_eq!(scene.files(), ["libc10_cuda.so", "x.wscope"]);
    let report = scene.report("x.wscope");
    assert_eq!(dump(&report), ("end", "the command exited with status 0"));
    let end = &report["memory"][0]["end"];
    let (tensors, other) = (number(end, "tensor_bytes"), number(end, "other_bytes"));
    assert_eq!((tensors, other), (70 * MIB, 7 * MIB), "{end}");
}

/// Check programs of the runtime that die at once: of each kind of allocation, and of the first one.
#[test]
fn programs_that_die_of_it_say_who_held_memory() {
    let weights = line("other", "weights", 5 * MIB + 100, 2);
    let buffers = |count| line("other", "buffers", count * MIB, count);
    for (room, call, held) in [
        (8 * MIB - 1, "cudaMalloc of 1.00 MiB", vec![weights.clone(), buffers(2)]),
        (7 * MIB - 1, "cudaMallocAsync of 1.00 MiB", vec![weights, buffers(1)]),
        (5 * MIB + 1, "cudaMallocAsync of 100 B", vec![line("other", "weights", 5 * MIB, 1)]),
        (MIB, "cudaMalloc of 5.00 MiB", vec![]),
    ] {
        let scene = Scene::new();
        let options = "--sim -q --gpu-only --last 20s --on-error -o x.wscope";
        let mut command = scene.record(options, &program("held"));
        Ended::of(command.env("WARPSCOPE_SIM", format!("memory={room}"))).exits(1);
        let report = scene.report("x.wscope");
        let (reason, text) = dump(&report);
        assert_eq!(reason, "error", "{text}");
        let died = "failed: out of memory; then the command exited with status 1";
        assert!(text.starts_with(call) && text.ends_with(died), "{text}");
        let end = &report["memory"][0]["end"];
        let found = if held.is_empty() { BTreeMap::new() } else { lines(end) };
        assert_eq!(found, BTreeMap::from_iter(held), "{report}");
    }
}
