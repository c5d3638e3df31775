//! The privileges that warpscope needs, and those that it keeps: docs/privileges.md.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::support::{
    Ended, Running, Scene,
    folded::kernels_by_path,
    monitor::Monitor,
    program,
    programs::WARPSCOPE,
    running::kill,
    scene::{lost, number},
    wait_until,
};

/// Users of no other test: the memory that a user may lock for mapping records is shared by all recordings of that user.
const USERS: [&str; 2] = ["64321", "64322"];

/// A command run by a user with only CAP_BPF and CAP_PERFMON, which its programs inherit, and with no lockable memory.
fn with_two_capabilities(scene: &Scene, user: &str) -> Command {
    let mut command = scene.bare("prlimit");
    command.env("WARPSCOPE_SIM", "kernel_ns=3us").args(["--memlock=0:0", "setpriv"]);
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    command.args([
        "--inh-caps=-all,+bpf,+perfmon",
        "--ambient-caps=+bpf,+perfmon",
        "--bounding-set=-all,+bpf,+perfmon",
    ]);
    command
}

/// Check that a user with only CAP_BPF and CAP_PERFMON and no lockable memory records and traces its own program exactly.
#[test]
fn two_capabilities_are_enough() {
    let scene = Scene::new();
    // Other users may have no access to the build directory.
    crate::support::programs::copy(program("truth"), scene.path("truth"));
    crate::support::programs::copy(WARPSCOPE, scene.path("warpscope"));
    let run = |words: &str| {
        let mut command = with_two_capabilities(&scene, USERS[0]);
        Ended::of(command.arg(scene.path("warpscope")).args(words.split(' '))).exits(0);
    };
    let truth = format!("{} 1 2 1 1 500", scene.text("truth"));
    run(&format!("record --sim -q -o x.wscope -o x.folded -- {truth}"));
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "matched"), number(&report, "launches"), lost(&report)), (1_000, 1_000, 0));
    let kernels: u64 = kernels_by_path(&scene.read("x.folded"), 3).values().sum();
    assert_eq!(kernels, number(&report, "kernels"));
    run(&format!("trace --sim -q -o y.wscope -- {truth}"));
    let report = scene.report("y.wscope");
    assert_eq!((number(&report, "matched"), number(&report, "launches"), lost(&report)), (1_000, 1_000, 0));
    let calls = report["trace"]["functions"].as_array().expect("functions");
    // Every launch of the program reaches one of these.
    let launching = |name: &str| ["cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2"].contains(&name);
    let made =
        calls.iter().filter(|call| call["name"].as_str().is_some_and(launching)).map(|call| number(call, "calls"));
    assert_eq!(made.sum::<u64>(), 1_000, "{calls:#?}");
}

/// Check that the command, a disassembler and the process that samples counters get none of the capabilities that warpscope
/// was given, even if those are ambient, which other programs inherit.
#[test]
fn capabilities_are_not_passed_on() {
    let scene = Scene::new();
    let cubin = crate::support::programs::sources().join("../crates/symbols/tests/cubins/triton.cubin");
    crate::support::programs::copy(cubin, scene.path("cubin"));
    crate::support::programs::copy(program("stalled"), scene.path("stalled"));
    crate::support::programs::copy(WARPSCOPE, scene.path("warpscope"));
    let show = "grep Cap[PEA] /proc/self/status";
    let tool = scene.path("nvdisasm");
    // It may not write files.
    let shown = format!("mkdir {}$(sed -n 's/CapEff:.//p' /proc/self/status)", scene.text("tool-"));
    fs::write(&tool, format!("#!/bin/sh\n{shown}\n")).expect("ours");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("ours");
    let command = format!("{show} > of-the-command; exec ./stalled");
    let run = |options: &str| {
        let mut warpscope = with_two_capabilities(&scene, USERS[1]);
        warpscope.arg(scene.path("warpscope")).args(options.split(' ')).args(["--", "sh", "-c", &command]);
        let sampled = format!("cubin={},stall[gather]=0x5b0:long_scoreboard:20", scene.text("cubin"));
        let script = format!("{sampled},pm_owner={},meter={}", scene.text("owner"), scene.text("meter"));
        warpscope.env("WARPSCOPE_NVDISASM", scene.path("nvdisasm")).env("WARPSCOPE_SIM", script);
        Ended::of(&mut warpscope).exits(0);
    };
    run("record --sim -q --counters -o x.wscope");
    let none = "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n";
    assert_eq!(scene.read("of-the-command"), none);
    assert_eq!(scene.read("owner").trim(), format!("{} 0000000000000000", USERS[1]));
    run("record --sim -q --stalls -o x.wscope");
    assert!(scene.path("tool-0000000000000000").is_dir(), "{:?}", scene.files());
}

