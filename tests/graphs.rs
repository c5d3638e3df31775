//! CUDA graphs: each replayed kernel, copy and memset appears under the code that created its node.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{
    Ended, Scene, folded,
    jsonl::{Events, is_python},
    oracle::Kind,
    program,
    programs::sources,
    pythons::installed,
    scene::{self, number},
    truth::Truth,
};

const BOUNDARY: &str = "[CUDA graph replay]";
const LAYERS: u64 = 8;
const BLOCKS: u64 = 5;
const NODES: u64 = LAYERS * BLOCKS * 5;
/// The scenarios of `programs/graphs.c`, by their numbers.
const SCENARIOS: [&str; 9] =
    ["captured", "twice", "updated", "updating", "child", "parent", "other", "added", "renewed"];
const LAUNCHERS: [&str; 8] = [
    "replay_captured",
    "replay_first",
    "replay_second",
    "replay_updated",
    "replay_child",
    "replay_other",
    "replay_added",
    "replay_renewed",
];
const ALL: &str = "captured twice updated child other added renewed";

/// The losses in a report, without records of mapped files: the kernel's buffers for these are shared by the machine.
fn lost(report: &Value) -> u64 {
    scene::lost(report) - number(&report["lost"], "mappings")
}

/// How often each operation ran: by kind, path of its node's creation, and function that launched its graph.
type Counts = BTreeMap<(Kind, String, &'static str), u64>;

/// The expected counts of a run.
fn expected(replays: u64, scenarios: &str) -> Counts {
    let mut counts = Counts::new();
    let mut add = |created_by: &str, launched_by, times: u64, copies: u64| {
        for (layer, block) in (0..LAYERS).flat_map(|layer| (0..BLOCKS).map(move |block| (layer, block))) {
            for (kind, each) in [(Kind::Kernel, 3), (Kind::Copy, copies), (Kind::Memset, 1)] {
                if each * times > 0 {
                    let path = format!("{created_by}>layer{layer}>block{block}");
                    *counts.entry((kind, path, launched_by)).or_default() += each * times;
                }
            }
        }
    };
    for scenario in scenarios.split(' ') {
        match scenario {
            "captured" => add("captured", "replay_captured", replays, 1),
            "twice" => {
                add("twice", "replay_first", replays, 1);
                add("twice", "replay_second", replays, 1);
            }
            "updated" => {
                add("updated", "replay_updated", replays.div_ceil(2), 1);
                add("updating", "replay_updated", replays / 2, 1);
            }
            "child" => {
                add("parent", "replay_child", replays, 1);
                add("child", "replay_child", 2 * replays, 1);
            }
            "other" => add("other", "replay_other", replays, 1),
            "added" => add("added", "replay_added", replays, 0),
            "renewed" => add("renewed", "replay_renewed", replays, 1),
            unknown => panic!("no scenario {unknown}"),
        }
    }
    counts
}

/// The kind of an operation, and the path that created its node.
fn operation(event: &Value) -> Option<(Kind, String)> {
    let by_bytes = |base| {
        let number = (number(event, "bytes") - base) / 16;
        let (scenario, rest) = (number / (LAYERS * BLOCKS), number % (LAYERS * BLOCKS));
        format!("{}>layer{}>block{}", SCENARIOS[scenario as usize], rest / BLOCKS, rest % BLOCKS)
    };
    Some(match event["type"].as_str()? {
        "kernel" => (Kind::Kernel, event["name"].as_str()?.strip_prefix("graph:").expect("a path").to_owned()),
        "copy" => (Kind::Copy, by_bytes(1 << 16)),
        "memset" => (Kind::Memset, by_bytes(1 << 17)),
        _ => return None,
    })
}

/// Checks that a stack ends in this path and the CUDA libraries.
#[track_caller]
fn check_creation(frames: &[&str], path: &str) {
    let expected: Vec<&str> = path.split('>').collect();
    let begin = frames.iter().position(|frame| *frame == expected[0]);
    let inside = begin.and_then(|begin| frames[begin..].strip_prefix(&*expected));
    let is_cuda = |frame: &&str| frame.starts_with("cu") || frame.starts_with("[libcu");
    let right = inside.is_some_and(|inside| !inside.is_empty() && inside.iter().all(is_cuda));
    assert!(right, "{path} has the stack {}", frames.join(";"));
}

/// The function that launched a graph.
#[track_caller]
fn launcher(frames: &[&str]) -> &'static str {
    let launchers: Vec<&'static str> = LAUNCHERS.into_iter().filter(|name| frames.contains(name)).collect();
    assert_eq!(launchers.len(), 1, "{}", frames.join(";"));
    launchers[0]
}

