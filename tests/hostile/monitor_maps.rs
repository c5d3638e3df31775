//! Attacks on the monitor's space in the kernel: one user's processes must not use up what others need.

use std::fs;

use crate::{
    monitor::exact::assert_work,
    support::{
        Scene,
        attacker::Attacker,
        monitor::{Monitor, Watched},
        program, programs, wait_until,
    },
};

/// Capacity for allocations, as in `bpf/memory.h`. A process may use a quarter of it, and a user one half.
const CAPACITY: u64 = 262_144;

/// Check that another process's numbers stay exact while a user's process leaks 300,000 allocations and more processes of that
/// user leak too, and that the incomplete numbers are marked.
#[test]
fn leaks_stay_within_the_users_share() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    // Other users may have no access to the build directory.
    programs::copy(program("watched"), attacker.path("watched"));
    for library in fs::read_dir(programs::libraries()).expect("libraries").map(|entry| entry.expect("a file").path()) {
        fs::copy(&library, attacker.path(&library.file_name().expect("a name").to_string_lossy())).expect("a copy");
    }
    let hoarder = || {
        let mut command = attacker.command(attacker.path("watched"));
        let mut hoarder = Watched::of(command.env("LD_LIBRARY_PATH", attacker.path("")));
        let pid = hoarder.pid().to_string();
        // The monitor watches the scene's control group, if there is one.
        if let Some(group) = scene.group() {
            fs::write(group.path().join("cgroup.procs"), &pid).expect("root may move it");
        }
        wait_until("the attacker's libraries are watched", || {
            hoarder.does("leak 1");
            hoarder.does("free");
            monitor.scrape().sum("warpscope_memory_frees_total", &[("pid", &pid)]) > 0
        });
        hoarder
    };
    let mut hoarders = [hoarder(), hoarder(), hoarder()];
    let mut honest = Watched::start(&scene);
    for (hoarder, count) in hoarders.iter_mut().zip([300_000, 100_000, 1_000]) {
        hoarder.does(&format!("hoard {count}"));
    }
    honest.does("work");

    let metrics = monitor.scrape();
    assert_work(&metrics, honest.pid());
    let of = |hoarder: &Watched, name: &str| metrics.sum(name, &[("pid", &hoarder.pid().to_string())]);
    let live: Vec<u64> = hoarders.iter().map(|hoarder| of(hoarder, "warpscope_memory_live_allocations")).collect();
    assert_eq!(live, [CAPACITY / 4, CAPACITY / 4, 0], "the user's share is used up before the third process");
    let untracked: Vec<u64> =
        hoarders.iter().map(|hoarder| of(hoarder, "warpscope_memory_untracked_allocations_total")).collect();
    assert_eq!(untracked, [300_000 - CAPACITY / 4, 100_000 - CAPACITY / 4, 1_000]);
    assert_eq!(metrics.sum("warpscope_memory_untracked_allocations_total", &[("pid", &honest.pid().to_string())]), 0);

    // A process that exits frees its share, also for the user's next process.
    drop(hoarders);
    let entries = || monitor.scrape().sum("warpscope_map_entries", &[("map", "allocations")]);
    wait_until("the entries are freed", || entries() < 1_000);
    let mut next = hoarder();
    next.does("hoard 1000");
    let live = monitor.scrape().sum("warpscope_memory_live_allocations", &[("pid", &next.pid().to_string())]);
    assert_eq!(live, 1_000);
    drop(next);
    honest.end();
    monitor.stop();
}
