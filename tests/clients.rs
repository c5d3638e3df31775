//! Another client of CUPTI in the recorded program, such as torch.profiler: it works as if warpscope were not there, warpscope
//! records before and after it, and the time in between is in the ledger.

use std::{
    io::{PipeWriter, Write, pipe},
    process::Command,
};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene, program, programs,
    scene::{lost, number},
    wait_until,
};

/// `programs/profiled.c`, or a warpscope that runs it.
struct Profiled {
    run: Running,
    input: PipeWriter,
}

impl Profiled {
    fn start(command: &mut Command) -> Self {
        let (from, input) = pipe().expect("a pipe");
        let mut run = Running::start(command.stdin(from).env("WARPSCOPE_SIM", "kernel_ns=1us"));
        assert_eq!(run.stdout_line(), "ready");
        Self { run, input }
    }

    /// Passes it a command; returns its answer.
    fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").expect("it reads");
        self.run.stdout_line()
    }

    /// Passes it commands and compares its answers.
    #[track_caller]
    fn answers(&mut self, conversation: &[(&str, &str)]) {
        for (command, answer) in conversation {
            assert_eq!(self.ask(command), *answer, "{command}");
        }
    }

    /// Ends it; it succeeds.
    fn end(self) -> Ended {
        drop(self.input);
        self.run.wait().exits(0)
    }
}

/// Waits until the recording has this many pauses, and the last one has ended or lasts.
fn wait_for_pauses(scene: &Scene, count: usize, lasts: bool) {
    wait_until("the client has come or gone", || {
        let report = Ended::of(&mut scene.warpscope(&["report", "--json", "x.wscope.partial"]));
        let Ok(report) = serde_json::from_str::<Value>(report.out()) else { return false };
        let pauses = report["pauses"].as_array().map_or(&[][..], Vec::as_slice);
        pauses.len() == count && pauses.last().is_some_and(|last| last["lasts"].as_bool().unwrap_or(false) == lasts)
    });
}

/// Checks that this many launches were recorded, each with its kernel, with pauses by a client of this name.
#[track_caller]
fn is_exact(report: &Value, launches: u64, clients: &[&str]) {
    let numbers = ["launches", "matched", "kernels", "pending_launches", "unmatched_activities", "sessions_cut_off"];
    assert_eq!(numbers.map(|key| number(report, key)), [launches, launches, launches, 0, 0, 0], "{}", report["ledger"]);
    assert_eq!(lost(report), 0, "{}", report["lost"]);
    let pauses = report["pauses"].as_array().expect("pauses");
    let seen: Vec<_> = pauses.iter().map(|pause| pause["client"].as_str().expect("a name")).collect();
    assert_eq!(seen, clients);
    assert!(pauses.iter().all(|pause| number(pause, "ns") > 0));
}

