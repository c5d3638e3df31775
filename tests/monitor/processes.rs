//! Processes that exit, are killed, fork, exec, or replace their libraries.

use std::{fs, path::Path};

use super::exact::WORK;
use crate::support::{
    Ended, Group, Running, Scene,
    monitor::{Monitor, Watched},
    programs, wait_until,
};

/// Check that the metrics keep the numbers of a process that is killed in the middle of a call until they expire.
#[test]
fn processes_killed_in_a_call_keep_their_numbers() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "--keep-ended 1");
    let mut victim = Watched::start_with(&scene, "slow=cudaDeviceSynchronize:600s");
    let pid = victim.pid().to_string();
    victim.does("leak 2");
    victim.does("launch 3");
    victim.begins("wait");
    victim.says("calling");
    wait_until("it sleeps in the call", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        stat.contains(") S ")
    });
    victim.kill();
    let mut last = monitor.scrape();
    assert_eq!(last.sum("warpscope_launches_total", &[("pid", &pid)]), 3, "its last numbers");
    wait_until("it is gone", || {
        last = monitor.scrape();
        !last.any(&[("pid", &pid)])
    });
    assert_eq!(last.sum("warpscope_lost_calls_total", &[]), 0);
    monitor.stop();
}

/// Check that two scrapers see the same last numbers of a process that has ended, in any order and however often they scrape,
/// and that it holds no memory any more.
#[test]
fn every_scraper_sees_the_last_numbers() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    let mut worker = Watched::start(&scene);
    let pid = worker.pid().to_string();
    worker.does("work");
    // One scraper has seen it alive, the other has not.
    assert_eq!(monitor.scrape().sum("warpscope_launches_total", &[("pid", &pid)]), 12);
    worker.does("launch 5");
    worker.end();
    wait_until("its end is known", || {
        !monitor.scrape().values("warpscope_memory_live_bytes", "pid", &[]).iter().any(|(known, _)| *known == pid)
    });
    for scraper in ["one", "two", "one", "two"] {
        let metrics = monitor.scrape();
        assert_eq!(metrics.sum("warpscope_launches_total", &[("pid", &pid)]), 17, "scraper {scraper}");
        for (name, labels, expected) in WORK.iter().filter(|(name, ..)| name.ends_with("_total")) {
            let labels = [&[("pid", pid.as_str())], *labels].concat();
            let more = if name.contains("launches") && labels.len() == 1
                || labels.contains(&("kernel", "first(float*, int)"))
            {
                5
            } else {
                0
            };
            assert_eq!(metrics.sum(name, &labels), expected + more, "scraper {scraper}: {name} {labels:?}");
        }
        assert_eq!(metrics.sum("warpscope_memory_suspect_bytes", &[("pid", &pid)]), 0);
    }
    monitor.stop();
}

