//! The flight recorder: `record --last`. A dump contains the recent past, all of it, and why it was written.

use std::{
    io::Write,
    process::{ChildStdin, Command, Stdio},
};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    jsonl::Events,
    program, programs,
    scene::{lost, number},
};

/// A step, and when it ran.
struct Step {
    number: u64,
    start: u64,
    end: u64,
}

/// `programs/flight.c` under the flight recorder.
struct Flight {
    run: Running,
    input: ChildStdin,
    steps: Vec<Step>,
}

impl Flight {
    fn start(scene: &Scene, options: &[&str]) -> Self {
        let mut arguments = vec!["record", "--sim", "--gpu-only"];
        arguments.extend(options);
        let flight = program("flight");
        arguments.extend(["--", &flight]);
        Self::of(&mut scene.warpscope(&arguments))
    }

    fn of(command: &mut Command) -> Self {
        let mut run = Running::start(command.stdin(Stdio::piped()).env("WARPSCOPE_SIM", "kernel_ns=3us"));
        let input = run.take_stdin();
        assert_eq!(run.stdout_line(), "ready");
        Self { run, input, steps: Vec::new() }
    }

    /// Runs a command of the program; returns its answer.
    fn run(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").expect("it reads commands");
        self.run.stdout_line()
    }

    fn steps(&mut self, count: u32) {
        let answer = self.run(&format!("steps {count}"));
        let numbers: Vec<u64> = answer.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), 3 * count as usize, "{answer}");
        let step = |step: &[u64]| Step { number: step[0], start: step[1], end: step[2] };
        self.steps.extend(numbers.chunks(3).map(step));
    }

    fn end(self) -> Ended {
        drop(self.input);
        self.run.wait()
    }
}

/// Checks that a dump contains exactly the steps of its window, each with its kernel and under its function, and that
/// nothing is lost. Returns the dump's own line, and the number of its steps.
fn check(scene: &Scene, recording: &str, steps: &[Step]) -> (Value, usize) {
    Ended::of(&mut scene.warpscope(&["export", recording, "-o", &format!("{recording}.jsonl")])).exits(0);
    let events = Events::read(&scene.read(&format!("{recording}.jsonl")));
    let dump = events.of("dump").next().expect("it says why").clone();
    let (from, to) = (number(&dump, "from_ns"), number(&dump, "ts_ns"));
    let mut found: Vec<u64> = Vec::new();
    for kernel in events.of("kernel") {
        let name = kernel["name"].as_str().expect("a name");
        let step: u64 = name.strip_prefix("step ").and_then(|step| step.parse().ok()).expect("a step");
        let function = if step % 2 == 1 { "odd_step" } else { "even_step" };
        let stack = events.stack(events.launch_of(kernel));
        assert!(stack.contains(&function), "{name} under {stack:?}");
        found.push(step);
    }
    found.sort_unstable();
    for step in steps {
        let there = found.binary_search(&step.number).is_ok();
        if step.start >= from && step.end <= to {
            assert!(there, "step {} of {}..{} is missing in {from}..{to}", step.number, step.start, step.end);
        } else if step.end < from || step.start > to {
            assert!(!there, "step {} of {}..{} is not of {from}..{to}", step.number, step.start, step.end);
        }
    }
    let report = scene.report(recording);
    assert_eq!(number(&report, "kernels"), found.len() as u64);
    assert_eq!((number(&report, "matched"), number(&report, "pending_launches")), (found.len() as u64, 0));
    assert_eq!((lost(&report), number(&report, "stacks_missing"), number(&report, "sessions_left")), (0, 0, 0));
    assert_eq!((report["dump"]["text"].as_str(), report["cut_off"].as_bool()), (dump["text"].as_str(), Some(false)));
    (dump, found.len())
}

/// Check that each signal writes a dump with exactly the steps of its window, that the program runs on, and that the end
/// writes the last one.
#[test]
fn signals_write_exactly_the_window() {
    let scene = Scene::new();
    let mut flight = Flight::start(&scene, &["--last", "200ms", "-o", "x.wscope"]);
    flight.steps(250);
    flight.run.signal(libc::SIGUSR1);
    flight.run.stderr_until("wrote x.wscope");
    flight.steps(250);
    flight.run.signal(libc::SIGUSR1);
    flight.run.stderr_until("wrote x-2.wscope");
    let steps = std::mem::take(&mut flight.steps);
    let ended = flight.end().exits(0);
    assert!(ended.err().contains("dump of the last 200 ms: the command exited with status 0"), "{}", ended.err());
    let (first, of_first) = check(&scene, "x.wscope", &steps[..250]);
    let (second, of_second) = check(&scene, "x-2.wscope", &steps);
    let (last, _) = check(&scene, "x-3.wscope", &steps);
    assert!(of_first < 250 && of_second < 250, "{of_first} and {of_second} steps");
    assert!(number(&first, "ts_ns") < number(&second, "from_ns"), "250 steps take longer than the window");
    assert_eq!([&first["reason"], &second["reason"], &last["reason"]], ["signal", "signal", "end"]);
}

