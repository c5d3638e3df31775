//! `monitor --max-overhead`.

use crate::support::{
    Scene,
    monitor::{Metrics, Monitor, Watched},
    wait_until,
};

fn launches(metrics: &Metrics, program: &Watched) -> u64 {
    metrics.sum("warpscope_launches_total", &[("pid", &program.pid().to_string())])
}

fn paused(metrics: &Metrics) -> f64 {
    metrics.one("warpscope_paused_seconds_total", &[])
}

/// Check that launches are not counted for a while if the budget is exceeded, that memory is counted exactly meanwhile, and
/// that the monitor says so.
#[test]
fn launches_pause_and_memory_does_not() {
    let scene = Scene::new();
    // Any launch exceeds this budget, so the pause is the longest: a minute.
    let (monitor, pilot) = Monitor::with_pilot(&scene, "--max-overhead 0.0000001");
    let mut program = Watched::start(&scene);
    wait_until("counting pauses", || {
        program.does("launch 10");
        paused(&monitor.scrape()) > 0.0
    });
    wait_until("the probes are removed", || {
        let before = launches(&monitor.scrape(), &program);
        program.does("launch 10");
        launches(&monitor.scrape(), &program) == before
    });
    let before = launches(&monitor.scrape(), &program);
    program.does("leak 3");
    program.does("launch 10");
    let metrics = monitor.scrape();
    assert_eq!(launches(&metrics, &program), before);
    let pid = program.pid().to_string();
    assert_eq!(metrics.sum("warpscope_memory_live_allocations", &[("pid", &pid), ("space", "device")]), 3);
    assert_eq!(metrics.sum("warpscope_memory_live_bytes", &[("pid", &pid), ("space", "device")]), 3 << 20);
    program.end();
    pilot.end();
    let output = monitor.stop();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("counted only part of the time"), "{log}");
}

/// Check that counting resumes after the pause: launches without pause take some ten times this budget.
#[test]
fn counting_resumes() {
    let scene = Scene::new();
    let (monitor, pilot) = Monitor::with_pilot(&scene, "--max-overhead 20");
    let mut program = Watched::start(&scene);
    wait_until("counting pauses", || {
        program.does("launch 2000");
        paused(&monitor.scrape()) > 0.0
    });
    wait_until("the probes are removed", || {
        let before = launches(&monitor.scrape(), &program);
        program.does("launch 10");
        launches(&monitor.scrape(), &program) == before
    });
    wait_until("launches are counted again", || {
        let before = launches(&monitor.scrape(), &program);
        program.does("launch 1");
        launches(&monitor.scrape(), &program) > before
    });
    program.end();
    pilot.end();
    monitor.stop();
}

/// Check that everything is counted within the budget.
#[test]
fn nothing_pauses_within_the_budget() {
    let scene = Scene::new();
    let (monitor, pilot) = Monitor::with_pilot(&scene, "--max-overhead 10000");
    let mut program = Watched::start(&scene);
    program.does("launch 1000");
    let metrics = monitor.scrape();
    assert_eq!((launches(&metrics, &program), paused(&metrics)), (1000, 0.0));
    program.end();
    pilot.end();
    monitor.stop();
}
