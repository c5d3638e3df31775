//! Failures: full maps, unresponsive scrapers, a port in use, no permission, meaningless options.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt,
};

use crate::support::{
    Ended, Scene,
    monitor::{Metrics, Monitor, Watched, get},
    programs::{self, WARPSCOPE},
    wait_until,
};

/// Check that, with more kernels than the BPF map can hold, every launch is counted, by name or as other, and the log says so.
#[test]
fn full_kernel_map_loses_no_launches() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    let mut many = Watched::start(&scene);
    let pid = many.pid().to_string();
    many.does("kernels 20000");
    let launches = |monitor: &Monitor| monitor.scrape().sum("warpscope_launches_total", &[("pid", &pid)]);
    assert_eq!(launches(&monitor), 20_000);
    wait_until("entries were evicted", || {
        let metrics = monitor.scrape();
        metrics.sum("warpscope_map_entries", &[("map", "kernels")]) * 4
            <= metrics.sum("warpscope_map_max_entries", &[("map", "kernels")]) * 3
    });
    assert_eq!(launches(&monitor), 20_000, "evicted kernels are counted as other");
    many.does("launch 7");
    assert_eq!(launches(&monitor), 20_007);
    many.end();
    let log = monitor.stop();
    assert!(log.err().contains("those with the fewest launches are counted as other"), "{}", log.err());
}

/// Check that, if the only watched process has more live allocations than the BPF map can hold, all are counted as allocations,
/// the untracked ones are counted as lost, and the log says so.
#[test]
fn full_allocation_map_is_reported() {
    let scene = Scene::new();
    let mut hoarder = Watched::start(&scene);
    let pid = hoarder.pid().to_string();
    let monitor = Monitor::of_machine(&scene, &format!("--memleak --no-stacks -p {pid}"));
    hoarder.does("hoard 300000");
    let metrics = monitor.scrape();
    let of = |metrics: &Metrics, name: &str| metrics.sum(name, &[("pid", &pid), ("space", "device")]);
    let capacity = metrics.sum("warpscope_map_max_entries", &[("map", "allocations")]);
    let live = of(&metrics, "warpscope_memory_live_allocations");
    let lost = metrics.sum("warpscope_lost_calls_total", &[("map", "sums")]);
    assert_eq!(of(&metrics, "warpscope_memory_allocations_total"), 300_000);
    assert_eq!(live + lost, 300_000, "every allocation is tracked or lost");
    assert_eq!(metrics.sum("warpscope_memory_untracked_allocations_total", &[("pid", &pid)]), lost);
    assert!(live <= capacity && live >= capacity / 10 * 9, "{live} of {capacity}");
    let log = monitor.stop();
    assert!(log.err().contains("because a BPF map was full"), "{}", log.err());
    hoarder.end();
}

/// Check that, when all processes are watched, each has a share of the map: allocations beyond it are counted as untracked, and
/// the log says so. When the process exits, its entries are freed.
#[test]
fn allocations_are_limited_to_a_share() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "--memleak --no-stacks");
    let mut hoarder = Watched::start(&scene);
    let pid = hoarder.pid().to_string();
    hoarder.does("hoard 100000");
    let metrics = monitor.scrape();
    let of = |name: &str| metrics.sum(name, &[("pid", &pid)]);
    let capacity = metrics.sum("warpscope_map_max_entries", &[("map", "allocations")]);
    assert_eq!(of("warpscope_memory_allocations_total"), 100_000);
    assert_eq!(of("warpscope_memory_live_allocations"), capacity / 4);
    assert_eq!(of("warpscope_memory_untracked_allocations_total"), 100_000 - capacity / 4);
    assert_eq!(metrics.sum("warpscope_lost_calls_total", &[]), 0);
    hoarder.end();
    let mut next = Watched::start(&scene);
    let pid = next.pid().to_string();
    wait_until("its entries are freed", || {
        monitor.scrape().sum("warpscope_map_entries", &[("map", "allocations")]) < capacity / 10
    });
    next.does("leak 10");
    assert_eq!(monitor.scrape().sum("warpscope_memory_live_allocations", &[("pid", &pid)]), 10);
    next.end();
    let log = monitor.stop();
    assert!(log.err().contains("some allocations are not tracked"), "{}", log.err());
}

