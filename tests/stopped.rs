//! Recordings that stop before the program does, and programs that are killed: what the recordings contain, and what they report
//! as missing.

use std::{
    collections::HashSet,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene,
    calls::Trace,
    folded,
    jsonl::Events,
    program,
    scene::{lost, number},
    wait_until,
};

/// A program that launches kernels of 1 us without end.
fn endless() -> String {
    format!("{} 1 2 1 1 1000000000", program("truth"))
}

fn key(event: &Value) -> (u64, u64) {
    (number(event, "session"), number(event, "correlation"))
}

/// Check that, when -d ends the recording, the injected library flushes and finishes: every launch has its GPU work, the process
/// does not count as killed, and the summary says that warpscope stopped and the process kept running.
#[test]
fn nothing_is_missing_after_a_duration() {
    let scene = Scene::new();
    let command = endless();
    let mut run = Running::start(
        scene.record("--sim --gpu-only -d 3 -o x.wscope", &command).env("WARPSCOPE_SIM", "kernel_ns=1us"),
    );
    run.stderr_until("warpscope stopped recording after 3 s while process");
    run.stderr_until("the command keeps running");
    let report = scene.report("x.wscope");
    assert!(number(&report, "launches") > 1_000, "{}", report["launches"]);
    let numbers = ["sessions_cut_off", "sessions_left", "pending_launches", "unmatched_activities"];
    assert_eq!(numbers.map(|key| number(&report, key)), [0; 4], "{}", report["ledger"]);
    assert_eq!((number(&report, "matched"), lost(&report)), (number(&report, "launches"), 0), "{}", report["ledger"]);
    assert!(report["notes"].to_string().contains("(truth) was running"), "{}", report["notes"]);
    run.signal(libc::SIGTERM);
    run.wait().dies_of(libc::SIGTERM);
}

/// Check that another Ctrl-C ends a recording at once that waits for a process which does not respond.
#[test]
fn another_interrupt_ends_the_wait_for_a_stopped_process() {
    /// How long warpscope waits for processes that it is attached to.
    const PATIENCE: Duration = Duration::from_secs(5);
    let scene = Scene::new();
    let mut command = scene.bare_cuda("attached");
    let mut target = Running::start(command.arg("1").env("WARPSCOPE_SIM", "kernel_ns=1us").stdin(Stdio::piped()));
    assert_eq!(target.stdout_line(), "ready");
    let pid = target.pid().to_string();
    let mut run = Running::start(&mut scene.warpscope(&["record", "-v", "--gpu-only", "-p", &pid, "-o", "x.wscope"]));
    run.stderr_until("attached to process");
    target.signal(libc::SIGSTOP);
    let begun = Instant::now();
    // Which of them is the first after the end has begun is not visible from outside.
    while run.is_running() {
        run.signal(libc::SIGINT);
        thread::sleep(Duration::from_millis(50));
    }
    let took = begun.elapsed();
    let ended = run.wait().exits(0);
    assert!(ended.err().contains("has not confirmed the end of the recording"), "{}", ended.err());
    assert!(took < PATIENCE, "{took:?}");
    target.signal(libc::SIGCONT);
    drop(target.take_stdin());
    target.wait().exits(0);
}

/// Check that kernels can be sampled while several threads launch, also if the hardware buffer overflows and if the recording ends
/// before the program: sampling is switched only while no thread launches.
#[test]
fn sampling_ends_while_threads_launch() {
    let scene = Scene::new();
    let command = format!("{} 1 4 1 1 1000000000", program("truth"));
    let options = "--sim --gpu-only --stalls -d 2 -o x.wscope";
    let mut run = Running::start(scene.record(options, &command).env("WARPSCOPE_SIM", "kernel_ns=1us,stall_full=1"));
    run.stderr_until("the command keeps running");
    let report = scene.report("x.wscope");
    assert_eq!(number(&report["stalls"], "buffer_full"), 1, "{}", report["stalls"]);
    assert_eq!((number(&report, "matched"), lost(&report)), (number(&report, "launches"), 0), "{}", report["ledger"]);
    assert!(number(&report, "launches") > 1_000, "{}", report["launches"]);
    run.signal(libc::SIGTERM);
    run.wait().dies_of(libc::SIGTERM);
}

/// Check that a stopped process, which does not respond, is abandoned after a moment and not reported as killed.
#[test]
fn stopped_processes_are_abandoned() {
    let scene = Scene::new();
    // The shell stops the program once it has connected, and kills it when the recording has been checked.
    let script = format!(
        "{} & until grep -q warpscope-stacks /proc/$!/maps; do sleep 0.01; done; \
         kill -STOP $!; until [ -e checked ]; do sleep 0.05; done; kill -KILL $!",
        endless()
    );
    let options = "--sim --gpu-only -d 2 -o x.wscope";
    let mut run =
        Running::start(scene.record_words(options, &["sh", "-c", &script]).env("WARPSCOPE_SIM", "kernel_ns=1us"));
    run.stderr_until("the command keeps running");
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "sessions_cut_off"), number(&report, "sessions_left")), (0, 1), "{}", report["ledger"]);
    assert!(report["ledger"].to_string().contains("1 CUDA process was still running when the recording stopped"));
    std::fs::write(scene.path("checked"), "").expect("a file");
    run.wait();
}

