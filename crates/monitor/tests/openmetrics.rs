//! The text of a scrape: golden files, the rules of the format, and promtool's checks.

mod support;

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use monitor::{
    openmetrics::{Exposition, Format, Kind, Limits, definitions},
    snapshot::{Kernel, Kinds, Memory, Process, Snapshot, Space, Suspect},
};

fn scrape(snapshot: &Snapshot, format: Format) -> String {
    Exposition::new(Limits::default()).render(snapshot, format, Duration::from_millis(3))
}

/// Check both formats byte by byte.
#[test]
fn scrapes_match_golden_files() {
    support::check("scrape.openmetrics.txt", &scrape(&support::machine(1), Format::OpenMetrics));
    support::check("scrape.prometheus.txt", &scrape(&support::machine(1), Format::Prometheus));
}

/// Check the rules of OpenMetrics: contiguous families with metadata, names that match their type, unique series,
/// growing buckets, and the end marker.
#[test]
fn openmetrics_rules_are_followed() {
    for snapshot in [Snapshot::default(), support::machine(1), support::machine(3)] {
        let text = scrape(&snapshot, Format::OpenMetrics);
        let text = text.strip_suffix("# EOF\n").expect("an end");
        let mut families: HashMap<&str, &str> = HashMap::new();
        let (mut current, mut kind, mut help) = ("", "", "");
        let mut series = HashSet::new();
        let mut bucket = (String::new(), 0.0);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let mut words = rest.splitn(3, ' ');
                let (what, name, rest) = (words.next(), words.next().expect("a name"), words.next().expect("a text"));
                match what {
                    Some("HELP") => help = name,
                    Some("TYPE") => {
                        assert_eq!(help, name);
                        assert!(families.insert(name, rest).is_none(), "{name} appears twice");
                        (current, kind) = (name, rest);
                    }
                    Some("UNIT") => assert!(name == current && name.ends_with(&format!("_{rest}")), "{line}"),
                    other => panic!("{other:?} in {line}"),
                }
                continue;
            }
            let name_end = line.find(['{', ' ']).expect("a value");
            let value_start = line.rfind(' ').expect("a value");
            let (name, labels) = (&line[..name_end], &line[name_end..value_start]);
            let value: f64 = line[value_start + 1..].parse().expect("a number");
            assert!(labels.is_empty() || (labels.starts_with('{') && labels.ends_with("\"}")), "{line}");
            assert!(series.insert((name.to_owned(), labels.to_owned())), "twice: {line}");
            let ending = name.strip_prefix(current).unwrap_or_else(|| panic!("{line} does not belong to {current}"));
            match kind {
                "counter" => assert!(ending == "_total" && value >= 0.0, "{line}"),
                "gauge" => assert_eq!(ending, "", "{line}"),
                "info" => assert!(ending == "_info" && value == 1.0, "{line}"),
                "histogram" => {
                    let whose = labels.split("le=").next().unwrap_or_default().trim_end_matches(['{', ',', '}']);
                    if ending == "_bucket" {
                        assert!(bucket.0 != whose || value >= bucket.1, "{line}");
                        bucket = (whose.to_owned(), value);
                    } else {
                        assert!(ending == "_sum" || (ending == "_count" && bucket.1 == value), "{line}");
                    }
                }
                other => panic!("{other} is not a type used here"),
            }
        }
    }
}

/// Check that every family has a warpscope name that ends in its unit, a sentence of help, and a unique name.
#[test]
fn families_are_well_defined() {
    let mut names = HashSet::new();
    for definition in definitions() {
        assert!(definition.name.starts_with("warpscope_"));
        assert!(names.insert(definition.name), "{} twice", definition.name);
        assert!(definition.unit.is_empty() || definition.name.ends_with(&format!("_{}", definition.unit)));
        assert!(definition.help.ends_with('.') && !definition.help.contains(['\n', '\\']));
        for ending in ["_total", "_sum", "_count", "_bucket", "_info"] {
            assert!(!definition.name.ends_with(ending));
        }
    }
}