/// Check a short process whose libraries no process had loaded before: its kernels have names although their registration was
/// missed, and the metrics show the gap. With `--lib` there is no gap.
#[test]
fn short_processes_of_new_libraries_are_named() {
    const LAUNCHES: u64 = 300_000;
    let scene = Scene::new();
    fs::create_dir(scene.path("lib")).expect("a directory");
    let libraries = ["libcuda.so.1", "libcudart.so.13"].map(|name| {
        fs::copy(programs::libraries().join(name), scene.path("lib").join(name)).expect("a copy");
        scene.path("lib").join(name)
    });
    let brief = |count: u64| {
        let mut command = scene.bare_cuda("brief");
        Ended::of(command.arg(count.to_string()).env("LD_LIBRARY_PATH", scene.path("lib"))).exits(0);
    };
    let labels = [("comm", "brief"), ("kernel", "first(float*, int)")];

    let monitor = Monitor::start(&scene, "");
    brief(LAUNCHES);
    let mut metrics = monitor.scrape();
    wait_until("its kernel has a name", || {
        metrics = monitor.scrape();
        metrics.any(&labels)
    });
    let counted = metrics.sum("warpscope_launches_total", &[("comm", "brief")]);
    let gap = metrics.one("warpscope_process_unwatched_seconds", &[("comm", "brief")]);
    eprintln!("found when it was loaded: {} of {LAUNCHES} launches missing, {:.1} ms", LAUNCHES - counted, gap * 1e3);
    // How many depends on whether the monitor or the program gets the CPU first.
    assert!((1..=LAUNCHES).contains(&counted), "{counted}");
    // Of a launch in progress when the library was attached, only the driver's part was seen: a handle without a name.
    let launched = |kernel| metrics.sum("warpscope_kernel_launches_total", &[("comm", "brief"), ("kernel", kernel)]);
    assert!(launched("first(float*, int)") + 1 >= counted, "{counted}");
    assert!(metrics.unknown_launches(&[("comm", "brief")]) <= 1);
    assert!(gap > 0.0 && gap < 5.0, "{gap}");
    assert!(metrics.sum("warpscope_late_processes_total", &[]) >= 1);
    monitor.stop();

    // New files, which have no probes of any other monitor.
    let options = libraries.map(|library| {
        fs::copy(&library, scene.path("new")).expect("a copy");
        fs::rename(scene.path("new"), &library).expect("a new file");
        format!("--lib {}", library.display())
    });
    let monitor = Monitor::start(&scene, &options.join(" "));
    brief(1000);
    let mut metrics = monitor.scrape();
    wait_until("it is seen", || {
        metrics = monitor.scrape();
        metrics.any(&labels)
    });
    assert_eq!(metrics.sum("warpscope_kernel_launches_total", &labels), 1000);
    assert!(!metrics.has("warpscope_process_unwatched_seconds"));
    monitor.stop();

    let missing =
        Ended::of(&mut scene.warpscope(&["monitor", "--metrics-addr", "", "--lib", "/nonexistent/libcuda.so.1"]));
    missing.exits(1).says(&["/nonexistent/libcuda.so.1", "No such file"]);
    let other = Ended::of(&mut scene.warpscope(&["monitor", "--metrics-addr", "", "--lib", "/bin/true"]));
    other.exits(1).says(&["--lib /bin/true", "no CUDA functions"]);
}

/// Check that a program that execs another is counted from 0 under the same pid, and that a forked child is a process of its own.
#[test]
fn fork_and_exec_are_counted_separately() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    let mut parent = Watched::start(&scene);
    let pid = parent.pid().to_string();
    let launches = |monitor: &Monitor| monitor.scrape().sum("warpscope_launches_total", &[("pid", &pid)]);
    parent.does("launch 5");
    parent.does("fork");
    assert_eq!(launches(&monitor), 5);
    parent.begins("exec");
    parent.says("ready");
    parent.does("launch 2");
    // The last numbers of the previous program, or already the new one's alone.
    wait_until("the new program counts from 0", || launches(&monitor) == 2);
    parent.does("launch 1");
    assert_eq!(launches(&monitor), 3);
    parent.end();
    monitor.stop();
}

/// Check that a process with a reused pid has none of the previous processes' numbers, whether or not a scrape happened in
/// between.
#[test]
fn reused_pids_are_counted_separately() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    let most: u32 = fs::read_to_string("/proc/sys/kernel/pid_max").expect("a limit").trim().parse().expect("a number");
    let is_free = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists();
    let pid = (most / 2..most - std::process::id() % 1000).rev().find(is_free).expect("a free pid").to_string();
    let start = || {
        let mut command = scene.bare_cuda("as_pid");
        Watched::of(command.args([&pid, &programs::program("watched")]))
    };
    let metric = |name: &str| monitor.scrape().sum(name, &[("pid", &pid)]);
    let mut first = start();
    first.does("launch 5");
    first.does("leak 2");
    assert_eq!((metric("warpscope_launches_total"), metric("warpscope_memory_live_allocations")), (5, 2));
    first.end();
    let mut second = start();
    second.does("launch 100");
    second.does("leak 3");
    second.end();
    let mut third = start();
    third.does("launch 7");
    third.does("leak 1");
    for _ in 0..3 {
        assert_eq!((metric("warpscope_launches_total"), metric("warpscope_memory_live_allocations")), (7, 1));
    }
    third.does("free");
    assert_eq!((metric("warpscope_memory_frees_total"), metric("warpscope_memory_live_bytes")), (1, 0));
    third.end();
    monitor.stop();
}