/// Counts the operations in a `.jsonl` file; checks the stack that created each.
fn counts(events: &Events) -> Counts {
    let mut counts = Counts::new();
    for event in &events.all {
        let Some((kind, path)) = operation(event) else { continue };
        assert_ne!(event["capture"], Value::Null, "the creation of this node is not known: {event}");
        check_creation(&events.frames(number(event, "capture")), &path);
        let launch = events.launch_of(event);
        assert_eq!(launch["kind"], "graph");
        *counts.entry((kind, path, launcher(&events.stack(launch)))).or_default() += 1;
    }
    counts
}

fn script(scene: &Scene, more: &str) -> String {
    format!("kernel_ns=2us,truth={},{more}", scene.text("truth"))
}

/// Records the scenarios and checks every operation. Returns the report.
#[track_caller]
fn check(scene: &Scene, replays: u64, scenarios: &str, more: &str) -> Value {
    let command = format!("{} {replays} {scenarios}", program("graphs"));
    let mut recording = scene.record("--sim -q --gpu-only -o x.jsonl -o x.folded -o x.wscope", &command);
    let run = Ended::of(recording.env("WARPSCOPE_SIM", script(scene, more))).exits(0);
    let expected = expected(replays, scenarios);
    let operations: u64 = expected.values().sum();
    assert_eq!(run.out(), format!("operations {operations}\n"));
    let report = scene.report("x.wscope");
    let truth = Truth::of(scene, "truth");
    assert_eq!(truth.delivered(), operations);
    assert_eq!(number(&report, "matched"), operations);
    assert_eq!(number(&report, "captured_launches"), truth.captured);
    assert_eq!((number(&report, "pending_launches"), lost(&report)), (0, 0), "{}", report["lost"]);
    assert_eq!(counts(&Events::read(&scene.read("x.jsonl"))), expected, "{scenarios} {more}");
    assert_eq!(
        report["graphs"],
        serde_json::json!({
            "operations": operations, "operations_unknown": 0, "nodes_unknown": 0
        })
    );
    report
}

/// Check each operation of a graph of 200 nodes that are captured from 40 places, of two executables of one graph, of an
/// executable that is updated, of child graphs, of a graph captured by another thread, of one whose nodes are added
/// explicitly, and of graphs that are destroyed after each launch.
#[test]
fn every_node_appears_under_the_code_that_created_it() {
    let scene = Scene::new();
    let report = check(&scene, 20, ALL, "");
    assert_eq!(number(&report, "stacks_missing"), 0);
    assert_eq!(report["gpu_stack_ends"], serde_json::json!({"whole": number(&report, "matched")}));

    // Flame graphs show the same, with a frame at the boundary.
    let text = scene.read("x.folded");
    for line in folded::read(&text) {
        let Some(work) = line.on_gpu() else { continue };
        let (boundary, creation) = line.launcher().split_last().expect("frames");
        assert_eq!(*boundary, BOUNDARY, "{line:?}");
        if let Some(path) = work.name.strip_prefix("graph:") {
            check_creation(creation, path);
        }
    }
    assert!(text.contains("graph:child>layer7>block4"));
}

