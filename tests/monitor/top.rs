//! `warpscope top` on a terminal.

use crate::support::{Running, Scene, Terminal, monitor::Watched};

/// The bytes that keys send.
const ENTER: &[u8] = b"\r";
const ESCAPE: &[u8] = b"\x1b";

fn start(scene: &Scene) -> (Terminal, Running) {
    let mut arguments = vec!["top".to_owned(), "--interval".to_owned(), "0.1".to_owned(), "--no-nvml".to_owned()];
    arguments.extend(scene.group().map(|group| format!("--cgroup={}", group.path().display())));
    let (mut terminal, run) = Terminal::start(&mut scene.warpscope(&arguments));
    terminal.shows(|screen| screen.contains("GPU processes") && screen.contains("sorted by live memory"));
    (terminal, run)
}

#[track_caller]
fn assert_restored(mut terminal: Terminal, run: Running) {
    while terminal.more() {}
    run.wait().exits(0);
    assert!(terminal.is_restored(), "{}", terminal.text);
}

/// Check that a new process is shown with its kernels, its memory by line and its errors; that keys sort, filter, help and quit;
/// that the screen adapts to another size; and that the terminal is restored.
#[test]
fn keys_control_the_screen() {
    let scene = Scene::new();
    let (mut terminal, run) = start(&scene);
    let mut leaker = Watched::start(&scene);
    let pid = leaker.pid().to_string();
    terminal.shows(|screen| {
        leaker.does("leak 1");
        screen.lines().any(|line| line.contains(&pid) && line.contains("watched"))
    });
    leaker.does("free");
    leaker.does("kernels 3");
    leaker.does("leak 5");
    leaker.does("work");
    terminal.send(ENTER);
    let all = ["k0", "k2", "5.00 MiB", "watched.c:30", "load_model"];
    terminal.shows(|screen| all.iter().all(|text| screen.contains(text)));
    // Scroll to the end.
    terminal.send(b"          ");
    terminal.shows(|screen| screen.contains("cudaErrorMemoryAllocation") && !screen.contains("k0"));
    terminal.send(ENTER);
    terminal.shows(|screen| !screen.contains("watched.c:30"));

    terminal.send(b"s");
    terminal.shows(|screen| screen.contains("sorted by launches"));
    terminal.send(b"/nobody-has-this-name");
    terminal.send(ENTER);
    terminal.shows(|screen| screen.contains("nobody-has-this-name") && !screen.contains(&pid));
    terminal.send(ESCAPE);
    terminal.shows(|screen| screen.contains(&pid));
    terminal.send(b"?");
    terminal.shows(|screen| screen.contains("this help"));
    terminal.send(b" ");
    terminal.shows(|screen| !screen.contains("this help"));
    terminal.resize(80, 24);
    terminal
        .shows(|screen| screen.contains(&pid) && screen.lines().last().is_some_and(|line| line.contains("sorted by")));

    terminal.send(b"q");
    assert_restored(terminal, run);
    leaker.end();
}

/// Check that a signal also ends it, and that the terminal is restored.
#[test]
fn a_signal_restores_the_terminal() {
    let scene = Scene::new();
    let (terminal, run) = start(&scene);
    assert!(terminal.is_in_use());
    run.signal(libc::SIGTERM);
    assert_restored(terminal, run);
}
