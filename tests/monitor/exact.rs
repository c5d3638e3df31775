//! A workload of known totals, compared number by number.

use crate::support::{
    Ended, Scene,
    attacker::Attacker,
    monitor::{Metrics, Monitor, Watched, get},
    wait_until,
};

/// A metric, its labels, and its value.
pub type Expected = (&'static str, &'static [(&'static str, &'static str)], u64);

/// The totals of `work` in `programs/watched.c`.
pub const WORK: &[Expected] = &[
    ("warpscope_memory_allocations_total", &[("space", "device")], 6),
    ("warpscope_memory_allocated_bytes_total", &[("space", "device")], 15_064),
    ("warpscope_memory_frees_total", &[("space", "device")], 4),
    ("warpscope_memory_failed_allocations_total", &[("space", "device")], 2),
    ("warpscope_memory_live_bytes", &[("space", "device")], 2_064),
    ("warpscope_memory_live_allocations", &[("space", "device")], 2),
    ("warpscope_memory_peak_bytes", &[("space", "device")], 15_000),
    ("warpscope_memory_allocations_total", &[("space", "managed")], 1),
    ("warpscope_memory_live_bytes", &[("space", "managed")], 12_288),
    ("warpscope_memory_allocations_total", &[("space", "host")], 1),
    ("warpscope_memory_frees_total", &[("space", "host")], 1),
    ("warpscope_memory_live_bytes", &[("space", "host")], 0),
    ("warpscope_memory_peak_bytes", &[("space", "host")], 8_192),
    ("warpscope_launches_total", &[], 12),
    ("warpscope_kernel_launches_total", &[("kernel", "first(float*, int)")], 7),
    ("warpscope_kernel_launches_total", &[("kernel", "second")], 3),
    ("warpscope_kernel_launches_total", &[("kernel", "by_driver")], 2),
    ("warpscope_copies_total", &[("direction", "HtoD"), ("mode", "synchronous")], 3),
    ("warpscope_copied_bytes_total", &[("direction", "HtoD"), ("mode", "synchronous")], 4_196),
    ("warpscope_copied_bytes_total", &[("direction", "HtoD"), ("mode", "asynchronous")], 1_024),
    ("warpscope_copied_bytes_total", &[("direction", "DtoH")], 2_048),
    ("warpscope_copied_bytes_total", &[("direction", "DtoD"), ("mode", "asynchronous")], 512),
    ("warpscope_copy_duration_seconds_count", &[("direction", "HtoD")], 3),
    ("warpscope_memsets_total", &[], 2),
    ("warpscope_memset_bytes_total", &[], 528),
    ("warpscope_errors_total", &[("function", "cudaMalloc"), ("code", "cudaErrorMemoryAllocation")], 2),
    ("warpscope_errors_total", &[("function", "cudaMemcpy"), ("code", "cudaErrorInvalidValue")], 1),
    ("warpscope_errors_total", &[], 3),
    ("warpscope_call_duration_seconds_count", &[("function", "cudaMalloc")], 7),
    ("warpscope_call_duration_seconds_count", &[("function", "cudaLaunchKernel")], 10),
];

/// Compares every number of `work`, done once.
#[track_caller]
pub fn assert_work(metrics: &Metrics, pid: u32) {
    let pid = pid.to_string();
    for (name, labels, expected) in WORK {
        let labels: Vec<_> = labels.iter().copied().chain([("pid", pid.as_str())]).collect();
        assert_eq!(metrics.sum(name, &labels), *expected, "{name} {labels:?}");
    }
}

/// Check that every number is exact: runtime calls and the driver calls within them are counted once, failed calls separately,
/// and a free on another thread is found. A second process with the same workload is counted separately.
#[test]
fn every_number_is_exact() {
    let scene = Scene::new();
    let (monitor, pilot) = Monitor::with_pilot(&scene, "");
    let (mut one, mut two) = (Watched::start(&scene), Watched::start(&scene));
    one.does("work");
    let metrics = monitor.scrape();
    assert_work(&metrics, one.pid());
    assert_eq!(metrics.sum("warpscope_launches_total", &[("pid", &two.pid().to_string())]), 0);
    two.does("work");
    let metrics = monitor.scrape();
    assert_work(&metrics, one.pid());
    assert_work(&metrics, two.pid());
    assert_eq!(metrics.sum("warpscope_lost_calls_total", &[]), 0);
    for watched in [one, two, pilot] {
        watched.end();
    }
    monitor.stop();
}

