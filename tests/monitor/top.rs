//! `warpscope top` on a terminal.

use text::units::count;

use crate::support::{
    Ended, Running, Scene, Terminal,
    monitor::Watched,
    scene::{lost, number},
};

/// The bytes that keys send.
const ENTER: &[u8] = b"\r";
const ESCAPE: &[u8] = b"\x1b";

fn start(scene: &Scene) -> (Terminal, Running) {
    let mut arguments: Vec<String> =
        "top --interval 0.1 --record-seconds 0.5 --no-nvml".split(' ').map(str::to_owned).collect();
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

/// Check that a new process is shown with its kernels, its memory by line, its errors and its history; that keys choose columns,
/// sort, filter, help and quit; that the screen adapts to another size; and that the terminal is restored.
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

    terminal.send(b"t");
    terminal.shows(|screen| screen.contains("live memory 5.0") && screen.contains(" last "));
    terminal.send(ESCAPE);
    terminal.shows(|screen| !screen.contains(" last "));
    terminal.send(b"c");
    terminal.shows(|screen| screen.contains("> [x] user"));
    terminal.send(b" ");
    terminal.shows(|screen| screen.contains("> [ ] user"));
    terminal.send(ENTER);
    terminal.shows(|screen| !screen.contains("[ ] user") && !screen.contains("pid user"));

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

/// Check that r records the selected process while the screen is updated, and that the message names the files.
#[test]
fn the_selected_process_is_recorded() {
    let scene = Scene::new();
    let (mut terminal, run) = start(&scene);
    let mut watched = Watched::start(&scene);
    let pid = watched.pid().to_string();
    terminal.shows(|screen| {
        watched.does("kernels 3");
        screen.lines().any(|line| line.contains(&pid) && line.contains("watched"))
    });
    terminal.send(b"r");
    terminal.shows(|screen| screen.contains(&format!("recording process {pid} for 0.5 s")));
    let mut shown = String::new();
    terminal.shows(|screen| {
        watched.does("kernels 3");
        screen.contains(&format!("process {pid}: wrote warpscope.html and warpscope.wscope: ")) && {
            shown = screen.to_owned();
            true
        }
    });
    terminal.send(b"q");
    assert_restored(terminal, run);
    watched.end();
    let report = scene.report("warpscope.wscope");
    assert_eq!(report["command"][0].as_str(), Some(format!("watched ({pid})").as_str()));
    assert!(number(&report, "wall_ns") >= 500_000_000, "{}", report["wall_ns"]);
    assert_eq!((number(&report, "matched"), lost(&report)), (number(&report, "kernels"), 0));
    // The message has the numbers of the recording.
    let launches = number(&report, "launches");
    let counted = if launches == 1 { "1 launch,".to_owned() } else { format!("{} launches,", count(launches)) };
    assert!(launches > 0 && shown.contains(&format!("warpscope.wscope: {counted}")), "{launches}: {shown}");
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

/// Check that an unknown column is answered with the names of all.
#[test]
fn unknown_columns_are_explained() {
    let run = Ended::of(&mut Scene::new().warpscope(&["top", "--columns", "pid,gpu"])).exits(2);
    assert!(run.err().contains("'gpu'") && run.err().contains("choose from pid, user, gpus, "), "{}", run.err());
}
