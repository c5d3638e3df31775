//! The console: every process appears, and its rates agree.

use std::fs::File;

use crate::support::{
    Running, Scene,
    monitor::{Monitor, Watched},
    wait_until,
};

/// Check that processes which end between two tables are in the next one, once, also if a scrape comes first; and that those since
/// the last table are in the one at the end.
#[test]
fn ended_processes_are_shown_once() {
    let scene = Scene::new();
    let out = File::create(scene.path("console")).expect("a file");
    let group = scene.group().map(|group| format!("--cgroup={}", group.path().display()));
    let mut command = scene.warpscope(&["monitor", "--metrics-addr", "127.0.0.1:0", "--display-interval", "60"]);
    let monitor = Monitor::of(command.args(group).stdout(out));
    let _pilot = monitor.pilot(&scene);
    let run = || {
        let short = Running::start(scene.bare_cuda("brief").arg("7"));
        let pid = short.pid().to_string();
        short.wait().exits(0);
        pid
    };
    let (first, second) = (run(), run());
    for pid in [&first, &second] {
        wait_until("its last numbers are scraped", || {
            let labels = [("pid", pid.as_str()), ("kernel", "first(float*, int)")];
            monitor.scrape().sum("warpscope_kernel_launches_total", &labels) == 7
        });
    }
    let third = run();
    monitor.stop();
    let text = scene.read("console");
    for pid in [first, second, third] {
        let is_row = |line: &&str| line.split_whitespace().next() == Some(&pid) && line.contains("brief");
        let rows = text.lines().filter(is_row);
        let rows: Vec<&str> = rows.collect();
        assert!(matches!(rows[..], [row] if row.ends_with(", ended")), "{pid} in {text}");
    }
}

/// The value of a rate, such as `44,977`.
fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or(0.0)
}

/// Check that a kernel has no higher rate than its process when its row appears: its launches were counted in an earlier interval,
/// while its name was being resolved.
#[test]
fn kernels_that_get_a_row_have_no_higher_rate() {
    let scene = Scene::new();
    let mut target = Watched::start(&scene);
    let out = File::create(scene.path("console")).expect("a file");
    let arguments = ["monitor", "--metrics-addr", "", "--display-interval", "0.5", "--no-nvml", "-p"];
    let monitor = Running::start(scene.warpscope(&arguments).arg(target.pid().to_string()).stdout(out));
    wait_until("the first table is printed", || scene.read("console").contains("GPU process"));
    target.does("launch 20000");
    wait_until("the kernel has a row", || scene.read("console").contains("[unknown kernel"));
    target.end();
    monitor.wait().exits(0);
    let text = scene.read("console");
    let mut rows = 0;
    for block in text.split(" GPU process") {
        let rate = |part: &str, column: usize| {
            let row = block.lines().find(|line| line.contains(part))?;
            row.split_whitespace().nth(column).map(number)
        };
        let (process, kernel) = (rate("watched (", 5), rate("[unknown kernel", 1));
        assert!(
            kernel.unwrap_or(0.0) <= process.unwrap_or(0.0) + 1.0,
            "{kernel:?} of {process:?} per second in {text}"
        );
        rows += usize::from(kernel.is_some());
    }
    assert!(rows > 0, "{text}");
}

/// Check that a process whose kernels have no names shows each of them.
#[test]
fn unknown_kernels_are_distinguished() {
    let scene = Scene::new();
    let mut target = Watched::start(&scene);
    let monitor = Monitor::of_machine(&scene, &format!("-p {}", target.pid()));
    target.does("work");
    let launches = || monitor.scrape().values("warpscope_kernel_launches_total", "kernel", &[]);
    wait_until("all launches have a kernel", || launches().iter().map(|(_, count)| count).sum::<u64>() == 12);
    let mut found: Vec<(String, u64)> = launches();
    found.sort_by_key(|(_, count)| *count);
    let counts: Vec<u64> = found.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2, 3, 7], "{found:?}");
    assert_eq!(found[0].0, "by_driver");
    assert!(found[1..].iter().all(|(name, _)| name.starts_with("[unknown kernel 0x")), "{found:?}");
    target.end();
    monitor.stop();
}

/// Check that tables in a file are whole.
#[test]
fn tables_in_a_file_are_whole() {
    let scene = Scene::new();
    let mut target = Watched::start(&scene);
    let arguments = ["monitor", "--metrics-addr", "", "--display-interval", "0.2", "-p"];
    let out = File::create(scene.path("console")).expect("a file");
    let monitor = Running::start(scene.warpscope(&arguments).arg(target.pid().to_string()).stdout(out));
    wait_until("all kernels are shown", || {
        target.does("kernels 30");
        let text = scene.read("console");
        (0..30).all(|kernel| text.contains(&format!("  k{kernel}\n")))
    });
    target.end();
    monitor.wait().exits(0);
    assert!(!scene.read("console").contains('…'), "{}", scene.read("console"));
}