/// Check that, if a library is replaced on disk while it is loaded, processes with the old and with the new file are both watched.
#[test]
fn replaced_libraries_are_both_watched() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "");
    let copy = |name: &str| {
        let real = fs::canonicalize(programs::libraries().join(name)).expect("a library");
        fs::copy(real, scene.path("lib/new")).expect("a copy");
        fs::rename(scene.path("lib/new"), scene.path("lib").join(name)).expect("a new file");
    };
    fs::create_dir(scene.path("lib")).expect("a directory");
    let start = || {
        let mut command = scene.bare_cuda("watched");
        let mut watched = Watched::of(command.env("LD_LIBRARY_PATH", scene.path("lib")));
        let pid = watched.pid().to_string();
        wait_until("its library is watched", || {
            watched.does("launch 1");
            monitor.scrape().any(&[("pid", &pid)])
        });
        watched
    };
    for name in ["libcuda.so.1", "libcudart.so.13"] {
        copy(name);
    }
    let mut old = start();
    for name in ["libcuda.so.1", "libcudart.so.13"] {
        copy(name);
    }
    let mut new = start();
    let libraries = monitor.scrape().sum("warpscope_watched_libraries", &[]);
    assert!(libraries >= 4, "{libraries} libraries are watched");
    for watched in [&mut old, &mut new] {
        let pid = watched.pid().to_string();
        let launches = || monitor.scrape().sum("warpscope_launches_total", &[("pid", &pid)]);
        let before = launches();
        watched.does("launch 10");
        assert_eq!(launches(), before + 10);
    }
    monitor.stop();
}

/// Check that libraries of short-lived processes, such as containers, are no longer watched once no process maps them.
#[test]
fn unmapped_libraries_are_no_longer_watched() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "");
    let libraries = || monitor.scrape().sum("warpscope_watched_libraries", &[]);
    let mut most = 0;
    for number in 0..40 {
        let directory = scene.path(&format!("lib{number}"));
        fs::create_dir(&directory).expect("a directory");
        for name in ["libcuda.so.1", "libcudart.so.13"] {
            let real = fs::canonicalize(programs::libraries().join(name)).expect("a library");
            fs::copy(real, directory.join(name)).expect("a copy");
        }
        let before = libraries();
        let mut command = scene.bare_cuda("watched");
        let watched = Watched::of(command.env("LD_LIBRARY_PATH", &directory));
        wait_until("its libraries are watched", || {
            let now = libraries();
            most = most.max(now);
            now >= before + 2 || now < before
        });
        watched.end();
        fs::remove_dir_all(&directory).expect("ours");
    }
    assert!(most > 64, "{most} libraries were watched at once");
    wait_until("unmapped libraries are no longer watched", || libraries() < 64);
    monitor.stop();
}

/// Check that a library on the loader's search path is watched before any process loads it: not even the first call is missed.
#[test]
fn installed_libraries_are_watched_before_they_are_loaded() {
    let scene = Scene::new();
    let arguments = "monitor --metrics-addr 127.0.0.1:0 --display-interval 0".split(' ').collect::<Vec<_>>();
    let monitor = Monitor::of(scene.warpscope(&arguments).env("LD_LIBRARY_PATH", programs::libraries()));
    let mut first = Watched::start(&scene);
    let pid = first.pid().to_string();
    first.does("leak 2");
    first.does("launch 3");
    let metrics = monitor.scrape();
    assert_eq!(metrics.sum("warpscope_launches_total", &[("pid", &pid)]), 3);
    assert_eq!(metrics.sum("warpscope_memory_allocations_total", &[("pid", &pid), ("space", "device")]), 2);
    first.end();
    monitor.stop();
}

