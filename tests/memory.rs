//! GPU memory by line (`record --memory`): every byte of a stand-in for PyTorch's caching allocator, which counts itself, and of
//! other allocations.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    programs::{libraries, program, run, sources},
    pythons::installed,
    scene::{self, number},
};

pub const MIB: u64 = 1 << 20;

/// Builds the stand-in.
pub fn build(scene: &Scene) {
    let source = sources().join("programs/memory/c10.c");
    let sim = format!("-L{}", libraries().display());
    run(Command::new("cc")
        .args(["-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&scene.path("libc10_cuda.so"), &source])
        .args([&sim, "-lcudart", "-lcuda"]));
}

/// Without records of mapped files: the kernel's buffers for these are shared by the machine.
pub fn lost(report: &Value) -> u64 {
    scene::lost(report) - number(&report["lost"], "mappings")
}

/// Returns the bytes by use and line.
pub fn lines(moment: &Value) -> BTreeMap<(String, String), (u64, u64)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let lines = moment["lines"].as_array().expect("lines");
    let line = |line: &Value| {
        ((text(&line["use"]), text(&line["place"]["frame"])), (number(line, "bytes"), number(line, "count")))
    };
    lines.iter().map(line).collect()
}

/// The same without cached memory.
pub fn in_use(moment: &Value) -> BTreeMap<(String, String), (u64, u64)> {
    lines(moment).into_iter().filter(|((what, _), _)| what != "cached").collect()
}

pub fn line(what: &str, frame: &str, bytes: u64, count: u64) -> ((String, String), (u64, u64)) {
    ((what.to_owned(), frame.to_owned()), (bytes, count))
}

/// Check that in every Python the tensors at the peak and at the end equal what the allocator itself counts, to the byte; that
/// each is under its line; and that cached memory and that of other libraries are separate. At the end means before the
/// interpreter frees everything.
#[test]
fn tensors_are_under_their_lines() {
    let script = sources().join("programs/memory/hold.py").canonicalize().expect("it is there");
    for (index, python) in installed().into_iter().enumerate() {
        let scene = Scene::new();
        build(&scene);
        let command = format!("{python} {}", script.display());
        let mut recording = scene.record("--sim -q --memory --gpu-only -o x.wscope -o x.jsonl", &command);
        let run = Ended::of(recording.env("LD_LIBRARY_PATH", scene.text(""))).exits(0);
        let truth: Value = serde_json::from_str(run.out()).expect("the program prints JSON");
        let report = scene.report("x.wscope");
        assert_eq!(lost(&report), 0, "{python}: {}", report["lost"]);
        let memory = report["memory"].as_array().expect("memory");
        assert_eq!(memory.len(), 2, "{python}: {memory:?}");
        for (device, memory) in memory.iter().enumerate() {
            let of = |name: &str| truth[name][device].as_u64().expect("a number");
            assert_eq!(memory["label"], device.to_string(), "{python}");
            assert_eq!(number(&memory["peak"], "tensor_bytes"), of("peak"), "{python}: {memory}");
            assert_eq!(number(memory, "most_tensor_bytes"), of("peak"), "{python}: {memory}");
            let end = &memory["end"];
            assert_eq!(number(end, "tensor_bytes"), of("allocated"), "{python}: {memory}");
            assert_eq!(number(end, "tensor_bytes") + number(end, "cached_bytes"), of("reserved"), "{python}: {memory}");
        }
        let (first, second) = (&memory[0], &memory[1]);
        let weights = [
            line("tensor", "weights (hold.py:30)", 3_000_320, 1),
            line("tensor", "weights (hold.py:31)", 1024, 1),
            line("other", "<module> (hold.py:61)", 7 * MIB, 1),
        ];
        // The first of these tensors holds a larger block, whose rest is too small to be split off.
        let activations = truth["peak"][0].as_u64().expect("a number") - 3_000_320 - 1024;
        assert_eq!(activations, 17_971_200 + 2 * 17_500_160, "the program is as planned");
        let peak = weights.iter().cloned().chain([line("tensor", "activations (hold.py:38)", activations, 3)]);
        assert_eq!(in_use(&first["peak"]), peak.collect::<BTreeMap<_, _>>(), "{python}");
        assert_eq!(in_use(&first["end"]), BTreeMap::from(weights), "{python}");
        let late = [line("tensor", "<module> (hold.py:68)", 2_000_384, 1)];
        assert_eq!(in_use(&second["end"]), BTreeMap::from(late), "{python}");
        if index == 0 {
            flame_graphs(&scene, &report);
        }
    }
}

/// Check that flame graphs of memory add up to the table, and that the page and the text name the line.
fn flame_graphs(scene: &Scene, report: &Value) {
    for (moment, file) in [("peak", "peak.folded"), ("end", "end.folded")] {
        let arguments = ["export", "x.wscope", "--memory", moment, "-o", file, "-o", "x.svg"];
        Ended::of(&mut scene.warpscope(&arguments)).exits(0);
        let weight =
            |line: &str| line.rsplit(' ').next().and_then(|weight| weight.parse::<u64>().ok()).expect("a weight");
        let text = scene.read(file);
        let sum = |frame: &str| -> u64 { text.lines().filter(|line| line.contains(frame)).map(weight).sum() };
        let of = |name: &str| -> u64 {
            let all = report["memory"].as_array().expect("memory");
            all.iter().map(|memory| number(&memory[moment], name)).sum()
        };
        assert_eq!(sum(";[tensors] "), of("tensor_bytes"), "{text}");
        assert_eq!(sum(";[cached by PyTorch, free] "), of("cached_bytes"), "{text}");
        assert_eq!(sum(";[GPU memory] "), of("other_bytes"), "{text}");
        assert!(scene.read("x.svg").contains("GPU memory at "), "the title");
        assert!(!scene.read("x.svg").contains("GPU copy, memset"), "the legend");
    }
    let report = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
    let text = report.out();
    assert!(text.contains("Memory of GPU 0") && text.contains("activations (hold.py:38)"), "{text}");
}

/// Check a program without PyTorch: what it holds at the peak and at the end is under the functions that allocated it.
#[test]
fn driver_allocations_have_stacks() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q --memory -o x.wscope", &program("held"))).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    assert_eq!(report["memory"].as_array().map(Vec::len), Some(1), "{report}");
    let memory = &report["memory"][0];
    let at_peak = [line("other", "buffers", 3 * MIB, 3), line("other", "weights", 5 * MIB + 100, 2)];
    assert_eq!(lines(&memory["peak"]), BTreeMap::from(at_peak));
    let at_end = [line("other", "late", 9000, 1), line("other", "weights", 5 * MIB, 1)];
    assert_eq!(lines(&memory["end"]), BTreeMap::from(at_end));
    let export = |arguments: &[&str]| {
        Ended::of(&mut scene.warpscope(&[&["export", "x.wscope", "--memory", "end"], arguments].concat()))
    };
    let run = export(&["--format", "folded", "-o", "-"]).exits(0);
    let bytes = |line: &str| line.rsplit(' ').next().and_then(|bytes| bytes.parse::<u64>().ok()).expect("a number");
    assert_eq!(run.out().lines().map(bytes).sum::<u64>(), 9000 + 5 * MIB, "{}", run.out());
    export(&["-o", "x.json"])
        .exits(1)
        .says(&["cannot write GPU memory to x.json: --memory needs an .svg or .folded file"]);
    assert_eq!(number(memory, "most_held_bytes"), 8 * MIB + 100);
}

/// Check that a recording without --memory has none, and that asking for it says what to do.
#[test]
fn memory_is_recorded_on_request_only() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q --gpu-only -o x.wscope", &program("held"))).exits(0);
    assert_eq!(scene.report("x.wscope").get("memory"), None);
    let refused = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--memory", "peak", "-o", "x.svg"])).exits(1);
    assert!(refused.err().contains("record with --memory"), "{}", refused.err());
}
