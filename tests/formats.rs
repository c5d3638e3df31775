//! The outputs of `record`, `export` and `report`.

use std::collections::{BTreeMap, BTreeSet};

use export::Format;
use serde_json::Value;

use crate::support::{
    Ended, Scene,
    folded::{self, Line},
    jsonl::Events,
    oracle::Walk,
    program,
    scene::number,
};

/// Returns a name for each format that is a file.
fn outputs() -> Vec<String> {
    let files = Format::ALL.into_iter().filter(|format| !format.is_directory());
    let mut names: Vec<String> = files.map(|format| format!("x{}", format.extension())).collect();
    names.sort_unstable();
    names
}

/// Records the ground-truth program to every format.
fn recorded() -> Scene {
    let scene = Scene::new();
    let command = format!("{} {}", program("truth"), Walk::of(625).arguments());
    let options: String = outputs().iter().map(|name| format!(" -o {name}")).collect();
    let mut command = scene.record(&format!("--sim -q -F 999{options}"), &command);
    Ended::of(command.env("WARPSCOPE_SIM", "devices=2,order=shuffle")).exits(0);
    assert_eq!(scene.files(), outputs());
    scene
}

/// Check that `export` writes, byte by byte, the same files as `record`.
#[test]
fn export_matches_record() {
    let scene = recorded();
    let mut command = scene.warpscope(&["export", "x.wscope"]);
    for name in outputs() {
        command.args(["-o", &name.replacen('x', "y", 1)]);
    }
    Ended::of(&mut command).exits(0);
    let report = |file| Ended::of(&mut scene.warpscope(&["report", file])).exits(0).out().to_owned();
    assert_eq!(report("x.wscope"), report("y.wscope"));
    for name in outputs() {
        let read = |name: &str| std::fs::read(scene.path(name)).expect("the file");
        assert!(read(&name) == read(&name.replacen('x', "y", 1)), "{name}");
    }
}

/// Check that `export` refuses to overwrite the recording that it reads.
#[test]
fn export_does_not_overwrite_its_input() {
    let scene = recorded();
    let before = std::fs::read(scene.path("x.wscope")).expect("the recording");
    let run = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "./x.wscope"])).exits(1);
    run.says(&["is the recording itself"]);
    assert!(std::fs::read(scene.path("x.wscope")).expect("the recording") == before);
}

/// Check that `record` without -o writes a report and a recording.
#[test]
fn default_outputs_are_a_report_and_a_recording() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record("", "true")).exits(0);
    assert_eq!(scene.files(), ["warpscope.html", "warpscope.wscope"]);
    assert!(
        run.err().contains("wrote warpscope.html") && run.err().contains("wrote warpscope.wscope"),
        "{}",
        run.err()
    );
}

/// Check that `report --json` has the documented keys, and that its tables add up.
#[test]
fn json_report_has_all_keys_and_adds_up() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    for key in ["wall_ns", "gpu_time_ns", "gpu_busy_ns", "launches", "kernels", "copies", "memsets", "matched"] {
        assert!(number(&report, key) > 0, "{key}");
    }
    for key in ["unmatched_activities", "pending_launches"] {
        assert_eq!(number(&report, key), 0, "{key}");
    }
    for key in ["cpu_samples", "processes", "threads"] {
        assert!(number(&report, key) > 0, "{key}");
    }
    assert!(report["lost"].as_object().is_some_and(|lost| lost.len() >= 8 && lost.values().all(Value::is_u64)));
    for key in ["devices", "top_kernels", "top_paths"] {
        assert!(report[key].as_array().is_some_and(|rows| !rows.is_empty()), "{key}");
    }
    assert_eq!(report["devices"].as_array().map(Vec::len), Some(2));
    let total = ["kernels", "copies", "memsets"].map(|key| number(&report, key)).iter().sum::<u64>();
    assert_eq!((total, number(&report, "matched"), number(&report, "launches")), (10_000, 10_000, 10_000));
    assert!(number(&report, "gpu_busy_ns") <= number(&report, "gpu_time_ns"));
    assert!(number(&report, "gpu_busy_ns") <= 2 * number(&report, "wall_ns"));
    let ns: Vec<u64> = report["top_kernels"].as_array().expect("rows").iter().map(|row| number(row, "ns")).collect();
    assert!(ns.is_sorted_by(|a, b| a >= b), "{ns:?}");
}

/// Check that the text report has every section.
#[test]
fn text_report_has_every_section() {
    let scene = recorded();
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0).out().to_owned();
    for part in [
        "recorded",
        "GPU 0",
        "GPU 1",
        "10,000 launches",
        "per second",
        "Kernels",
        "Paths",
        "Copies",
        "HtoD",
        "matched 100 %",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "colour although stdout is not a terminal");
}