/// Check that, if no process lives long enough for its library to be attached, the first process is missed and later ones are
/// not.
#[test]
fn short_processes_alone_are_seen() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "");
    // Files that no other test uses.
    fs::create_dir(scene.path("lib")).expect("a directory");
    for name in ["libcuda.so.1", "libcudart.so.13"] {
        fs::copy(programs::libraries().join(name), scene.path("lib").join(name)).expect("a copy");
    }
    wait_until("short processes are seen", || {
        Ended::of(scene.bare_cuda("calls").env("LD_LIBRARY_PATH", scene.path("lib"))).exits(0);
        monitor.scrape().any(&[("comm", "calls")])
    });
    let log = monitor.stop();
    for name in ["libcuda.so.1", "libcudart.so.13"] {
        assert!(log.err().contains(&format!("/lib/{name} was probed ")), "{}", log.err());
    }
}

/// Check that `-p` watches one process from the middle of its start, and no other.
#[test]
fn one_process_is_watched() {
    let scene = Scene::new();
    let mut target = Watched::start(&scene);
    let mut other = Watched::start(&scene);
    let monitor = Monitor::of_machine(&scene, &format!("-p {}", target.pid()));
    target.does("work");
    other.does("work");
    let metrics = monitor.scrape();
    // It registered its kernels before the monitor started, and their host functions have no symbols that help.
    let pid = target.pid().to_string();
    assert_eq!(metrics.sum("warpscope_launches_total", &[("pid", &pid)]), 12);
    assert_eq!(metrics.sum("warpscope_memory_live_bytes", &[("pid", &pid), ("space", "device")]), 2_064);
    assert!(!metrics.any(&[("pid", &other.pid().to_string())]));
    target.end();
    other.end();
}

/// Check that a short process is counted completely if it runs while the monitor makes its first snapshot.
#[test]
fn processes_that_end_during_a_snapshot_are_counted() {
    let libraries = programs::libraries();
    let files = ["libcudart.so", "libcuda.so.1"].map(|name| libraries.join(name).display().to_string());
    for round in 0..10 {
        let scene = Scene::new();
        let (input, gate) = std::io::pipe().expect("a pipe");
        let mut command = scene.bare("sh");
        let script = format!("read go; exec {}", programs::program("calls"));
        command.args(["-c", &script]).stdin(input).env("LD_LIBRARY_PATH", &libraries);
        let target = Running::start(&mut command);
        let pid = target.pid().to_string();
        let options = ["monitor", "-v", "--metrics-addr", "", "--display-interval", "60", "--no-nvml", "-p", &pid];
        let mut monitor = Running::start(scene.warpscope(&options).args(files.iter().flat_map(|file| ["--lib", file])));
        monitor.stderr_until("monitoring");
        drop(gate);
        target.wait().exits(0);
        let shown = monitor.wait().exits(0);
        let launches = |kernel: &str| {
            // The last display is complete.
            let line = shown.out().lines().rfind(|line| line.ends_with(kernel))?;
            line.split_whitespace().nth(2)
        };
        assert_eq!(
            (launches("calls_runtime"), launches("calls_driver")),
            (Some("3"), Some("2")),
            "round {round}: {}",
            shown.out()
        );
    }
}

/// Check that kernels have names if the process requested their handles before the monitor started.
#[test]
fn kernels_of_kept_handles_have_names() {
    let scene = Scene::new();
    let (input, end) = std::io::pipe().expect("a pipe");
    let mut command = scene.bare(programs::program("registered"));
    command.arg("driver").stdin(input).env("LD_LIBRARY_PATH", programs::libraries());
    let mut target = Running::start(&mut command);
    assert_eq!(target.stdout_line(), "ready");
    let pid = target.pid().to_string();
    let monitor = Monitor::of_machine(&scene, &format!("-p {pid}"));
    for kernel in ["scale(float*, int)", "plain_sum"] {
        wait_until("the kernel has its name", || monitor.scrape().any(&[("pid", &pid), ("kernel", kernel)]));
    }
    let known = monitor.scrape();
    assert_eq!(known.unknown_launches(&[("pid", &pid)]), 0);
    drop(end);
    target.wait().exits(0);
}

