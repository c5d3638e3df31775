//! Formats of stacks with several weights: pprof and speedscope. Their totals are those of the folded stacks.

mod support;

use std::{collections::BTreeMap, fs, process::Command};

use analysis::View;
use export::Format;
use model::event::{Event, LaunchKind, Mapping, ProcessId, Rank, SessionId};
use serde_json::Value;
use support::pprof::Pprof;

/// The example recording, with the file of a library and a rank.
fn events() -> Vec<Event> {
    let mut events = fixtures::events();
    let mapping = |path: &str, build_id: &[u8]| {
        let (path, build_id) = (path.to_owned(), build_id.to_vec());
        Event::Mapping(Mapping { process: ProcessId(1), time: 1, start: 0, end: 1 << 20, offset: 0, path, build_id })
    };
    let end = events.len() - 1;
    events.insert(end, mapping("/opt/other/app2", &[1]));
    events.insert(end, mapping("/opt/bin/app", &[0xde, 0xad, 0xbe, 0xef]));
    let (session, variable) = (SessionId(1), "RANK".to_owned());
    events.insert(end, Event::Rank(Rank { session, rank: Some(3), local: None, variable, mps: false }));
    events
}

/// Check that launches after the end count if their work was reported, as in the ledger, and only then.
#[test]
fn launches_after_the_end_count_with_their_work() {
    let mut events = events();
    let before = fixtures::fold(&events).ledger.launches;
    let (ms, kind) = (fixtures::MS, LaunchKind::Kernel);
    events.push(fixtures::launch(0, 900, kind, 101 * ms, 1));
    events.push(fixtures::launch(0, 901, kind, 102 * ms, 1));
    events.push(fixtures::activity(0, 900, 0, 7, 103 * ms, ms, fixtures::kernel(1)));
    assert_eq!(fixtures::fold(&events).ledger.launches, before + 1);
    let pprof = Pprof::read(&support::bytes(Format::Pprof, &events, View::default()));
    assert_eq!(pprof.total("launches"), before + 1);
    let view = View { table: analysis::Table::Threads, ..View::default() };
    let threads = support::export(Format::Csv, &events, view);
    let launches = threads.lines().skip(1).map(|row| row.rsplit(',').next().expect(row).parse::<u64>().expect(row));
    assert_eq!(launches.sum::<u64>(), before + 1, "{threads}");
}

fn speedscope(events: &[Event]) -> Value {
    serde_json::from_str(&support::export(Format::Speedscope, events, View::default())).expect("JSON")
}

/// Check that pprof and speedscope have the same totals as the ledger and the folded stacks, and the ledger itself.
#[test]
fn totals_agree() {
    let events = events();
    let profile = fixtures::fold(&events);
    let pprof = Pprof::read(&support::bytes(Format::Pprof, &events, View::default()));
    let ledger = &profile.ledger;
    let (gpu, cpu) = (pprof.total("gpu"), pprof.total("cpu"));
    assert_eq!(gpu, profile.gpu.values().map(|weight| weight.ns).sum::<u64>());
    assert_eq!(cpu, profile.cpu.values().map(|weight| weight.ns).sum::<u64>());
    assert_eq!(pprof.total("launches"), ledger.launches);
    assert_eq!(pprof.total("operations"), ledger.kernels + ledger.copies + ledger.memsets);
    let folded = support::export(Format::Folded, &events, View::default());
    let micros: u64 =
        folded.lines().map(|line| line.rsplit(' ').next().unwrap_or("").parse::<u64>().expect(line)).sum();
    assert_eq!((gpu + cpu + 500) / 1000, micros);

    let speedscope = speedscope(&events);
    let profiles = speedscope["profiles"].as_array().expect("profiles");
    let totals: Vec<_> = profiles
        .iter()
        .map(|profile| {
            let sum: u64 = profile["weights"].as_array().expect("weights").iter().filter_map(Value::as_u64).sum();
            assert_eq!(profile["endValue"], sum);
            assert_eq!(profile["samples"].as_array().map(Vec::len), profile["weights"].as_array().map(Vec::len));
            (profile["name"].as_str().expect("name"), profile["unit"].as_str().expect("unit"), sum)
        })
        .collect();
    let operations = pprof.total("operations");
    assert_eq!(
        totals,
        [
            ("GPU time", "nanoseconds", gpu),
            ("GPU operations", "none", operations),
            ("CPU time", "nanoseconds", cpu),
            ("Launches", "none", ledger.launches)
        ]
    );
    let expected = serde_json::to_value(ledger).expect("JSON");
    assert_eq!(speedscope["ledger"], expected);
    let comment = pprof.comments.iter().find_map(|comment| comment.strip_prefix("ledger: ")).expect("the ledger");
    assert_eq!(serde_json::from_str::<Value>(comment).expect("JSON"), expected);
}