/// Check that folded stacks are sorted, have integer weights, and add up to the report's times, rounded once.
#[test]
fn folded_stacks_add_up() {
    let scene = recorded();
    let (text, report) = (scene.read("x.folded"), scene.report("x.wscope"));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.is_sorted());
    let total: u64 = folded::read(&text).iter().map(|line| line.weight).sum();
    let expected = number(&report, "gpu_time_ns") + number(&report, "cpu_time_ns");
    assert_eq!(total, (expected + 500) / 1000);
    let on_gpu = |line: &Line<'_>| line.on_gpu().is_some();
    assert!(folded::read(&text).iter().any(on_gpu) && !folded::read(&text).iter().all(on_gpu));
}

/// Check that --gpu-only and --cpu-only limit `record` and `export` to that half.
#[test]
fn gpu_only_and_cpu_only_show_one_half() {
    let scene = recorded();
    let halves = |file: &str| {
        let text = scene.read(file);
        let (gpu, cpu): (Vec<_>, Vec<_>) = folded::read(&text).into_iter().partition(|line| line.on_gpu().is_some());
        (!cpu.is_empty(), !gpu.is_empty())
    };
    assert_eq!(halves("x.folded"), (true, true));
    for (option, expected) in [("--gpu-only", (false, true)), ("--cpu-only", (true, false))] {
        Ended::of(&mut scene.warpscope(&["export", "x.wscope", option, "-o", "half.folded"])).exits(0);
        assert_eq!(halves("half.folded"), expected, "export {option}");
        // Long enough for CPU samples on a machine that is fast or busy.
        let command = format!("{} 1 2 1 1 60000", program("truth"));
        Ended::of(&mut scene.record(&format!("--sim -q -F 999 {option} -o half.folded"), &command)).exits(0);
        assert_eq!(halves("half.folded"), expected, "record {option}");
    }
}

/// Check that the Chrome trace has numeric ids, a name for each track, and one arrow with both ends for every kernel, copy and
/// memset.
#[test]
fn chrome_trace_is_consistent() {
    let scene = recorded();
    let trace: Value = serde_json::from_str(&scene.read("x.json")).expect("the trace is JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let mut arrows: BTreeMap<u64, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    let (mut named, mut used, mut slices) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::<&str, usize>::new());
    for event in events {
        let track = (number(event, "pid"), number(event, "tid"));
        match event["ph"].as_str().expect("a phase") {
            "M" if event["name"] == "thread_name" => drop(named.insert(track)),
            "M" => {}
            _ => {
                let time = event["ts"].as_f64().expect("a time");
                assert!(time >= 0.0, "{event}");
                used.insert(track);
                *slices.entry(event["cat"].as_str().expect("a category")).or_default() += 1;
                if let Some(id) = event["bind_id"].as_u64() {
                    let (tails, heads) = arrows.entry(id).or_default();
                    if event["flow_out"] == true { tails } else { heads }.push(time);
                    assert_ne!(event["flow_out"] == true, event["flow_in"] == true, "{event}");
                }
            }
        }
    }
    assert_eq!(used.difference(&named).collect::<Vec<_>>(), Vec::<&(u64, u64)>::new(), "tracks without a name");
    assert_eq!(arrows.len(), 10_000);
    for (id, ends) in arrows {
        let one = matches!((&ends.0[..], &ends.1[..]), ([from], [to]) if from <= to);
        assert!(one, "arrow {id}: {ends:?}");
    }
    assert_eq!(slices.get("launch"), Some(&10_000), "{slices:?}");
}

/// Check that the lines of the text format (`time comm pid tid cpu stack`) are the samples and launches of the events, and
/// that --gpu-only and --cpu-only select one of them.
#[test]
fn cpu_text_matches_the_events() {
    let scene = recorded();
    let events = Events::read(&scene.read("x.jsonl"));
    let of = |kind| -> BTreeSet<[u64; 4]> {
        events.of(kind).map(|event| ["ts_ns", "pid", "tid", "cpu"].map(|key| number(event, key))).collect()
    };
    let (samples, launches) = (of("sample"), of("launch"));
    assert!(!samples.is_empty() && launches.len() == 10_000);
    let lines = |name: &str| -> (BTreeSet<[u64; 4]>, BTreeSet<[u64; 4]>) {
        let text = scene.read(name);
        let (launches, samples): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains(";[GPU_Launch_"));
        let numbers = |line: &&str| {
            let words: Vec<&str> = line.splitn(6, ' ').collect();
            assert!(words.len() == 6 && !words[5].is_empty(), "{line}");
            [0, 2, 3, 4].map(|at| words[at].parse().unwrap_or_else(|_| panic!("not a number: {line}")))
        };
        (samples.iter().map(numbers).collect(), launches.iter().map(numbers).collect())
    };
    assert_eq!(lines("x.cpu.txt"), (samples.clone(), launches.clone()));
    for (option, expected) in [("--gpu-only", (BTreeSet::new(), launches)), ("--cpu-only", (samples, BTreeSet::new()))]
    {
        Ended::of(&mut scene.warpscope(&["export", "x.wscope", option, "-o", "half.cpu.txt"])).exits(0);
        assert_eq!(lines("half.cpu.txt"), expected, "{option}");
    }
}