/// Check that the kernels of a library have names if it got their handles before the monitor started: the program's own kernels
/// reveal where the driver's objects have their names. Those of another kind stay unknown.
#[test]
fn names_are_read_from_objects() {
    let scene = Scene::new();
    let (input, end) = std::io::pipe().expect("a pipe");
    let mut command = scene.bare(programs::program("handles"));
    command.args(["handles", "4"]).stdin(input).env("LD_LIBRARY_PATH", programs::libraries());
    let mut target = Running::start(&mut command);
    assert_eq!(target.stdout_line(), "ready");
    let pid = target.pid().to_string();
    // The monitor ends with the last process that it watches.
    let other = Watched::start(&scene);
    let monitor = Monitor::of_machine(&scene, &format!("-p {pid} -p {}", other.pid()));
    let own = ["scale(float*, int)", "plain_sum", "reduce<int>(int*)", "copy"];
    let kept = ["gemv(float const*, float*)", "splitk_reduce", "axpy(float, float*)"];
    for kernel in own.into_iter().chain(kept) {
        wait_until("the kernel has its name", || monitor.scrape().any(&[("pid", &pid), ("kernel", kernel)]));
    }
    wait_until("the others have none", || monitor.scrape().unknown_launches(&[("pid", &pid)]) > 0);
    drop(end);
    target.wait().exits(0);
    let known = monitor.scrape();
    let launches = |kernel: &str| known.sum("warpscope_kernel_launches_total", &[("pid", &pid), ("kernel", kernel)]);
    // The monitor started in the middle of a round.
    let rounds = launches("scale(float*, int)");
    let of_round = |each: u64| each * rounds..=each * (rounds + 1);
    for kernel in own.into_iter().chain(kept) {
        assert!(of_round(1).contains(&launches(kernel)), "{kernel}: {} of {rounds}", launches(kernel));
    }
    let unknown = known.unknown_launches(&[("pid", &pid)]);
    assert!(of_round(2).contains(&unknown), "{unknown} of {rounds}");
    let named: u64 = own.into_iter().chain(kept).map(launches).sum();
    assert_eq!(known.sum("warpscope_launches_total", &[("pid", &pid)]), named + unknown);
    other.end();
    monitor.stop();
}

/// Check that `--cgroup` watches the processes of one control group, and no others.
#[test]
fn one_control_group_is_watched() {
    let group = Group::new().expect("this test makes a control group: mount cgroup2, read-write");
    let scene = Scene::new();
    let monitor = Monitor::of_machine(&scene, &format!("--cgroup {}", group.path().display()));
    let (mut inside, mut outside) = (Watched::start(&scene), Watched::start(&scene));
    fs::write(group.path().join("cgroup.procs"), inside.pid().to_string()).expect("it moves");
    let (pid, other) = (inside.pid().to_string(), outside.pid().to_string());
    wait_until("it is seen", || {
        inside.does("launch 1");
        outside.does("launch 1");
        monitor.scrape().any(&[("pid", &pid)])
    });
    assert!(!monitor.scrape().any(&[("pid", &other)]));
    inside.end();
    outside.end();
    monitor.stop();
}

/// Check a monitor of the whole machine. Other processes may fill maps, but counters that need no map entry are exact.
#[test]
fn whole_machine_is_watched() {
    let scene = Scene::new();
    let monitor = Monitor::of_machine(&scene, "");
    let _pilot = monitor.pilot(&scene);
    let mut worker = Watched::start(&scene);
    let pid = worker.pid().to_string();
    worker.does("work");
    let metrics = monitor.scrape();
    let sure = ["warpscope_launches_total", "warpscope_memory_allocations_total", "warpscope_copied_bytes_total"];
    for (name, labels, expected) in WORK.iter().filter(|(name, ..)| sure.contains(name)) {
        let labels = [&[("pid", pid.as_str())], *labels].concat();
        assert_eq!(metrics.sum(name, &labels), *expected, "{name} {labels:?}");
    }
    worker.end();
    monitor.stop();
}
