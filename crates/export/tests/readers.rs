//! Requirements of other programs on the files: flamegraph.pl and inferno, Perfetto and chrome://tracing, JSON and XML
//! parsers.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use analysis::View;
use export::Format;
use model::event::Event;
use serde_json::Value;

/// Reads a folded line as flamegraph.pl does: the stack, and the number after the last blank.
fn folded(text: &str) -> BTreeMap<&str, u64> {
    let mut stacks = BTreeMap::new();
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').expect(line);
        let weight = weight.parse().expect(line);
        assert!(weight > 0, "{line}");
        assert!(stack.split(';').all(|frame| !frame.is_empty() && frame.trim() == frame), "{line}");
        // Two numbers at the end would be read as a comparison of two profiles.
        let last_word = stack.rsplit(' ').next().unwrap_or_default();
        assert!(!last_word.chars().all(|c| c.is_ascii_digit() || c == '.'), "{line}");
        assert!(!line.chars().any(char::is_control) && !line.starts_with("# "), "{line}");
        assert_eq!(stacks.insert(stack, weight), None, "twice: {line}");
    }
    stacks
}

/// Check the grammar of folded lines, their order, and that the parts add up to the whole.
#[test]
fn folded_grammar_and_totals() {
    let events = fixtures::events();
    let profile = fixtures::fold(&events);
    let text = support::export(Format::Folded, &events, View::default());
    assert!(text.lines().is_sorted());
    let all = folded(&text);
    let gpu_ns: u64 = profile.gpu.values().map(|weight| weight.ns).sum();
    let cpu_ns: u64 = profile.cpu.values().map(|weight| weight.ns).sum();
    assert_eq!(all.values().sum::<u64>(), (gpu_ns + cpu_ns + 500) / 1000);
    let gpu = support::export(Format::Folded, &events, View { cpu: false, ..View::default() });
    assert_eq!(folded(&gpu).values().sum::<u64>(), (gpu_ns + 500) / 1000);
    assert!(gpu.lines().all(|line| line.contains(";[GPU")));
    let cpu = support::export(Format::Folded, &events, View { gpu: false, ..View::default() });
    assert_eq!(folded(&cpu).values().sum::<u64>(), (cpu_ns + 500) / 1000);
    assert!(!cpu.contains("[GPU"));
}

/// Check that with only one active GPU frames have no GPU number.
#[test]
fn one_gpu_has_no_number() {
    let mut events = fixtures::events();
    events.retain(|event| !matches!(event, Event::Activity(activity) if activity.device == 1));
    let text = support::export(Format::Folded, &events, View::default());
    assert!(text.contains(";[GPU_Kernel] matmul_kernel(") && text.contains(";[GPU_Memcpy HtoD] 64-128 MiB "));
    assert!(text.contains(";[GPU_Memset] ") && !text.contains("[GPU0"));
}

fn trace_events(trace: &Value) -> &[Value] {
    trace["traceEvents"].as_array().expect("traceEvents")
}

/// Check that the Chrome trace is JSON with numbers for every pid and tid, and a name for every track in use.
#[test]
fn chrome_tracks() {
    let trace: Value =
        serde_json::from_str(&support::export(Format::Chrome, &fixtures::events(), View::default())).expect("JSON");
    let (mut used, mut named) = (BTreeSet::new(), BTreeSet::new());
    for event in trace_events(&trace) {
        let track = (event["pid"].as_u64().expect("pid"), event["tid"].as_u64().expect("tid"));
        match event["ph"].as_str().expect("ph") {
            "M" if event["name"] == "thread_name" => drop(named.insert(track)),
            "M" => {}
            _ => {
                assert!(event["ts"].as_f64().is_some_and(|ts| ts >= 0.0), "{event}");
                used.insert(track);
            }
        }
    }
    assert_eq!(used, named);
    assert_eq!(trace["otherData"]["ledger"]["launches_pending"], 1);
    // Every stack leads to an outermost frame.
    let frames = &trace["stackFrames"];
    for event in trace_events(&trace) {
        let mut frame = event["sf"].as_u64();
        while let Some(number) = frame {
            let parent = frames[number.to_string()]["parent"].as_u64();
            assert!(frames[number.to_string()]["name"].is_string() && parent.is_none_or(|parent| parent < number));
            frame = parent;
        }
    }
    let kernels = trace_events(&trace).iter().filter(|event| event["cat"] == "kernel");
    // All but the one without times.
    assert_eq!(kernels.count(), 41);
}

/// Start, end, and the event.
type Slice<'a> = (f64, f64, &'a Value);