/// Check that both have the stacks of the folded file, with names that are not changed.
#[test]
fn stacks_are_those_of_the_folded_file() {
    let events = events();
    let pprof = Pprof::read(&support::bytes(Format::Pprof, &events, View::default()));
    let launches = pprof.types.iter().position(|(name, _)| name == "launches").expect("launches");
    let mut stacks: Vec<String> = pprof
        .samples
        .iter()
        .filter(|(_, _, amounts)| amounts[launches] == 0)
        .map(|(frames, _, _)| frames.iter().map(|name| text::names::clean(name)).collect::<Vec<_>>().join(";"))
        .collect();
    stacks.sort();
    stacks.dedup();
    let folded = support::export(Format::Folded, &events, View::default());
    let expected: Vec<&str> = folded.lines().map(|line| line.rsplit_once(' ').expect(line).0).collect();
    assert_eq!(stacks, expected);
    let hostile = "[GPU0_Kernel] evil;kernel \"quoted\" <b>&amp;\n\u{1b}[31m 5";
    assert!(pprof.samples.iter().any(|(frames, ..)| frames.last().is_some_and(|name| name == hostile)));
    let speedscope = speedscope(&events);
    let frames = speedscope["shared"]["frames"].as_array().expect("frames");
    assert!(frames.iter().any(|frame| frame["name"] == hostile));
    for profile in speedscope["profiles"].as_array().expect("profiles") {
        for stack in profile["samples"].as_array().expect("samples") {
            let known = |index: &Value| index.as_u64().is_some_and(|index| (index as usize) < frames.len());
            assert!(stack.as_array().is_some_and(|stack| stack.iter().all(known)));
        }
    }
}

/// Check the labels of samples, and the path and build id of the program.
#[test]
fn pprof_has_labels_and_build_ids() {
    let pprof = Pprof::read(&support::bytes(Format::Pprof, &events(), View::default()));
    assert_eq!(pprof.mappings, [("/opt/bin/app".to_owned(), "deadbeef".to_owned())]);
    assert_eq!(pprof.default_type, "gpu");
    let has = |wanted: &[(&str, &str)]| {
        let matches = |labels: &BTreeMap<String, String>| {
            labels.len() == wanted.len()
                && wanted.iter().all(|(key, value)| labels.get(*key).is_some_and(|v| v == value))
        };
        assert!(pprof.samples.iter().any(|(_, labels, _)| matches(labels)), "{wanted:?}");
    };
    has(&[("process", "python3"), ("pid", "4711"), ("device", "1"), ("stream", "7")]);
    has(&[("process", "python3"), ("pid", "4711"), ("thread", "pt_main thread"), ("tid", "4720")]);
    has(&[("process", "tok worker"), ("pid", "4712"), ("device", "0"), ("stream", "7"), ("rank", "3")]);
}

/// Check that a view limits both formats.
#[test]
fn views_limit_the_weights() {
    let types = |view| Pprof::read(&support::bytes(Format::Pprof, &events(), view)).types;
    let names = |view| types(view).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(View { cpu: false, ..View::default() }), ["gpu", "operations", "launches"]);
    assert_eq!(names(View { gpu: false, ..View::default() }), ["cpu"]);
}

/// Check that counted events are sample types with their units.
#[test]
fn counted_events_are_sample_types() {
    let events = fixtures::counted::events();
    let pprof = Pprof::read(&support::bytes(Format::Pprof, &events, View::default()));
    let profile = fixtures::fold(&events);
    for counter in profile.counters.all.values() {
        let total: u64 = profile
            .counters
            .of(counter.id)
            .map(|(.., hits)| hits.weight.max(if counter.weight.is_empty() { hits.count } else { 0 }))
            .sum();
        assert_eq!(pprof.total(&counter.name), total, "{}", counter.name);
    }
    assert!(!profile.counters.all.is_empty());
}

/// Check that Go's pprof reads the file: its totals, its labels and its comments.
#[test]
fn go_reads_the_profile() {
    let go = |arguments: &[&str]| {
        Command::new("go").args(["tool", "pprof"]).args(arguments).env("HOME", "/nowhere").output()
    };
    if Command::new("go").args(["tool", "-n", "pprof"]).output().is_ok_and(|run| !run.status.success())
        || go(&["-h"]).is_err()
    {
        return support::coverage::not_covered("pprof's reader: `go tool pprof` is not installed");
    }
    let events = events();
    let profile = fixtures::fold(&events);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("run.pb.gz");
    fs::write(&file, support::bytes(Format::Pprof, &events, View::default())).expect("written");
    let read = |options: &[&str]| {
        let run = go(&[options, &[file.to_str().expect("UTF-8")]].concat()).expect("go runs");
        assert!(run.status.success(), "{options:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).expect("UTF-8")
    };
    let gpu: u64 = profile.gpu.values().map(|weight| weight.ns).sum();
    let top = read(&["-top", "-unit=ns"]);
    assert!(top.contains("Type: gpu") && top.contains(&format!("{gpu}ns total")), "{top}");
    let top = read(&["-top", "-sample_index=launches"]);
    assert!(top.contains(&format!("{} total", profile.ledger.launches)), "{top}");
    let tags = read(&["-tags", "-sample_index=cpu"]);
    assert!(tags.contains("thread:") && tags.contains("pt_main thread"), "{tags}");
    // pprof keeps template arguments: kernels that differ only in these are different.
    let kernel = "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>";
    assert!(read(&["-top"]).contains(kernel));
    let raw = read(&["-raw"]);
    assert!(raw.contains("/opt/bin/app deadbeef [FN][FL][LN][IN]"), "{raw}");
    assert!(read(&["-comments"]).contains("ledger: {\"launches\":47,"));
}
