//! The lines that allocate.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    monitor::{Monitor, Watched},
    programs, pythons, wait_until,
};

/// Check that a suspect has all its labels from the first scrape that contains it on: another label is another time series.
#[test]
fn suspects_have_all_labels_at_once() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "--memleak");
    let mut leaker = Watched::start(&scene);
    leaker.does("leak 3");
    let pid = leaker.pid().to_string();
    let mut metrics = None;
    wait_until("the leak has a series", || {
        let scraped = monitor.scrape();
        let any = scraped.sum("warpscope_memory_suspect_bytes", &[("pid", &pid)]) > 0;
        metrics = Some(scraped);
        any
    });
    let metrics = metrics.expect("a scrape");
    let sites = metrics.values("warpscope_memory_suspect_bytes", "site", &[("pid", &pid)]);
    assert_eq!(sites, [("forget_to_free (watched.c:30)".to_owned(), 3 << 20)]);
    leaker.end();
    monitor.stop();
}

/// Check the map of live memory as JSON: exact sizes, and whole stacks.
#[test]
fn the_memory_map_is_exact_in_json() {
    let scene = Scene::new();
    let (monitor, mut pilot) = Monitor::with_pilot(&scene, "");
    pilot.does("leak 2");
    pilot.does("work");
    let pid = pilot.pid();
    let command = ["monitor", "--metrics-addr", &monitor.address, "--json", "--map", &pid.to_string()];
    let printed = Ended::of(&mut scene.warpscope(&command)).exits(0);
    let map: Value = serde_json::from_str(printed.out()).expect("JSON");
    assert_eq!((map["pid"].as_u64(), map["incomplete"].as_bool()), (Some(pid.into()), Some(false)), "{map}");
    let allocations = map["allocations"].as_array().expect("a list");
    let mut sizes: Vec<u64> = allocations.iter().filter_map(|allocation| allocation["bytes"].as_u64()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [64, 2_000, 12_288, 1 << 20, 1 << 20]);
    assert_eq!(map["live_bytes"].as_u64(), Some(sizes.iter().sum()));
    let leaks = allocations.iter().filter(|allocation| allocation["line"] == "forget_to_free (watched.c:30)");
    let leaks: Vec<&Value> = leaks.collect();
    assert_eq!(leaks.len(), 2, "{map}");
    let stack = leaks[0]["stack"].as_array().expect("a stack");
    assert!(stack.iter().any(|frame| frame.as_str().is_some_and(|frame| frame.starts_with("load_model"))), "{map}");
    pilot.end();
    monitor.stop();
}

/// Check that the first allocation of a Python program has its Python line, if the program loaded CUDA before; also if others ran
/// the same lines, and have been forgotten since.
#[test]
fn first_allocations_of_python_have_their_line() {
    let scene = Scene::new();
    fs::write(
        scene.path("first.py"),
        "import ctypes, sys\ncudart = ctypes.CDLL('libcudart.so.12')\nprint('ready', flush=True)\n\
         def allocate():\n    cudart.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4096)\n\
         for line in sys.stdin:\n    allocate()\n    print('done', flush=True)\n",
    )
    .expect("a file");
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "--memleak");
    for python in pythons::installed() {
        let mut command = scene.bare(&python.path);
        command.arg("first.py").env("LD_LIBRARY_PATH", programs::libraries());
        let mut program = Watched::of(&mut scene.grouped(command));
        let pid = program.pid().to_string();
        // The monitor answers after it has read which files were mapped.
        monitor.scrape();
        program.does("allocate");
        let mut sites = Vec::new();
        wait_until("the allocation has a series", || {
            sites = monitor.scrape().values("warpscope_memory_suspect_bytes", "site", &[("pid", &pid)]);
            !sites.is_empty()
        });
        assert_eq!(sites, [("first.py:5 allocate".to_owned(), 4096)], "{python}");
        program.end();
        // Once a second, after a scrape, the monitor forgets the processes whose end it has reported.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            monitor.scrape();
        }
        (0..2).for_each(|_| drop(monitor.scrape()));
    }
    monitor.stop();
}
