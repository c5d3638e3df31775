//! Deep recursion: stacks are exact up to the limit of 512 frames, and those beyond it are counted as truncated.

use std::collections::BTreeSet;

use model::event::StackEnd;

use crate::support::{
    Ended, Scene, folded, program,
    programs::sources,
    pythons::installed,
    recording::Recording,
    scene::{lost, number},
};

/// The most native frames of a stack, and the most Python frames.
const MOST: usize = 512;
/// Launches of each program.
const LAUNCHES: u64 = 20;

/// Records a program that launches at the end of a recursion. Returns the number of all native frames, that of the frames
/// whose names begin with `recurse`, and how the walk ended; all launches have the same stack.
fn recorded(scene: &Scene, command: &str) -> (usize, usize, StackEnd) {
    let run = Ended::of(&mut scene.record("--sim -q --gpu-only -o x.wscope -o x.folded", command)).exits(0);
    assert_eq!(run.out(), "done\n");
    let recording = Recording::read(scene, "x.wscope");
    let stacks: Vec<_> = recording.launches().collect();
    assert_eq!(stacks.len() as u64, LAUNCHES);
    let shapes: BTreeSet<_> = stacks
        .iter()
        .map(|stack| {
            let recursive = stack.frames.iter().filter(|frame| frame.name.starts_with("recurse")).count();
            (stack.walked, recursive, format!("{:?}", stack.end))
        })
        .collect();
    assert_eq!(shapes.len(), 1, "{shapes:?}");
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    let (walked, recursive, _) = *shapes.first().expect("one");
    let end = stacks[0].end;
    let expected = if end == StackEnd::Whole { "whole" } else { "truncated" };
    assert_eq!(report["gpu_stack_ends"], serde_json::json!({ expected: LAUNCHES }));
    assert_eq!(number(&report, "matched"), LAUNCHES);
    // Folded stacks have every level.
    let lines = folded::read(&scene.read("x.folded")).len();
    let levels = folded::read(&scene.read("x.folded"))[0].frames.iter().filter(|f| f.starts_with("recurse")).count();
    assert_eq!((lines, levels), (1, recursive));
    (walked, recursive, end)
}

/// Check that native stacks of up to 512 frames are whole, and that longer ones have their innermost 512.
#[test]
fn native_recursion_is_exact() {
    let scene = Scene::new();
    let deep = program("deep");
    let record = |depth: usize| recorded(&scene, &format!("{deep} {depth} {LAUNCHES}"));
    let (walked, recursive, end) = record(50);
    assert_eq!((recursive, end), (50, StackEnd::Whole));
    // The frames outside and inside the recursion: of the C library, of CUDA and of the probe.
    let others = walked - 50;
    for frames in [128, 300, 511, MOST] {
        assert_eq!(record(frames - others), (frames, frames - others, StackEnd::Whole), "{frames} frames");
    }
    let (_, inside, _) = record(MOST - others + 40);
    for frames in [MOST + 1, 600] {
        let (walked, recursive, end) = record(frames - others);
        assert_eq!((walked, end), (MOST, StackEnd::Truncated), "{frames} frames");
        // Once the outer frames are cut, more recursion changes nothing.
        assert!(recursive == inside || frames == MOST + 1, "{frames} frames: {recursive} are not {inside}");
    }
}

/// Check the same for Python: 512 of its frames are kept.
#[test]
fn python_recursion_is_exact() {
    let script = sources().join("programs/deep.py").canonicalize().expect("it is there");
    for python in installed() {
        let scene = Scene::new();
        let record = |depth: usize| {
            let (_, recursive, end) = recorded(&scene, &format!("{python} {} {depth} {LAUNCHES}", script.display()));
            // Before 3.11 each call of a Python function uses several native frames, and those are truncated first.
            let end = if python.minor < 11 && depth < MOST { StackEnd::Whole } else { end };
            (recursive, end)
        };
        // The outermost frame is the module.
        for depth in [300, MOST - 1] {
            assert_eq!(record(depth), (depth, StackEnd::Whole), "{python}: {depth} levels");
        }
        for depth in [MOST, 600] {
            assert_eq!(record(depth), (MOST, StackEnd::Truncated), "{python}: {depth} levels");
        }
    }
}

/// Check that a flame graph shows a recursion as one frame, unless every level is requested, and that an export does the same.
#[test]
fn flame_graphs_fold_recursion() {
    let scene = Scene::new();
    let command = format!("{} 100 {LAUNCHES}", program("deep"));
    Ended::of(&mut scene.record("--sim -q --gpu-only -o folded.svg -o x.wscope", &command)).exits(0);
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--unfold-recursion", "-o", "whole.svg"])).exits(0);
    let frames = |name: &str| scene.read(name).matches("<title>recurse").count();
    assert!(scene.read("folded.svg").contains("<title>recurse [recursion x100]"));
    assert_eq!((frames("folded.svg"), frames("whole.svg")), (1, 100));
}