/// Check that a process that connects, launches and exits before warpscope reads any of it is recorded as itself: warpscope is
/// stopped meanwhile, as on a machine that is too busy.
#[test]
fn processes_that_end_unread_are_recorded() {
    let scene = Scene::new();
    let truth = program("truth");
    let script = format!("touch begun; until [ -e go ]; do sleep 0.01; done; {truth} 1 2 1 1 100; touch done");
    let run = Running::start(&mut scene.record_words("--sim -o x.wscope -o x.jsonl", &["sh", "-c", &script]));
    wait_until("the command has begun", || scene.path("begun").exists());
    run.signal(libc::SIGSTOP);
    std::fs::write(scene.path("go"), "").expect("a file");
    wait_until("the program has ended", || scene.path("done").exists());
    run.signal(libc::SIGCONT);
    run.wait().exits(0);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "launches"), number(&report, "matched")), (200, 200), "{}", report["ledger"]);
    assert_eq!(report["notes"], serde_json::json!([]));
    let events = Events::read(&scene.read("x.jsonl"));
    assert!(events.of("session").all(|session| number(session, "pid") != 0));
}

/// Check that every launch is recorded, counted, or named as lost if warpscope reads nothing for a while and all queues are full, with
/// and without stacks, records and probes. Launches that were only counted used to vanish.
#[test]
fn launches_of_a_stopped_warpscope_are_accounted_for() {
    for (sampling, count) in [(None, 600_000), (Some("4,0"), 1_000_000), (Some("4,1"), 2_200_000)] {
        let scene = Scene::new();
        let command = format!("{} 1000 {count} begun go done end", program("unread"));
        let mut record = scene.record("--sim --gpu-only -o x.wscope", &command);
        record.env("WARPSCOPE_SIM", "kernel_ns=100ns");
        if let Some(sampling) = sampling {
            record.env("WARPSCOPE_SAMPLING", sampling);
        }
        let run = Running::start(&mut record);
        wait_until("the program has begun", || scene.path("begun").exists());
        run.signal(libc::SIGSTOP);
        std::fs::write(scene.path("go"), "").expect("a file");
        wait_until("the program has launched", || scene.path("done").exists());
        run.signal(libc::SIGCONT);
        std::fs::write(scene.path("end"), "").expect("a file");
        let ended = run.wait().exits(0);
        let report = scene.report("x.wscope");
        let lost = ["ring_launches", "queue_full_launches"].map(|cause| number(&report["lost"], cause));
        let launches = number(&report, "launches");
        assert_eq!(launches + lost[0] + lost[1], count + 1, "{sampling:?}: {launches}, {lost:?}");
        assert!(lost[usize::from(sampling.is_some())] > 0, "{sampling:?}: nothing was full");
        let sentence =
            if sampling.is_some() { "launches were dropped: the injected library's queue was full" } else { "" };
        assert!(ended.err().contains(sentence), "{}", ended.err());
    }
}

/// Check that a program that dies of Ctrl-C, without a handler, loses only the GPU work that came after the last periodic
/// flush, and that the ledger counts it. How much that is depends on the machine: `bench/interrupted.py` measures it.
#[test]
fn interrupted_programs_lose_only_their_last_work() {
    let scene = Scene::new();
    let command = format!("timeout -s INT 1.5 {}", endless());
    let options = "--sim -q --gpu-only -o x.wscope -o x.jsonl";
    // The status of `timeout` after it has ended a command.
    Ended::of(scene.record(options, &command).env("WARPSCOPE_SIM", "kernel_ns=1us")).exits(124);
    let events = Events::read(&scene.read("x.jsonl"));
    let done: HashSet<_> = ["kernel", "copy", "memset"].iter().flat_map(|kind| events.of(kind)).map(key).collect();
    let launches = events.of("launch").count();
    assert!(launches > 1_000);
    assert!(done.len() > launches / 2, "{} of {launches} have GPU work", done.len());

    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "sessions_cut_off"), 1, "{}", report["ledger"]);
    assert_eq!(number(&report, "pending_launches") as usize, launches - done.len(), "{}", report["ledger"]);
    let distinct: HashSet<_> =
        events.of("launch").filter(|l| done.contains(&key(l))).map(|l| number(l, "stack")).collect();
    assert_eq!(number(&report, "stacks"), distinct.len() as u64);
    assert!(distinct.len() >= 64, "one for each path");
}

/// Check that a trace without --stacks draws GPU work by kernel and says so, instead of stacks that were never recorded, and
/// that the calls are there with --stacks.
#[test]
fn traces_without_stacks_draw_kernels() {
    let command = format!("{} 1 2 1 1 500", program("truth"));
    for (option, stacks) in [("", false), ("--stacks", true)] {
        let scene = Scene::new();
        let options = format!("--sim {option} -o t.folded -o t.svg -o t.jsonl");
        let run = Ended::of(scene.trace(&options, &command).env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
        let text = scene.read("t.folded");
        assert!(!text.contains("[stack lost]") && !scene.read("t.svg").contains("[stack lost]"), "{text}");
        let kernels: Vec<_> = folded::read(&text).into_iter().filter(|line| line.on_gpu().is_some()).collect();
        assert!(kernels.len() >= 64, "{text}");
        assert!(kernels.iter().all(|line| line.frames[0] == "truth" && line.launcher().is_empty() != stacks), "{text}");
        assert_eq!(run.err().contains("call stacks were not requested"), !stacks, "{}", run.err());
        let note = Trace::read(&scene.read("t.jsonl")).notes;
        assert_eq!(note.iter().any(|note| note.contains("--stacks")), !stacks, "{note:?}");
    }
}