/// Check that slices of a track do not overlap, and that each arrow leads from a launch to the activities with its id.
#[test]
fn chrome_slices_and_arrows() {
    let trace: Value =
        serde_json::from_str(&support::export(Format::Chrome, &fixtures::events(), View::default())).expect("JSON");
    let mut tracks: BTreeMap<(u64, u64), Vec<Slice<'_>>> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for event in trace_events(&trace).iter().filter(|event| event["ph"] == "X") {
        let track = (event["pid"].as_u64().expect("pid"), event["tid"].as_u64().expect("tid"));
        let ts = event["ts"].as_f64().expect("ts");
        tracks.entry(track).or_default().push((ts, ts + event["dur"].as_f64().expect("dur"), event));
        if let Some(id) = event["bind_id"].as_u64() {
            let (tails, heads) = arrows.entry(id).or_default();
            match (event["flow_out"].as_bool(), event["flow_in"].as_bool()) {
                (Some(true), None) => tails.push(event),
                (None, Some(true)) => heads.push(event),
                _ => panic!("an arrow without a direction: {event}"),
            }
        }
    }
    for slices in tracks.values_mut() {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        let overlap = slices.windows(2).find(|pair| pair[0].1 > pair[1].0 + 1e-6);
        assert!(overlap.is_none(), "{overlap:?}");
    }
    let heads: usize = arrows.values().map(|(_, heads)| heads.len()).sum();
    assert_eq!(heads, 43, "44 matched, of which one has no times");
    for (tails, heads) in arrows.values() {
        let [launch] = tails.as_slice() else { panic!("{tails:?} {heads:?}") };
        assert_eq!(launch["cat"], "launch");
        for activity in heads {
            for key in ["correlation", "session"] {
                assert_eq!(launch["args"][key], activity["args"][key]);
            }
            assert!(launch["sf"].is_u64() && launch["sf"] == activity["sf"], "{launch} {activity}");
        }
    }
}

/// Check that every line is an object with a type, that stacks precede their use, and that the ledger is last.
#[test]
fn jsonl_lines() {
    let text = support::export(Format::Jsonl, &fixtures::events(), View::default());
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let mut stacks = BTreeSet::new();
    for line in &lines {
        let kind = line["type"].as_str().expect("type");
        assert!(line["capture"].as_u64().is_none_or(|stack| stacks.contains(&stack)), "{line}");
        match (kind, line["stack"].as_u64()) {
            ("stack", Some(stack)) => assert!(stacks.insert(stack), "written once"),
            (_, Some(stack)) => assert!(stacks.contains(&stack), "{line}"),
            _ => {}
        }
    }
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((of("kernel"), of("copy"), of("memset"), of("launch"), of("sample")), (42, 2, 1, 47, 5));
    assert_eq!(lines.last().expect("lines")["type"], "ledger");
    assert_eq!((of("failed"), of("captured"), of("ledger")), (1, 2, 1));
}

/// Check that names keep their bytes in JSON, whatever they contain.
#[test]
fn json_keeps_names() {
    let evil = "evil;kernel \"quoted\" <b>&amp;\n\u{1b}[31m 5";
    let trace: Value =
        serde_json::from_str(&support::export(Format::Chrome, &fixtures::events(), View::default())).expect("JSON");
    assert!(trace_events(&trace).iter().any(|event| event["name"] == evil));
    let text = support::export(Format::Jsonl, &fixtures::events(), View::default());
    assert!(text.lines().any(|line| serde_json::from_str::<Value>(line).expect("JSON")["name"] == evil));
}

/// Check that each frame in the SVG has a tool tip with its own time and counts, and that no name breaks the XML.
#[test]
fn svg_tool_tips_have_time_and_counts() {
    let svg = support::export(Format::Svg, &fixtures::events(), View::default());
    assert!(svg.contains("<title>all (74.7 ms, 100.0 %, 45 GPU operations, 5 CPU samples)</title>"));
    assert!(svg.contains("<title>load_weights (13.1 ms, 17.6 %, 3 GPU operations, 1 CPU sample)</title>"));
    assert!(svg.contains("<title>sample &lt;[u8: 8]&gt; (20.2 ms, 27.0 %, 2 CPU samples)</title>"));
    assert!(svg.contains("&lt;b&gt;&amp;amp:") && !svg.contains("<b>") && !svg.contains('\u{1b}'));
    let replay = "<title>[CUDA graph replay] (400 µs, 0.5 %, 1 GPU operation, launched by python3 &gt; _start &gt; main &gt; generate &gt; cudaGraphLaunch)</title>";
    assert!(svg.contains(replay));
    assert_eq!(svg.matches("<g>").count(), svg.matches("<title>").count());
    assert!(svg.contains("<metadata id=\"ledger\">{\"launches\":47,"));
}

/// Check that absurdly large numbers are drawn without a panic.
#[test]
fn absurd_weights_are_drawn() {
    let events = fixtures::absurd_weights();
    for format in [Format::Svg, Format::Folded, Format::Chrome, Format::Jsonl, Format::CpuText] {
        assert!(!support::export(format, &events, View::default()).is_empty());
    }
}

/// Check that a recording is not an export format.
#[test]
fn recordings_are_no_export_format() {
    let profile = fixtures::fold(&[]);
    let mut none = || panic!("no events needed");
    let result =
        export::write(Format::Recording, &analysis::Flames::new(&profile), View::default(), &mut none, &mut Vec::new());
    assert_eq!(result.expect_err("refused").kind(), std::io::ErrorKind::Unsupported);
}