/// Check that launches which repeat each other are all counted, although most of their returns are not watched, and that each
/// failed launch is seen.
#[test]
fn repeated_launches_are_counted_exactly() {
    let scene = Scene::new();
    let (monitor, pilot) = Monitor::with_pilot(&scene, "");
    let mut watched = Watched::start(&scene);
    for _ in 0..2 {
        watched.does("repeat 2000");
    }
    let metrics = monitor.scrape();
    let pid = watched.pid().to_string();
    let expected: &[Expected] = &[
        ("warpscope_launches_total", &[], 8_000),
        ("warpscope_kernel_launches_total", &[("kernel", "first(float*, int)")], 4_000),
        ("warpscope_kernel_launches_total", &[("kernel", "repeated")], 4_000),
        ("warpscope_errors_total", &[("function", "cudaLaunchKernel")], 10),
        ("warpscope_errors_total", &[("function", "cuLaunchKernel")], 10),
        ("warpscope_call_duration_seconds_count", &[("function", "cudaLaunchKernel")], 4_010),
        ("warpscope_call_duration_seconds_count", &[("function", "cuLaunchKernel")], 8_020),
        ("warpscope_call_duration_seconds_count", &[("function", "cuKernelGetFunction")], 4_000),
    ];
    for (name, labels, expected) in expected {
        let labels: Vec<_> = labels.iter().copied().chain([("pid", pid.as_str())]).collect();
        assert_eq!(metrics.sum(name, &labels), *expected, "{name} {labels:?}");
    }
    assert_eq!(metrics.sum("warpscope_lost_calls_total", &[]), 0);
    watched.end();
    pilot.end();
    monitor.stop();
}

/// Check that leaks are reported with function, file and line, however many stacks were recorded before the name was known, and
/// that freed memory is no longer reported.
#[test]
fn leaks_are_reported_with_their_line() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "--memleak");
    let mut leaker = Watched::start(&scene);
    let pid = leaker.pid().to_string();
    leaker.does("leak 10");
    let labels = [("pid", pid.as_str()), ("site", "forget_to_free (watched.c:30)"), ("function", "cudaMalloc")];
    let mut metrics = monitor.scrape();
    wait_until("the leak has a name", || {
        metrics = monitor.scrape();
        metrics.any(&labels)
    });
    assert_eq!(metrics.one("warpscope_memory_suspect_bytes", &labels), f64::from(10 << 20));
    assert_eq!(metrics.one("warpscope_memory_suspect_allocations", &labels), 10.0);
    leaker.does("leak 5");
    let metrics = monitor.scrape();
    assert_eq!(metrics.one("warpscope_memory_suspect_bytes", &labels), f64::from(15 << 20));
    assert_eq!(metrics.sum("warpscope_memory_live_bytes", &[("pid", &pid)]), 15 << 20);
    leaker.does("free");
    let metrics = monitor.scrape();
    assert!(!metrics.any(&labels), "freed memory is no suspect");
    assert_eq!(metrics.sum("warpscope_memory_live_bytes", &[("pid", &pid)]), 0);
    assert_eq!(metrics.sum("warpscope_memory_frees_total", &[("pid", &pid)]), 15);
    // Only the threads that must react at once have a high priority: tables and names can wait.
    // SAFETY: a plain system call.
    let own = i64::from(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) });
    assert_eq!(monitor.niceness("http"), -10);
    assert_eq!(monitor.niceness("unwind-tables"), own);
    assert_eq!(monitor.niceness("names"), 10);
    monitor.stop();
}