/// Check that a slow function, a failed launch and an idle GPU are found, and that the dump contains what was before.
#[test]
fn slow_functions_errors_and_idle_gpus_write_dumps() {
    let scene = Scene::new();
    for (option, command, reason, text) in [
        (&["--on-slow", "slow_step > 500ms"][..], "slow 510", "slow", "slow_step took"),
        (&["--on-error"], "fail", "error", "failed: CUDA_ERROR_INVALID_HANDLE (400)"),
        (&["--on-idle", "0.1s"], "slow 0", "idle", "has not used its GPU for"),
    ] {
        let output = format!("{reason}.wscope");
        let mut flight = Flight::start(&scene, &[&["--last", "20s", "-o", &output], option].concat());
        flight.steps(10);
        flight.run("slow 10");
        flight.run(command);
        let line = flight.run.stderr_until("dump of the last");
        assert!(line.contains(text), "{line}");
        flight.run.stderr_until(&format!("wrote {output}"));
        flight.steps(5);
        let steps = std::mem::take(&mut flight.steps);
        flight.end().exits(0);
        let failed = u64::from(reason == "error");
        let (dump, kernels) = check(&scene, &output, &steps[..10]);
        assert_eq!((dump["reason"].as_str(), kernels), (Some(reason), 10));
        assert_eq!(number(&scene.report(&output), "failed_launches"), failed);
        let (last, kernels) = check(&scene, &format!("{reason}-2.wscope"), &steps);
        assert_eq!((last["reason"].as_str(), kernels), (Some("end"), 15));
    }
}

/// Check that a function that takes much longer than it usually does is found, and only once its usual time is known.
#[test]
fn a_function_slower_than_usual_writes_a_dump() {
    let scene = Scene::new();
    let options = ["--last", "20s", "--on-slow", "slow_step > 3x median", "-o", "x.wscope"];
    let mut flight = Flight::start(&scene, &options);
    flight.run("slow 2000");
    (0..19).for_each(|_| drop(flight.run("slow 20")));
    flight.run("slow 2000");
    let line = flight.run.stderr_until("dump of the last");
    assert!(line.contains("ms, more than 3 times the median of "), "{line}");
    flight.run.stderr_until("wrote x.wscope");
    flight.end().exits(0);
    assert_eq!(scene.files(), ["x-2.wscope", "x.wscope"]);
}

/// Check that the number of dumps is limited, and that the last dump counts what was not written.
#[test]
fn the_number_of_dumps_is_limited() {
    let scene = Scene::new();
    let options = ["--last", "20s", "--dumps", "1", "--on-slow", "slow_step > 1ms", "-o", "x.wscope"];
    let mut flight = Flight::start(&scene, &options);
    flight.steps(1);
    flight.run("slow 2");
    flight.run.stderr_until("wrote x.wscope");
    flight.run("slow 2");
    flight.run("slow 2");
    flight.end().exits(0);
    assert_eq!(scene.files(), ["x-2.wscope", "x.wscope"]);
    let notes = scene.report("x-2.wscope")["notes"].to_string();
    assert!(notes.contains("no dump was written for 2 more reasons"), "{notes}");
}

/// Check that a full disk costs one dump, with a sentence, and that the command and the recorder continue.
#[test]
fn a_full_disk_costs_one_dump() {
    let scene = Scene::new();
    let script = r#"mkdir small && mount -t tmpfs -o size=4k none small && exec "$@""#;
    let flight = program("flight");
    let mut shell = scene.bare("unshare");
    shell.args(["-m", "sh", "-c", script, "sh", programs::WARPSCOPE, "record", "--sim", "--gpu-only", "--last", "20s"]);
    let mut flight = Flight::of(shell.args(["-o", "small/x.wscope", "-o", "x.folded", "--", &flight]));
    flight.steps(100);
    flight.run.signal(libc::SIGUSR1);
    flight.run.stderr_until("small/x.wscope: cannot write the recording");
    flight.run.stderr_until("wrote x.folded");
    flight.steps(10);
    flight.run.signal(libc::SIGUSR1);
    let line = flight.run.stderr_until("the dump was not written (signal SIGUSR1)");
    assert_eq!(line.matches("No space left on device").count(), 1, "{line}");
    let ended = flight.end().exits(1);
    assert!(ended.err().contains("the dump was not written (the command exited with status 0)"), "{}", ended.err());
    assert_eq!(scene.read("x.folded").lines().filter(|line| line.contains("step;")).count(), 100);
}

/// Check that mistakes are reported before anything runs: Python functions, missing functions, several dumps to a stream.
#[test]
fn mistakes_are_reported_first() {
    let scene = Scene::new();
    for (options, text) in [
        (&["--on-slow", "f > 1s"][..], "--last"),
        (&["--last", "1s", "--on-slow", "train_step > 1s"], "NVTX range"),
        (&["--last", "1s", "--on-slow", "f"], "--on-slow expects"),
        (&["--last", "0s"], "--last expects a time"),
        (&["--last", "1s", "--last-size", "1"], "64M"),
        (&["--last", "1s", "-o", "/dev/stdout"], "standard output"),
    ] {
        let arguments = [&["record", "--sim"], options, &["--", "sleep", "0"]].concat();
        let ended = Ended::of(&mut scene.warpscope(&arguments));
        assert!(!ended.status.success() && ended.err().contains(text), "{options:?}: {}", ended.err());
    }
    assert_eq!(scene.files(), Vec::<String>::new());
}
