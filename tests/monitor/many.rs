//! Many processes: at a steady rate, and one after another.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use crate::support::{
    Ended, Scene,
    monitor::{Metrics, Monitor, Watched},
    wait_until,
};

const PROCESSES: u64 = 64;

/// A number from the environment, for longer runs than CI has time for.
fn variable_or(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Returns the resident memory in bytes.
fn resident(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    4096 * statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number")
}

/// Check that 64 processes with 128,000 calls a second together, scraped twice a second, are counted exactly, and that memory
/// stays below 60 MB and flat. `bench/monitor/steady.py` measures the cost.
#[test]
fn steady_calls_are_counted_exactly() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    let seconds = variable_or("WARPSCOPE_STEADY_SECONDS", 5);
    // In 100 bursts per second, each a multiple of ten calls.
    let rate = 2_000;
    let mut all: Vec<Watched> = (0..PROCESSES)
        .map(|_| {
            let mut command = scene.bare_cuda("steady");
            Watched::of(command.args([seconds.to_string(), rate.to_string(), scene.text("go")]))
        })
        .collect();
    let before = resident(monitor.pid());
    let started = Instant::now();
    fs::write(scene.path("go"), "").expect("a file");
    let mut peak = before;
    while started.elapsed() < Duration::from_secs(seconds) {
        monitor.scrape();
        peak = peak.max(resident(monitor.pid()));
        // A frequent scraper; the usual interval is 5 to 60 seconds.
        std::thread::sleep(Duration::from_millis(500));
    }
    for process in &mut all {
        process.says("done");
    }
    let after = resident(monitor.pid());
    let metrics = monitor.scrape();
    let tenth = seconds * rate / 10;
    for process in &all {
        let pid = process.pid().to_string();
        let of = |name: &str, labels: &[(&str, &str)]| metrics.sum(name, &[&[("pid", pid.as_str())], labels].concat());
        assert_eq!(of("warpscope_memory_allocations_total", &[]), tenth + 1);
        assert_eq!(of("warpscope_memory_frees_total", &[]), tenth);
        assert_eq!(of("warpscope_kernel_launches_total", &[("kernel", "steady")]), tenth);
        assert_eq!(of("warpscope_copied_bytes_total", &[("direction", "HtoD")]), 8 * tenth);
        // Of ten calls, six only query: those are not watched.
        assert_eq!(of("warpscope_call_duration_seconds_count", &[]), 4 * tenth + 6);
    }
    assert_eq!(metrics.sum("warpscope_lost_calls_total", &[]), 0);
    // Names can be found at any time, and are then kept.
    assert!(
        peak < 60_000_000 && after < before + 20_000_000,
        "resident: {before} bytes, {peak} at most, {after} after"
    );
    drop(all);
    monitor.stop();
}

/// Check that threads which make the first calls of their process at the same moment are counted as one process, with every
/// allocation and with the peak that all of them raise.
#[test]
fn first_calls_at_once_belong_to_one_process() {
    // Two threads are close enough in a few of 1,000 rounds.
    const ROUNDS: usize = 900;
    const THREADS: u64 = 2;
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "--max-series 200000");
    let before = monitor.scrape().sum("warpscope_processes", &[]);
    let mut first = Watched::of(scene.bare_cuda("first").args([ROUNDS.to_string(), THREADS.to_string()]));
    first.says("done");
    let bytes = 256 * THREADS * (THREADS + 1) / 2;
    // Twice, because numbers of a lost image would only be in the first scrape.
    for _ in 0..2 {
        let metrics = monitor.scrape();
        // If one process had two images, one would be lost.
        assert_eq!(metrics.sum("warpscope_processes", &[]), before + ROUNDS as u64);
        for (name, expected) in [
            ("warpscope_memory_allocations_total", THREADS),
            ("warpscope_memory_live_bytes", bytes),
            ("warpscope_memory_peak_bytes", bytes),
        ] {
            let found = metrics.values(name, "pid", &[("comm", "first")]);
            assert_eq!(found.len(), ROUNDS, "{name}");
            assert!(found.iter().all(|(_, count)| *count == expected), "{name}: not {expected} in {found:?}");
        }
    }
    first.end();
    monitor.stop();
}