/// Check the map of a process's live memory by address, with size, kind, age and line: it is shown to root and to the process's
/// owner, and to nobody else.
#[test]
fn memory_map_is_shown_to_its_owner() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let (monitor, mut pilot) = Monitor::with_pilot(&scene, "");
    pilot.does("leak 3");
    pilot.does("work");
    let pid = pilot.pid().to_string();
    let map = || {
        let mut command = scene.warpscope(&["monitor", "--metrics-addr", &monitor.address, "--map", &pid]);
        Ended::of(&mut command)
    };
    let text = map().exits(0).out().to_owned();
    assert!(text.starts_with(&format!("watched (root), pid {pid}: 6 live allocations, 3.0")), "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.trim_start().starts_with("0x"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 6, "{text}");
    let of_line = |line: &str| rows.iter().filter(|row| row[6..].join(" ").contains(line)).count();
    assert_eq!(of_line("forget_to_free (watched.c:30), cudaMalloc"), 3, "{text}");
    let kinds: Vec<_> = rows.iter().map(|row| (row[1..3].join(" "), row[3])).collect();
    for kind in [("1.00 MiB", "device"), ("12.0 KiB", "managed"), ("64 B", "device"), ("1.95 KiB", "device")] {
        assert!(kinds.contains(&(kind.0.to_owned(), kind.1)), "{kind:?} in {text}");
    }
    let addresses: Vec<u64> =
        rows.iter().map(|row| u64::from_str_radix(&row[0][2..], 16).expect("an address")).collect();
    assert!(addresses.is_sorted(), "{text}");

    // Another user sees none of it.
    let script = "import http.client,sys; c=http.client.HTTPConnection(sys.argv[1]); c.request('GET','/map?pid='+sys.argv[2]); \
                  r=c.getresponse(); print(r.status, r.read().decode())";
    let request = |pid: &str| {
        let mut command = attacker.command("python3");
        Ended::of(command.args(["-c", script, &monitor.address, pid])).exits(0).out().to_owned()
    };
    let refused = request(&pid);
    assert!(refused.starts_with("403 ") && !refused.contains("0x"), "{refused}");
    assert!(get(&monitor.address, "/map?pid=1", "").1.contains("has not called CUDA"));

    pilot.does("free");
    let text = map().exits(0).out().to_owned();
    assert!(text.starts_with(&format!("watched (root), pid {pid}: 3 live allocations")), "{text}");
    pilot.end();
    map().exits(1).says(&["is not running"]);
    let address = monitor.address.clone();
    monitor.stop();
    let unreachable = Ended::of(&mut scene.warpscope(&["monitor", "--metrics-addr", &address, "--map", &pid]));
    unreachable.exits(1).says(&["no warpscope monitor at", "--metrics-addr"]);
}

/// Check that metrics which are not counted are absent, because a 0 would be wrong. `--memleak` alone counts memory, `--errors`
/// alone counts failed calls, although it watches every function.
#[test]
fn uncounted_metrics_are_absent() {
    let scene = Scene::new();
    let kinds = [
        ("--memleak", "warpscope_memory_live_bytes"),
        ("--cudatrace", "warpscope_launches_total"),
        ("--cudatrace", "warpscope_graph_launches_total"),
        ("--bandwidth", "warpscope_copied_bytes_total"),
        ("--bandwidth", "warpscope_memsets_total"),
        ("--errors", "warpscope_errors_total"),
    ];
    for option in ["--memleak", "--cudatrace", "--bandwidth", "--errors"] {
        let monitor = Monitor::start(&scene, option);
        let mut worker = Watched::start(&scene);
        wait_until("its calls are counted", || {
            worker.does("work");
            monitor.scrape().any(&[("pid", &worker.pid().to_string())])
        });
        // Once more, because all libraries are watched now.
        worker.does("work");
        let metrics = monitor.scrape();
        for (counted_by, name) in kinds {
            assert_eq!(metrics.has(name), counted_by == option, "{name} of monitor {option}");
        }
        monitor.stop();
    }
}

/// Check the other pages, and that the format depends on the `Accept` header.
#[test]
fn pages_and_formats_are_served() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "");
    let (head, body) = get(&monitor.address, "/healthz", "");
    assert!(head.starts_with("HTTP/1.1 200") && body == "ok\n", "{head}\n{body}");
    assert!(get(&monitor.address, "/", "").1.contains("href=\"/metrics\""));
    assert!(get(&monitor.address, "/other", "").0.starts_with("HTTP/1.1 404"));
    let (head, body) = get(&monitor.address, "/metrics", "application/openmetrics-text; version=1.0.0");
    assert!(head.contains("application/openmetrics-text") && body.ends_with("# EOF\n"), "{head}");
    assert!(get(&monitor.address, "/metrics", "text/plain").0.contains("text/plain"));
    let ended = monitor.stop();
    assert_eq!(ended.out(), "", "no console output");
}

/// Check that the console shows the same numbers, as plain blocks in a pipe.
#[test]
fn console_shows_the_numbers() {
    let scene = Scene::new();
    let (monitor, mut pilot) = Monitor::with_pilot(&scene, "");
    let console = scene
        .warpscope(&["monitor", "--metrics-addr", "", "--display-interval", "0.2", "-p"])
        .arg(pilot.pid().to_string())
        .stdout(std::fs::File::create(scene.path("console")).expect("a file"))
        .spawn();
    let mut console = console.expect("it starts");
    wait_until("the console shows what was done", || {
        pilot.does("work");
        let text = scene.read("console");
        let headings = ["allocations   failed        frees   failed  space", "rate    copies/s       bytes"];
        let values = ["by_driver", "watched (root)", "cudaErrorInvalidValue"];
        headings.iter().chain(&values).all(|part| text.contains(part))
    });
    let text = scene.read("console");
    assert!(!text.contains('…'), "lines and tables are whole where no terminal limits them: {text}");
    pilot.end();
    assert!(console.wait().expect("our child").success(), "it exits with the process that it watches");
    monitor.stop();
}