/// Check how each gauge is merged when samples get the same labels or processes are summed into "other". Amounts are
/// summed; a sum of ages, temperatures, peaks or shares would be meaningless.
#[test]
fn gauges_are_merged() {
    let sums = [
        "warpscope_map_entries",
        "warpscope_map_max_entries",
        "warpscope_summed_series",
        "warpscope_memory_live_bytes",
        "warpscope_memory_live_allocations",
        "warpscope_memory_suspect_bytes",
        "warpscope_memory_suspect_allocations",
        "warpscope_device_memory_size_bytes",
        "warpscope_device_memory_used_bytes",
        "warpscope_device_power_watts",
        "warpscope_device_pcie_received_bytes_per_second",
        "warpscope_device_pcie_sent_bytes_per_second",
        "warpscope_device_process_memory_bytes",
    ];
    let maxima = [
        "warpscope_processes",
        "warpscope_watched_libraries",
        "warpscope_watched_functions",
        "warpscope_resident_memory_bytes",
        "warpscope_scrape_duration_seconds",
        "warpscope_process_watched_seconds",
        "warpscope_process_unwatched_seconds",
        "warpscope_memory_peak_bytes",
        "warpscope_memory_suspect_age_seconds",
        "warpscope_device_lost",
        "warpscope_device_utilisation_ratio",
        "warpscope_device_memory_utilisation_ratio",
        "warpscope_device_power_limit_watts",
        "warpscope_device_temperature_celsius",
        "warpscope_device_sm_clock_hertz",
        "warpscope_device_memory_clock_hertz",
        "warpscope_device_gpm_ratio",
    ];
    let of = |kind| definitions().filter(move |definition| definition.kind == kind).map(|definition| definition.name);
    assert_eq!(of(Kind::Gauge).collect::<HashSet<_>>(), sums.into());
    assert_eq!(of(Kind::Maximum).collect::<HashSet<_>>(), maxima.into());

    // Two stacks without names are one series.
    let suspect =
        |seconds| Suspect { bytes: 100, count: 1, oldest: Duration::from_secs(seconds), ..Suspect::default() };
    let peak = |peak_bytes| Memory { live_bytes: 5, peak_bytes, ..support::memory(Space::Device, 0, 1, 0) };
    let process = |id, peak_bytes| Process {
        id,
        pid: id,
        memory: vec![peak(peak_bytes)],
        suspects: vec![suspect(7), suspect(9)],
        ..Process::default()
    };
    let value = |text: &str, series: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{series} in {text}"));
        line.rsplit(' ').next().expect("a value").parse().expect("a number")
    };
    let text = scrape(&Snapshot { processes: vec![process(1, 10)], ..Snapshot::default() }, Format::Prometheus);
    assert_eq!(value(&text, "warpscope_memory_suspect_bytes{"), 200.0);
    assert_eq!(value(&text, "warpscope_memory_suspect_age_seconds{"), 9.0);

    // No room for any process: all are in "other".
    let processes = vec![process(1, 10), process(2, 30), process(3, 20)];
    let mut exposition = Exposition::new(Limits { max_series: 0, top_kernels: 0, ..Limits::default() });
    let snapshot = Snapshot { processes, ..Snapshot::default() };
    let text = exposition.render(&snapshot, Format::Prometheus, Duration::ZERO);
    assert_eq!(value(&text, "warpscope_memory_peak_bytes{pid=\"other\""), 30.0);
    assert_eq!(value(&text, "warpscope_memory_live_bytes{pid=\"other\""), 15.0);
}

/// Check that an ended process holds no memory, and that its counts are still reported to every scraper.
#[test]
fn ended_processes_hold_no_memory() {
    let mut exposition = Exposition::new(Limits::default());
    let mut machine = support::machine(1);
    machine.processes[1].ended = true;
    let first = exposition.render(&machine, Format::Prometheus, Duration::ZERO);
    machine.processes.clear();
    let second = exposition.render(&machine, Format::Prometheus, Duration::ZERO);
    for text in [first, second] {
        let has = |name: &str| text.contains(&format!("{name}{{pid=\"4711\""));
        assert!(has("warpscope_launches_total") && has("warpscope_memory_peak_bytes"), "{text}");
        assert!(has("warpscope_memory_allocations_total") && has("warpscope_kernel_launches_total"));
        assert!(!has("warpscope_memory_live_bytes") && !has("warpscope_memory_live_allocations"));
        assert!(!has("warpscope_memory_suspect_bytes"));
    }
}