/// Check that a client that comes twice and never unsubscribes has all its records, with its own clock, and that warpscope records
/// every launch before, between and after; with slots that the loader fills at once and protects, with slots that it fills at
/// the first call, and with functions that the client looks up by name.
#[test]
fn clients_that_stay_subscribed_work() {
    let bindings: [&[&str]; 3] =
        [&["-lcupti", "-Wl,-z,now"], &["-lcupti", "-Wl,-z,lazy"], &[r#"-DBY_NAME="libcupti.so.13""#]];
    for binding in bindings {
        let scene = Scene::new();
        let path = scene.path("client");
        let libraries = programs::libraries();
        programs::run(
            Command::new("cc")
                .args(["-O1", "-g", "-fno-omit-frame-pointer", "-o"])
                .args([&path, &programs::sources().join("programs/profiled.c")])
                .arg(format!("-L{}", libraries.display()))
                .arg("-lcuda")
                .args(binding),
        );
        let mut client = Profiled::start(
            &mut scene.record("--sim --gpu-only -o x.wscope -o x.jsonl -o x.json", &scene.text("client")),
        );
        client.answers(&[
            ("launch 100", "launched 100"),
            ("start", "started 0"),
            ("launch 30", "launched 30"),
            ("stop", "recorded 30 wrong 0"),
        ]);
        wait_for_pauses(&scene, 1, false);
        client.answers(&[
            ("launch 50", "launched 50"),
            ("start", "started 0"),
            ("launch 7", "launched 7"),
            ("stop", "recorded 7 wrong 0"),
        ]);
        wait_for_pauses(&scene, 2, false);
        client.answers(&[("launch 5", "launched 5")]);
        let run = client.end();
        assert!(run.err().contains("(2 times): client was using CUPTI; this time counts as idle"), "{}", run.err());
        is_exact(&scene.report("x.wscope"), 155, &["client", "client"]);
        assert_eq!(scene.read("x.jsonl").matches(r#""type":"pause""#).count(), 2);
        assert_eq!(scene.read("x.json").matches("no GPU records: client was using CUPTI").count(), 2);
    }
}

/// Check that warpscope records again after a client that unsubscribes, also if it leaves its kinds enabled, and after one that
/// ends CUPTI.
#[test]
fn clients_that_leave_are_replaced() {
    let scene = Scene::new();
    let mut client = Profiled::start(&mut scene.record("--sim --gpu-only -o x.wscope", &program("profiled")));
    client.answers(&[
        ("launch 10", "launched 10"),
        ("start", "started 0"),
        ("launch 3", "launched 3"),
        ("flush", "recorded 3 wrong 0"),
        ("unsubscribe", "unsubscribed 0"),
    ]);
    wait_for_pauses(&scene, 1, false);
    client.answers(&[
        ("launch 20", "launched 20"),
        ("start", "started 0"),
        ("launch 4", "launched 4"),
        ("stop", "recorded 4 wrong 0"),
        ("finalize", "finalized 0"),
    ]);
    wait_for_pauses(&scene, 2, false);
    client.answers(&[("launch 40", "launched 40"), ("start", "started 0"), ("launch 2", "launched 2")]);
    wait_for_pauses(&scene, 3, true);
    client.answers(&[("stop", "recorded 2 wrong 0")]);
    client.end();
    is_exact(&scene.report("x.wscope"), 70, &["profiled"; 3]);
}

/// Check that, if a client is there first, warpscope waits until it has left, names it, and then records every launch; and that a
/// client that came while warpscope was attached is known to the next recording.
#[test]
fn clients_may_be_there_first() {
    let scene = Scene::new();
    let mut client = Profiled::start(&mut scene.bare_cuda("profiled"));
    client.answers(&[("start", "started 0"), ("launch 20", "launched 20")]);
    let pid = client.run.pid().to_string();
    let attach = || Running::start(&mut scene.warpscope(&["record", "-v", "--gpu-only", "-p", &pid, "-o", "x.wscope"]));
    let end = |run: Running| {
        run.signal(libc::SIGINT);
        let run = run.wait().exits(0);
        let report = scene.report("x.wscope");
        std::fs::remove_file(scene.path("x.wscope")).expect("the recording");
        (run, report)
    };
    let run = attach();
    wait_for_pauses(&scene, 1, true);
    client.answers(&[("launch 4", "launched 4"), ("stop", "recorded 24 wrong 0"), ("unsubscribe", "unsubscribed 0")]);
    wait_for_pauses(&scene, 1, false);
    client.answers(&[("launch 9", "launched 9"), ("start", "started 0"), ("launch 6", "launched 6")]);
    wait_for_pauses(&scene, 2, true);
    client.answers(&[("stop", "recorded 6 wrong 0")]);
    wait_for_pauses(&scene, 2, false);
    client.answers(&[("launch 8", "launched 8")]);
    let (run, report) = end(run);
    assert!(run.err().contains("another client uses CUPTI (error 39: another client of CUPTI)"), "{}", run.err());
    is_exact(&report, 17, &["another client of CUPTI", "profiled"]);

    // It is still subscribed, and idle: the next recording begins at once.
    client.answers(&[("start", "started 0"), ("launch 2", "launched 2"), ("stop", "recorded 2 wrong 0")]);
    let run = attach();
    wait_for_pauses(&scene, 1, false);
    client.answers(&[("launch 11", "launched 11")]);
    let (_, report) = end(run);
    is_exact(&report, 11, &["profiled"]);
    client.answers(&[("start", "started 0"), ("launch 3", "launched 3"), ("stop", "recorded 3 wrong 0")]);
    client.end();
}