/// Check that `--graph-stacks launch` shows the work under the launches, in all commands, and that the time is the same.
#[test]
fn graphs_can_be_shown_under_their_launches() {
    let scene = Scene::new();
    let command = format!("{} 10 captured twice", program("graphs"));
    let mut recording = scene.record("--sim -q --gpu-only --graph-stacks launch -o x.folded -o x.wscope", &command);
    Ended::of(recording.env("WARPSCOPE_SIM", script(&scene, ""))).exits(0);
    let export = |options: &[&str], file: &str| {
        let words: Vec<&str> =
            ["export", "x.wscope"].into_iter().chain(options.iter().copied()).chain(["-o", file]).collect();
        Ended::of(&mut scene.warpscope(&words)).exits(0);
        scene.read(file)
    };
    let by_launch = scene.read("x.folded");
    assert_eq!(export(&["--graph-stacks", "launch"], "again.folded"), by_launch);
    let by_capture = export(&[], "capture.folded");
    let mut seen = BTreeMap::<&str, u64>::new();
    for line in folded::read(&by_launch) {
        assert!(!line.frames.contains(&BOUNDARY));
        *seen.entry(launcher(line.launcher())).or_default() += line.weight;
    }
    let total = |text: &str| folded::read(text).iter().map(|line| line.weight).sum::<u64>();
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), ["replay_captured", "replay_first", "replay_second"]);
    assert_eq!(total(&by_launch), total(&by_capture));
    assert!(by_capture.contains(BOUNDARY));

    let path = |options: &[&str]| {
        let words: Vec<&str> = ["report", "--json", "x.wscope"].into_iter().chain(options.iter().copied()).collect();
        let report = Ended::of(&mut scene.warpscope(&words)).exits(0);
        let report: Value = serde_json::from_str(report.out()).expect("JSON");
        report["top_paths"][0]["path"].to_string()
    };
    assert!(path(&[]).contains(BOUNDARY));
    assert!(!path(&["--graph-stacks", "launch"]).contains(BOUNDARY));
}

/// Check that the tool tips of a flame graph name the code that launched the graphs.
#[test]
fn tool_tips_say_who_launched_a_graph() {
    let scene = Scene::new();
    let command = format!("{} 5 captured twice", program("graphs"));
    let mut recording = scene.record("--sim -q --gpu-only -o x.svg -o x.wscope", &command);
    Ended::of(recording.env("WARPSCOPE_SIM", script(&scene, ""))).exits(0);
    let svg = scene.read("x.svg");
    let tips: Vec<&str> = svg
        .split("<title>")
        .skip(1)
        .filter_map(|rest| rest.split("</title>").next())
        .filter(|tip| tip.contains("graph:twice&gt;layer3&gt;block2"))
        .collect();
    assert_eq!(tips.len(), 2, "captured by calls of the runtime and of the driver: {tips:?}");
    for tip in tips.iter().map(|tip| tip.replace("&gt;", ">")) {
        for launcher in ["main > replay_first > cudaGraphLaunch", "main > replay_second > cudaGraphLaunch"] {
            assert!(tip.contains(launcher), "{tip}");
        }
        assert!(tip.contains(", launched by graphs > "), "{tip}");
        assert_eq!(tip.matches('(').count(), 1, "the script finds the name by the parenthesis: {tip}");
    }
}

/// Check that records which arrive out of order, on the launching thread or without a clock change nothing.
#[test]
fn the_order_of_records_does_not_matter() {
    for more in ["order=shuffle", "deliver=launcher,release=13.4", "clock=refuse"] {
        check(&Scene::new(), 6, ALL, more);
    }
    // Before 13.0, CUPTI does not report updates.
    check(&Scene::new(), 6, "captured twice child other added renewed", "release=11.8");
}

/// Check that nodes which were created before the recording began appear under the launch, and that the ledger counts them.
#[test]
fn nodes_created_unseen_appear_under_the_launch() {
    let scene = Scene::new();
    let command = format!("{} 10 captured twice", program("graphs"));
    let mut recording = scene.record("--sim --gpu-only -o x.folded -o x.wscope", &command);
    let unseen = NODES + 2 * BLOCKS * 5;
    let run = Ended::of(recording.env("WARPSCOPE_SIM", script(&scene, &format!("unseen_nodes={unseen}")))).exits(0);
    let report = scene.report("x.wscope");
    // The second graph has two executables, in which layers 0 and 1 are unseen.
    let (nodes, operations) = (NODES + 2 * (unseen - NODES), 10 * (NODES + 2 * (unseen - NODES)));
    assert_eq!(
        report["graphs"],
        serde_json::json!({
            "operations": 30 * NODES, "operations_unknown": operations, "nodes_unknown": nodes
        })
    );
    let sentence = "3,000 of 6,000 operations of CUDA graphs are shown under the launch of their graph: the creation of 300 nodes was not seen";
    assert!(run.err().contains(sentence), "{}", run.err());
    assert_eq!((number(&report, "matched"), lost(&report)), (30 * NODES, 0));
    for line in folded::read(&scene.read("x.folded")) {
        let Some(work) = line.on_gpu() else { continue };
        let Some(path) = work.name.strip_prefix("graph:") else { continue };
        let unseen = path.starts_with("captured>") || path.contains(">layer0>") || path.contains(">layer1>");
        assert_eq!(line.frames.contains(&BOUNDARY), !unseen, "{line:?}");
        if unseen {
            launcher(line.launcher());
        }
    }
}