/// Check that values which are not counted are absent from the text instead of 0.
#[test]
fn only_counted_values_are_reported() {
    let families = |kinds: Kinds| {
        let text = scrape(&Snapshot { kinds, ..support::machine(1) }, Format::Prometheus);
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect::<HashSet<_>>()
    };
    let none = Kinds { memory: false, launches: false, graphs: false, copies: false, sets: false, errors: false };
    let all = families(Kinds::ALL);
    for (prefixes, kinds) in [
        (&["warpscope_memory_"][..], Kinds { memory: true, ..none }),
        (&["warpscope_launches", "warpscope_kernel_"], Kinds { launches: true, ..none }),
        (&["warpscope_graph_"], Kinds { graphs: true, ..none }),
        (&["warpscope_copies", "warpscope_copied", "warpscope_copy_"], Kinds { copies: true, ..none }),
        (&["warpscope_memset"], Kinds { sets: true, ..none }),
        (&["warpscope_errors"], Kinds { errors: true, ..none }),
    ] {
        let expected: HashSet<_> = all.iter().filter(|name| prefixes.iter().any(|p| name.starts_with(p))).collect();
        assert!(!expected.is_empty(), "{prefixes:?}");
        let (with, without) = (families(kinds), families(none));
        assert_eq!(with.difference(&without).collect::<HashSet<_>>(), expected);
    }
}

/// Check that no process, however many kernels it has, makes the text exceed its limit, and that no count is lost.
#[test]
fn text_is_bounded() {
    let kernels = |id: u32| {
        (0..5_000).map(move |n| Kernel { name: format!("k{id}_{n}").into(), launches: 1, ..Kernel::default() })
    };
    let processes = (1..=200).map(|id| Process {
        id,
        pid: id,
        kernels: kernels(id).collect(),
        ..support::machine(1).processes[1].clone()
    });
    let snapshot = Snapshot { processes: processes.collect(), ..Snapshot::default() };
    let mut exposition = Exposition::new(Limits { max_series: 5_000, top_kernels: 20, ..Limits::default() });
    let text = exposition.render(&snapshot, Format::OpenMetrics, Duration::ZERO);
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    // Suspects (at most five per process) and warpscope's own series are extra.
    assert!(samples < 5_000 + 200 * 15 + 50, "{samples}");
    let sum = |name: &str| -> u64 {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>().expect("a count")).sum()
    };
    assert_eq!(sum("warpscope_launches_total"), 200 * 5_077);
    assert_eq!(sum("warpscope_kernel_launches_total"), 200 * 5_077);
    assert_eq!(sum("warpscope_copies_total"), 200 * 140);
    assert_eq!(sum("warpscope_errors_total"), 200 * 2);
}

/// Check that promtool accepts the text without warnings.
#[test]
fn promtool_accepts_the_text() {
    for snapshot in [Snapshot::default(), support::machine(2)] {
        let text = scrape(&snapshot, Format::Prometheus);
        let child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("promtool is missing: install Debian's prometheus");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

/// Check that a suspect has a series only once its labels are final.
#[test]
fn suspects_have_series_once_they_are_resolved() {
    let of = |resolving| {
        let suspects = vec![Suspect { bytes: 5, function: "cudaMalloc".into(), resolving, ..Suspect::default() }];
        let process = Process { id: 1, pid: 1, suspects, ..Process::default() };
        scrape(&Snapshot { processes: vec![process], ..Snapshot::default() }, Format::OpenMetrics)
    };
    assert!(!of(true).contains("warpscope_memory_suspect_bytes{"));
    assert!(of(false).contains("warpscope_memory_suspect_bytes{"));
}
