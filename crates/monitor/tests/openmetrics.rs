//! The text of a scrape: golden files, the rules of the format, and promtool's opinion where it is installed.

mod support;

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use monitor::{
    openmetrics::{Exposition, Format, Limits, definitions},
    snapshot::{Kernel, Process, Snapshot},
};

fn scrape(snapshot: &Snapshot, format: Format) -> String {
    Exposition::new(Limits::default()).render(snapshot, format, Duration::from_millis(3))
}

/// Check both formats byte by byte.
#[test]
fn golden() {
    support::check("scrape.openmetrics.txt", &scrape(&support::machine(1), Format::OpenMetrics));
    support::check("scrape.prometheus.txt", &scrape(&support::machine(1), Format::Prometheus));
}

/// Check the rules of OpenMetrics: families in one piece and described, names that fit their type, no series twice,
/// buckets that grow, and the end marked.
#[test]
fn rules() {
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
                        assert!(families.insert(name, rest).is_none(), "{name} comes twice");
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
            let ending = name.strip_prefix(current).unwrap_or_else(|| panic!("{line} is not of {current}"));
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
                other => panic!("{other} is no type of this text"),
            }
        }
    }
}

/// Check that every family is described for good: a name of ours, its unit at its end, a sentence of help, and no two alike.
#[test]
fn families() {
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

/// Check that no process, however many kernels it has, makes the text grow beyond its limit, and that nothing counted is lost.
#[test]
fn limits() {
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
    let mut exposition = Exposition::new(Limits { max_series: 5_000, top_kernels: 20 });
    let text = exposition.render(&snapshot, Format::OpenMetrics, Duration::ZERO);
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    // Suspects (five a process at the most) and warpscope's own come on top.
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

/// Check that promtool accepts the text without a remark.
#[test]
fn promtool() {
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
