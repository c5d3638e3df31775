//! Short processes: what is counted of them, and whether the monitor says so if nothing is.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use crate::support::{Ended, Running, Scene, monitor::Monitor, programs, running, wait_until};

/// Whether a server answers `/healthz` with 200; `false` if it does not listen yet.
fn is_healthy(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut answer = String::new();
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200 ")
}

/// Check that a process which starts as soon as the health check succeeds is counted completely, however short it is.
#[test]
fn a_healthy_monitor_counts_the_next_process() {
    let scene = Scene::new();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port").to_string();
    let arguments = ["monitor", "--metrics-addr", &address, "--display-interval", "0", "--no-nvml"];
    let mut command = scene.warpscope(&arguments);
    let mut starting = Running::start(command.env("LD_LIBRARY_PATH", programs::libraries()));
    wait_until("the monitor is healthy", || is_healthy(&address));
    let short = Running::start(scene.bare_cuda("brief").arg("1000"));
    let pid = short.pid().to_string();
    short.wait().exits(0);
    starting.stderr_until("metrics on http://");
    let monitor = Monitor { running: starting, address };
    assert_eq!(monitor.scrape().sum("warpscope_launches_total", &[("pid", &pid)]), 1000);
    monitor.stop();
}

/// Check that a process is counted as missed, once, if it ends before the libraries that it loaded are probed.
#[test]
fn processes_that_end_before_they_are_watched_are_missed() {
    let scene = Scene::new();
    fs::create_dir(scene.path("lib")).expect("a directory");
    for name in ["libcuda.so.1", "libcudart.so.13"] {
        fs::copy(programs::libraries().join(name), scene.path("lib").join(name)).expect("a copy");
    }
    let monitor = Monitor::start(&scene, "");
    let missed = || monitor.scrape().sum("warpscope_missed_processes_total", &[]);
    // Other tests load libraries, too.
    let before = missed();
    running::kill(monitor.pid() as libc::pid_t, libc::SIGSTOP);
    Ended::of(scene.bare_cuda("brief").arg("1").env("LD_LIBRARY_PATH", scene.path("lib"))).exits(0);
    running::kill(monitor.pid() as libc::pid_t, libc::SIGCONT);
    wait_until("it is missed", || missed() > before);
    let metrics = monitor.scrape();
    assert!(!metrics.any(&[("comm", "brief")]));
    let log = monitor.stop();
    assert!(log.err().contains("exited before its CUDA library was probed"), "{}", log.err());
}
