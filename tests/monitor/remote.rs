//! `monitor --allow-record`: recordings on request.

use std::{fs, os::unix::fs::MetadataExt};

use crate::support::{
    Ended, Running, Scene,
    monitor::{Monitor, request},
    programs, running, wait_until,
};

/// Check that a process is recorded for a client with the token, one recording at a time, and that the client gets the recording
/// when it has ended; that requests without the token are rejected; and that mistakes have their own answers.
#[test]
fn processes_are_recorded_on_request() {
    let scene = Scene::new();
    let (input, end) = std::io::pipe().expect("a pipe");
    let mut command = scene.bare(programs::program("registered"));
    let mut target = Running::start(command.stdin(input).env("LD_LIBRARY_PATH", programs::libraries()));
    assert_eq!(target.stdout_line(), "ready");
    let pid = target.pid();
    let file = scene.path("token");
    let monitor = Monitor::of_machine(&scene, &format!("-p {pid} --allow-record {}", file.display()));
    let token = fs::read_to_string(&file).expect("a token");
    assert_eq!(fs::metadata(&file).expect("a token").mode() & 0o777, 0o600);
    let authorization = format!("Authorization: Bearer {}", token.trim());
    let ask = |what: &str, field: &str| request(&monitor.address, what, field);
    let status = |what: &str, field: &str| ask(what, field).0["HTTP/1.1 ".len()..].split(' ').next().map(str::to_owned);
    let start = format!("POST /record?pid={pid}&seconds=60");
    for (what, field, expected) in [
        (start.as_str(), "Accept: */*", "401"),
        (&start, "Authorization: Bearer 0123456789abcdef", "401"),
        (&start, &format!("{authorization}0"), "401"),
        ("GET /record/0", "Accept: */*", "401"),
        ("POST /record", &authorization, "400"),
        (&format!("POST /record?pid={pid}&seconds=61"), &authorization, "400"),
        ("POST /record?pid=4194304", &authorization, "404"),
        ("GET /record", &authorization, "404"),
        ("POST /metrics", &authorization, "405"),
    ] {
        assert_eq!(status(what, field).as_deref(), Some(expected), "{what} {field}");
    }
    let maps = || fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    assert!(!maps().contains("memfd:"), "nothing was loaded");

    // It is recorded until it ends, which it does when this test wants it to.
    let (head, _) = ask(&start, &authorization);
    assert!(head.starts_with("HTTP/1.1 202 "), "{head}");
    let place = head.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a place").to_owned();
    let result = format!("GET {place}");
    assert_eq!(status(&start, &authorization).as_deref(), Some("409"));
    assert_eq!(status(&result, &authorization).as_deref(), Some("202"));
    assert_eq!(status(&result, "Accept: */*").as_deref(), Some("401"));
    wait_until("the library is loaded", || maps().contains("memfd:"));
    drop(end);
    target.wait().exits(0);
    wait_until("the recording has ended", || status(&result, &authorization).as_deref() != Some("202"));
    let (head, body) = ask(&result, &authorization);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}: {}", String::from_utf8_lossy(&body));
    fs::write(scene.path("x.wscope"), body).expect("a file");
    let report = scene.report("x.wscope");
    assert_eq!(report["processes"].as_u64(), Some(1));
    assert_eq!(status("GET /record/0", &authorization).as_deref(), Some("404"));
    assert_eq!(status(&start, &authorization).as_deref(), Some("404"));
    monitor.stop();
}

/// Check that a recording in progress ends in order if the monitor is killed: the process that records is gone long before its
/// time, and the next run removes its directory.
#[test]
fn a_killed_monitor_ends_its_recording() {
    let scene = Scene::new();
    let (input, end) = std::io::pipe().expect("a pipe");
    let mut command = scene.bare(programs::program("registered"));
    let mut target = Running::start(command.stdin(input).env("LD_LIBRARY_PATH", programs::libraries()));
    assert_eq!(target.stdout_line(), "ready");
    let pid = target.pid();
    let file = scene.path("token");
    let monitor = Monitor::of_machine(&scene, &format!("-p {pid} --allow-record {}", file.display()));
    let token = fs::read_to_string(&file).expect("a token");
    let authorization = format!("Authorization: Bearer {}", token.trim());
    let (head, _) = request(&monitor.address, &format!("POST /record?pid={pid}&seconds=60"), &authorization);
    assert!(head.starts_with("HTTP/1.1 202 "), "{head}");
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let sends =
        || threads().any(|task| fs::read(task.path().join("comm")).is_ok_and(|comm| comm == b"warpscope-send\n"));
    wait_until("the process is recorded", sends);
    let children = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        children.collect::<String>().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // The other child reads files.
    let records =
        |pid: &String| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm != "warpscope-parse\n");
    let recorders: Vec<String> = children(monitor.pid()).into_iter().filter(records).collect();
    let [recorder] = &recorders[..] else { panic!("one process records: {recorders:?}") };
    let killed = std::time::Instant::now();
    running::kill(monitor.pid() as libc::pid_t, libc::SIGKILL);
    wait_until("the process is no longer recorded", || !sends());
    let stat = || fs::read_to_string(format!("/proc/{recorder}/stat")).unwrap_or_default();
    wait_until("the recording ends", || stat().is_empty() || stat().contains(") Z "));
    assert!(killed.elapsed().as_secs() < 30, "it would have recorded for 60 s");
    Ended::of(&mut scene.record("-q -o x.svg", "true")).exits(0);
    drop((end, monitor));
    target.wait().exits(0);
}