/// Check that every launch of processes that live for milliseconds, one after another, is counted, and that their entries are
/// removed.
#[test]
fn short_processes_are_counted_and_cleaned_up() {
    let scene = Scene::new();
    let (monitor, pilot) = Monitor::with_pilot(&scene, "--keep-ended 5");
    let count = variable_or("WARPSCOPE_SHORT_PROCESSES", 300);
    let pilot_pid = pilot.pid().to_string();
    let mut launches = BTreeMap::<String, u64>::new();
    let mut counted = 0;
    let mut add = |metrics: &Metrics, launches: &mut BTreeMap<String, u64>| {
        // Processes beyond the limit are in "other".
        let own = metrics.values("warpscope_launches_total", "pid", &[("comm", "calls")]);
        let other = metrics.values("warpscope_launches_total", "pid", &[("pid", "other")]);
        for (pid, count) in own.into_iter().chain(other) {
            // A reused pid starts again from 0.
            let before = launches.insert(pid, count).unwrap_or(0);
            counted += if count >= before { count - before } else { count };
        }
    };
    let mut first_resident = 0;
    for number in 0..count {
        Ended::of(&mut scene.bare_cuda("calls")).exits(0);
        if number % 25 == 0 {
            add(&monitor.scrape(), &mut launches);
        }
        if number == count / 5 {
            first_resident = resident(monitor.pid());
        }
    }
    let metrics = monitor.scrape();
    add(&metrics, &mut launches);
    assert_eq!(metrics.sum("warpscope_lost_calls_total", &[]), 0);
    assert_eq!(counted, 5 * count, "launches of all processes");
    wait_until("the kernel's maps hold the pilot alone", || {
        let metrics = monitor.scrape();
        metrics.one("warpscope_processes", &[]) >= 1.0
            && metrics.values("warpscope_launches_total", "comm", &[]).iter().all(|(comm, _)| comm != "calls")
            && metrics.sum("warpscope_map_entries", &[("map", "memory")])
                <= metrics.one("warpscope_processes", &[]) as u64 * 3
    });
    assert!(monitor.scrape().any(&[("pid", &pilot_pid)]));
    assert!(resident(monitor.pid()) < 60_000_000, "{} bytes", resident(monitor.pid()));
    // A few hundred processes still fill caches that thousands have filled long before.
    let growth = if count >= 10_000 { 3_000_000 } else { 6_000_000 };
    wait_until("memory is released", || resident(monitor.pid()) < first_resident + growth);
    eprintln!(
        "{count} short processes: RSS {:.1} MB after a fifth, {:.1} MB at the end",
        first_resident as f64 / 1e6,
        resident(monitor.pid()) as f64 / 1e6
    );
    pilot.end();
    monitor.stop();
}

/// Check that every scrape knows the names of all kernels, also of those that are launched while it is answered.
#[test]
fn new_kernels_have_names_at_once() {
    // Few enough at once that their names fit into the ring.
    const ROUNDS: u64 = 20;
    const NEW: u64 = 200;
    let scene = Scene::new();
    let (monitor, mut pilot) = Monitor::with_pilot(&scene, "");
    let pid = pilot.pid().to_string();
    let nameless = |metrics: &Metrics| metrics.unknown_launches(&[("pid", &pid)]);
    let all = |metrics: &Metrics| metrics.sum("warpscope_launches_total", &[("pid", &pid)]);
    // The pilot's own kernel has no name if it was first launched before all functions were watched.
    let before = monitor.scrape();
    for round in 0..ROUNDS {
        let pilot = &mut pilot;
        std::thread::scope(|scope| {
            scope.spawn(move || (0..NEW).for_each(|new| pilot.does(&format!("kernel {}", round * NEW + new))));
            // The first scrapes are answered meanwhile.
            for _ in 0..3 {
                assert_eq!(nameless(&monitor.scrape()), nameless(&before), "all kernels have names");
            }
        });
    }
    let metrics = monitor.scrape();
    assert_eq!(all(&metrics) - all(&before), ROUNDS * NEW);
    monitor.stop();
}