/// Check that, without NVML, the log says what is missing and why, and all other metrics are served.
#[test]
fn missing_nvml_is_reported() {
    let scene = Scene::new();
    fs::write(scene.path("libnvidia-ml.so.1"), "not a library").expect("a file");
    let mut command = scene.warpscope(&["monitor", "--metrics-addr", "127.0.0.1:0", "--display-interval", "0"]);
    let monitor = Monitor::of(command.env("LD_LIBRARY_PATH", scene.path("")));
    let metrics = monitor.scrape();
    assert!(metrics.one("warpscope_resident_memory_bytes", &[]) > 0.0 && !metrics.any(&[("device", "0")]));
    let log = monitor.stop();
    assert!(log.err().contains("GPU metrics are not available: cannot load libnvidia-ml.so.1"), "{}", log.err());
}

/// Check that health checks fail with the reason in one sentence while nothing can be watched.
#[test]
fn health_check_fails_if_nothing_is_watched() {
    let scene = Scene::new();
    let broken = Watched::with_invalid_library(&scene, &scene.path("libcuda.so.1"));
    let monitor = Monitor::of_machine(&scene, &format!("-p {}", broken.pid()));
    let mut answer = (String::new(), String::new());
    wait_until("the health check fails", || {
        answer = get(&monitor.address, "/healthz", "");
        answer.0.starts_with("HTTP/1.1 503")
    });
    assert!(answer.1.starts_with("no CUDA library is monitored: "), "{}", answer.1);
    assert!(answer.1.contains("libcuda.so.1 is not probed: ") && answer.1.lines().count() == 1, "{}", answer.1);
    monitor.stop();
    broken.end();
}

/// Check that scrapers which send nothing, or never read, do not block others.
#[test]
fn unresponsive_scrapers_do_not_block_others() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "");
    let mut silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(&monitor.address).expect("it listens")).collect();
    for stream in silent.iter_mut().take(20) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHo");
    }
    for stream in silent.iter_mut().skip(20).take(20) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    // In sequence they would take minutes to time out; a scrape gives up after 20 seconds.
    assert!(get(&monitor.address, "/metrics", "").1.contains("warpscope_processes"));
    monitor.stop();
}

/// Check that each mistake is reported in one sentence.
#[test]
fn mistakes_are_reported() {
    let scene = Scene::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let ends = |arguments: &[&str]| Ended::of(&mut scene.warpscope(&[&["monitor"], arguments].concat())).exits(1);
    ends(&["--metrics-addr", &address]).says(&["cannot listen on", "--metrics-addr"]);
    ends(&["--metrics-addr", "nonsense"]).says(&["nonsense", "127.0.0.1:9400"]);
    ends(&["-p", "4194303"]).says(&["there is no process 4194303"]);
    ends(&["--display-interval=-1"]).says(&["display-interval"]);
    ends(&["--config", "missing.toml"]).says(&["cannot read missing.toml"]);
    fs::write(scene.path("bad.toml"), "max-serie = 1\n").expect("a file");
    ends(&["--config", "bad.toml"]).says(&["max-serie", "did you mean max-series?"]);
    ends(&["--metrics-addr", "127.0.0.1:0", "--cgroup", "no-such-group"]).says(&["no-such-group"]);
    // Other users may have no access to the build directory.
    programs::copy(WARPSCOPE, scene.path("warpscope"));
    let mut unprivileged = scene.bare(scene.path("warpscope"));
    Ended::of(unprivileged.arg("monitor").uid(65534).gid(65534)).exits(1).says(&["root"]);
    let mut elsewhere = scene.bare("unshare");
    elsewhere.args(["--pid", "--fork", "--mount-proc", WARPSCOPE, "monitor", "--metrics-addr", "127.0.0.1:0"]);
    Ended::of(&mut elsewhere).exits(1).says(&["pid namespace", "--pid=host", "hostPID"]);
}

/// Check that a full console pipe does not stop the metrics.
#[test]
fn full_console_pipe_does_not_stop_the_metrics() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "--display-interval 0.01");
    // Its output is a pipe of 64 KiB that this test does not read, so it fills up.
    for _ in 0..20 {
        assert!(get(&monitor.address, "/metrics", "").1.contains("warpscope_processes"));
    }
    monitor.stop();
}