/// Check that `--graph-level` records each launch of a graph as one operation, under the launch, for as long as its nodes ran.
#[test]
fn graphs_can_be_recorded_as_wholes() {
    for release in ["12.0", "13.0"] {
        let scene = Scene::new();
        let command = format!("{} 10 captured twice added", program("graphs"));
        let mut recording = scene.record("--sim -q --gpu-only --graph-level -o x.jsonl -o x.wscope", &command);
        let more = format!("release={release},copy_gbps=1000000");
        Ended::of(recording.env("WARPSCOPE_SIM", script(&scene, &more))).exits(0);
        let report = scene.report("x.wscope");
        let truth = Truth::of(&scene, "truth");
        let numbers = ["kernels", "copies", "memsets", "matched", "pending_launches"].map(|key| number(&report, key));
        assert_eq!((numbers, lost(&report)), ([40, 0, 0, 40, 0], 0));
        assert_eq!((truth.delivered(), truth.kernel_ns), (40, number(&report, "kernel_time_ns")));
        let events = Events::read(&scene.read("x.jsonl"));
        let mut seen = BTreeMap::<&str, u64>::new();
        for graph in events.of("kernel") {
            assert_eq!(graph["name"], "[CUDA graph]");
            let launcher = launcher(&events.stack(events.launch_of(graph)));
            // 3 kernels of 2 us, a copy and a memset of 1 us from each of 40 places; there may be gaps between them.
            let least = if launcher == "replay_added" { 280_000 } else { 320_000 };
            assert!(number(graph, "dur_ns") >= least, "{graph}");
            *seen.entry(launcher).or_default() += 1;
        }
        let launchers = ["replay_added", "replay_captured", "replay_first", "replay_second"];
        assert_eq!(seen, launchers.map(|launcher| (launcher, 10)).into());
    }
}

/// Check that each kernel of a graph captured in Python has exactly the Python frames that captured it, with their lines, in
/// every installed version, while another thread launches it too.
#[test]
fn captured_python_stacks_are_exact() {
    const REPLAYS: u64 = 20;
    let script = sources().join("programs/graphs.py").canonicalize().expect("it is there");
    for python in installed() {
        let scene = Scene::new();
        let command = format!("{python} {} paths {REPLAYS}", script.display());
        let mut recording = scene.record("--sim -q --gpu-only -o x.jsonl -o x.wscope", &command);
        let run = Ended::of(recording.env("WARPSCOPE_SIM", "kernel_ns=2us")).exits(0);
        let paths: BTreeMap<String, Vec<String>> = scene
            .read("paths")
            .lines()
            .map(|line| {
                let mut fields = line.split('\t').map(str::to_owned);
                (format!("py:{}", fields.next().expect("a number")), fields.collect())
            })
            .collect();
        assert_eq!(run.out(), format!("captured {}\n", paths.len()), "{python}");
        assert!(paths.len() >= 200, "{python}: {}", paths.len());
        let report = scene.report("x.wscope");
        assert_eq!((number(&report, "matched"), lost(&report)), (2 * REPLAYS * paths.len() as u64, 0), "{python}");

        let events = Events::read(&scene.read("x.jsonl"));
        let mut seen = BTreeMap::<&str, u64>::new();
        for event in events.of("kernel") {
            let name = event["name"].as_str().expect("a name");
            let frames = events.frames(number(event, "capture"));
            let shown: Vec<&str> = frames.iter().copied().filter(|frame| is_python(frame)).collect();
            assert_eq!(shown, paths[name], "{python}");
            assert!(frames.contains(&"cudaLaunchKernel"), "{python}: {frames:?}");
            let launch = events.stack(events.launch_of(event));
            assert!(launch.iter().any(|frame| frame.starts_with("replay_loop (graphs.py:")), "{python}: {launch:?}");
            *seen.entry(name).or_default() += 1;
        }
        assert_eq!(seen.len(), paths.len(), "{python}");
        assert!(seen.values().all(|count| *count == 2 * REPLAYS), "{python}: {seen:?}");
    }
}