/// CAP_DAC_READ_SEARCH, KILL, SYS_PTRACE, SYSLOG, PERFMON, BPF and CHECKPOINT_RESTORE.
const FOLLOW: u64 = 1 << 2 | 1 << 5 | 1 << 19 | 1 << 34 | 1 << 38 | 1 << 39 | 1 << 40;
/// CAP_DAC_OVERRIDE and FOWNER, to write outputs where root can.
const AS_ROOT: u64 = 1 << 1 | 1 << 3;

/// What the kernel says about the rights of a process or thread.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    uid: String,
    capabilities: [u64; 5],
    new_privileges: bool,
    filtered: bool,
}

impl Rights {
    fn of(process: &str) -> Self {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        Self::parse(&status)
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":"));
            value.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
        };
        let set = |name: &str| u64::from_str_radix(&field(name), 16).expect("a set");
        Self {
            uid: field("Uid"),
            capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(set),
            new_privileges: field("NoNewPrivs") == "0",
            filtered: field("Seccomp") == "2",
        }
    }
}

fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the process that forks those that read files.
fn zygote(warpscope: i32) -> i32 {
    let is_it =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "warpscope-parse");
    children(warpscope).into_iter().find(is_it).expect("it is there")
}

/// Returns the niceness of the main thread: the 19th field of its state, after the name in parentheses.
fn niceness(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    fields.split(' ').nth(16).and_then(|niceness| niceness.parse().ok()).expect("a number")
}

/// Checks that all threads of a process have the documented rights, and that the process that reads files has none.
fn check_rights(pid: i32, kept: u64) {
    wait_until("it has started", || Rights::of(&pid.to_string()).filtered);
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("it runs") {
        let task = task.expect("a thread").file_name().into_string().expect("a number");
        let rights = Rights::of(&format!("{pid}/task/{task}"));
        assert_eq!(rights.capabilities, [0, kept, kept, kept, 0], "thread {task}");
        assert!(rights.filtered && !rights.new_privileges, "thread {task}");
    }
    assert_eq!(niceness(pid), -10, "the thread that collects must react at once");
    let zygote = zygote(pid);
    let rights = Rights::of(&zygote.to_string());
    let nobody = ["65534"; 4].join("\t");
    assert_eq!(rights, Rights { uid: nobody, capabilities: [0; 5], new_privileges: false, filtered: true });
    let descriptors = fs::read_dir(format!("/proc/{zygote}/fd")).expect("root may look");
    let targets: Vec<String> = descriptors
        .map(|entry| fs::read_link(entry.expect("an entry").path()).expect("a link").to_string_lossy().into_owned())
        .collect();
    assert!(matches!(&targets[..], [socket] if socket.starts_with("socket:")), "{targets:?}");
}

/// Check that `record` and `trace` keep the documented rights once the command runs, and that the command has those that it has
/// without warpscope.
#[test]
fn recordings_keep_what_they_need() {
    let own = Rights::of("self");
    for command in ["record", "trace"] {
        let scene = Scene::new();
        let script = format!("cat /proc/self/status > status; exec {} interrupt", program("behave"));
        let words = ["sh", "-c", &script];
        let mut run = Running::start(&mut match command {
            "record" => scene.record_words("--sim -q -o x.wscope", &words),
            _ => scene.trace_words("--sim -q -o x.wscope", &words),
        });
        assert_eq!(run.stdout_line(), "ready");
        check_rights(run.pid(), FOLLOW | AS_ROOT);
        assert_eq!(Rights::parse(&scene.read("status")), own, "{command}");
        run.signal(libc::SIGINT);
        run.wait().exits(7);
        let report = scene.report("x.wscope");
        assert_eq!(number(&report, "matched"), number(&report, "launches"));
    }
}

/// Check the same for `monitor`.
#[test]
fn the_monitor_keeps_what_it_needs() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "");
    check_rights(monitor.pid().cast_signed(), FOLLOW);
    monitor.stop();
}

/// Check that a recording is exact and ends in order if the processes that read files are killed, and that it says what is missing.
/// Nothing else demangles the names of kernels.
#[test]
fn a_recording_survives_its_parsers() {
    let scene = Scene::new();
    let start = || {
        let mut command = scene.record("--sim -o x.wscope -o x.folded", &format!("{} interrupt", program("behave")));
        let mut run = Running::start(command.env("BEHAVE_KERNEL", "_Z6behavev"));
        assert_eq!(run.stdout_line(), "ready");
        run
    };
    let run = start();
    run.signal(libc::SIGINT);
    run.wait().exits(7);
    assert!(scene.read("x.folded").contains("] behave() "), "{}", scene.read("x.folded"));
    let run = start();
    assert_eq!(kill(zygote(run.pid()), libc::SIGKILL), 0);
    run.signal(libc::SIGINT);
    let run = run.wait().exits(7);
    let note = "names are missing: the process that reads files was killed";
    assert_eq!(run.err().matches(note).count(), 1, "{}", run.err());
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "matched"), number(&report, "launches"));
    assert!(number(&report["lost"], "files_unread") > 0, "{report}");
    let folded = scene.read("x.folded");
    assert!(folded.contains("[behave]") && folded.contains("] _Z6behavev "), "{folded}");
}
