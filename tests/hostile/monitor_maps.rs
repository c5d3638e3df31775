//! Attacks on the monitor's room in the kernel: one user's processes must not use up what others need.

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

/// Room for allocations, as in `bpf/memory.h`; a process may have a quarter of it, and a user one half.
const ROOM: u64 = 262_144;

/// A user's process leaks 300,000 allocations, and more of that user's processes help it. Another process's numbers are
/// exact all the same, and it is known which ones are not.
#[test]
fn leaks_stay_within_their_share() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    // The tests may be built where other users cannot go.
    fs::copy(program("watched"), attacker.path("watched")).expect("a copy");
    for library in fs::read_dir(programs::libraries()).expect("libraries").map(|entry| entry.expect("a file").path()) {
        fs::copy(&library, attacker.path(&library.file_name().expect("a name").to_string_lossy())).expect("a copy");
    }
    let hoarder = || {
        let mut command = attacker.command(attacker.path("watched"));
        let mut hoarder = Watched::of(command.env("LD_LIBRARY_PATH", attacker.path("")));
        let pid = hoarder.pid().to_string();
        // The monitor watches the scene's control group, where there is one.
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
    assert_eq!(live, [ROOM / 4, ROOM / 4, 0], "the third process finds its user's share used up");
    let untracked: Vec<u64> =
        hoarders.iter().map(|hoarder| of(hoarder, "warpscope_memory_untracked_allocations_total")).collect();
    assert_eq!(untracked, [300_000 - ROOM / 4, 100_000 - ROOM / 4, 1_000]);
    assert_eq!(metrics.sum("warpscope_memory_untracked_allocations_total", &[("pid", &honest.pid().to_string())]), 0);

    // What ends gives its room back, to the user's next process too.
    drop(hoarders);
    let entries = || monitor.scrape().sum("warpscope_map_entries", &[("map", "allocations")]);
    wait_until("the room is given back", || entries() < 1_000);
    let mut next = hoarder();
    next.does("hoard 1000");
    let live = monitor.scrape().sum("warpscope_memory_live_allocations", &[("pid", &next.pid().to_string())]);
    assert_eq!(live, 1_000);
    drop(next);
    honest.end();
    monitor.stop();
}
