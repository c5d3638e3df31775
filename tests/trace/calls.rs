//! Calls one by one, against the program's own account.

use std::collections::BTreeSet;

use crate::support::{
    Ended, Scene,
    calls::{ByThread, Trace, account, end, start},
    program,
    scene::{lost, number},
};

/// Traces the program that keeps an account. The trace and the account must be the same.
#[track_caller]
fn traced(options: &str) -> (Scene, Trace) {
    let scene = Scene::new();
    let command = format!("{} account account", program("traced"));
    Ended::of(&mut scene.trace(&format!("--sim -q -o t.jsonl {options}"), &command)).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    (scene, trace)
}

/// Insists that a trace has these calls and no others.
#[track_caller]
pub fn same(trace: &ByThread, account: &ByThread) {
    assert_eq!(trace.keys().collect::<Vec<_>>(), account.keys().collect::<Vec<_>>(), "other threads");
    for (thread, expected) in account {
        for (place, (traced, made)) in trace[thread].iter().zip(expected).enumerate() {
            assert_eq!(traced, made, "call {place} of {thread:?}");
        }
        assert_eq!(trace[thread].len(), expected.len(), "calls of {thread:?}");
    }
}

/// Kernels, copies and memsets on the GPU that one account leads to.
const WORK: [usize; 3] = [41 + 20 + 1 + 5, 6 + 4 + 1, 2 + 1 + 1];

/// A trace of sums names the kernels that a full trace names, and counts them alike: those that were registered, and those
/// that were found by name.
#[test]
fn sums_name_their_kernels() {
    let launches = |options: &str| {
        let scene = Scene::new();
        Ended::of(&mut scene.trace(&format!("{options} --sim -q -o t.wscope"), &program("calls"))).exits(0);
        let report = scene.report("t.wscope");
        report["trace"]["launches"].clone()
    };
    let wanted = serde_json::json!([
        { "kernel": "calls_runtime", "count": 3 },
        { "kernel": "calls_driver", "count": 2 },
    ]);
    assert_eq!(launches(""), wanted);
    assert_eq!(launches("--summary-only"), wanted);
}

/// Four threads, both APIs: every call with its arguments and its result, in order, and nothing else; driver calls within
/// them; and the work on the GPU under the call that asked for it.
#[test]
fn every_call() {
    let (scene, trace) = traced("-o t.wscope");
    let made = account(&scene.read("account"));
    assert_eq!(made.len(), 4);
    same(&trace.outermost(), &made);
    trace.check_nesting();
    assert_eq!(trace.check_gpu(), WORK);
    assert_eq!(trace.unfinished(), Vec::<&str>::new());
    // A runtime call leads to a driver call, which has the same arguments in the driver's words.
    let launches = trace.named("cuLaunchKernel").filter(|call| call["depth"] == 1).count();
    assert_eq!(launches, 40 + 1 + 1, "one for each cudaLaunchKernel that did not fail");
    let report = scene.report("t.wscope");
    assert_eq!((lost(&report), number(&report, "unmatched_activities")), (0, 0), "{}", report["lost"]);
}

/// Check that functions that only ask are left out without --all-calls, and no others; that the trace says so; and that
/// naming one traces it.
#[test]
fn inquiries_are_left_out() {
    let scene = Scene::new();
    let program = program("traced");
    let trace = |options: &[&str]| {
        let command = ["--sim", "-q", "-o", "t.jsonl", "--", &program, "account", "account"];
        Ended::of(&mut scene.warpscope(&[&["trace"], options, &command].concat())).exits(0);
        let trace = Trace::read(&scene.read("t.jsonl"));
        for file in ["t.jsonl", "account"] {
            std::fs::rename(scene.path(file), scene.path(&format!("last.{file}"))).expect("it was written");
        }
        trace
    };
    let asks = |name: &str| {
        name != "cuModuleGetFunction" && ["Get", "Peek", "Query", "Elapsed"].iter().any(|word| name.contains(word))
    };
    let plain = trace(&[]);
    let mut made = account(&scene.read("last.account"));
    let all: usize = made.values().map(Vec::len).sum();
    made.values_mut().for_each(|calls| calls.retain(|call| !asks(&call.name)));
    assert!(made.values().map(Vec::len).sum::<usize>() < all, "the program asks for something");
    // The first thread uses the runtime only, which initialises the driver in a call that is left out.
    let mut traced = plain.outermost();
    for ((pid, tid), calls) in &mut traced {
        calls.retain(|call| pid != tid || call.name.starts_with("cuda"));
    }
    same(&traced, &made);
    assert!(plain.notes.iter().any(|note| note.contains("--all-calls")), "{:?}", plain.notes);
    let named = trace(&["--match", "cudaGetDevice"]);
    assert!(named.named("cudaGetDevice").count() > 0 && named.named("cudaMalloc").count() == 0);
    assert!(!named.notes.iter().any(|note| note.contains("--all-calls")), "{:?}", named.notes);
}

/// Without anything loaded into the program: the same calls, and no GPU work.
#[test]
fn no_gpu() {
    let (scene, trace) = traced("--no-gpu");
    same(&trace.outermost(), &account(&scene.read("account")));
    trace.check_nesting();
    assert_eq!(trace.of("gpu").count(), 0);
    assert!(trace.all.iter().all(|event| event["correlation"].is_null()));
}

/// --stacks: each call has the stack that called it, exactly; the functions that made it, innermost last. A call within another
/// has that one's stack, then the other itself, and what that called on the way.
#[test]
fn stacks() {
    let (scene, trace) = traced("--stacks");
    same(&trace.outermost(), &account(&scene.read("account")));
    let frames = |event: &serde_json::Value| -> Vec<String> {
        let stack = event["stack"].as_array().unwrap_or_else(|| panic!("no stack: {event}"));
        stack.iter().map(|frame| frame.as_str().expect("a name").to_owned()).collect()
    };
    for call in trace.of("userspace").filter(|call| call["depth"] == 0) {
        let sequences = if call["tid"] == call["pid"] {
            &["main;make_account;use_runtime"][..]
        } else {
            &["use_driver", "use_streams", "fail"]
        };
        let function = match call["name"].as_str().expect("a name") {
            "cudaMemcpy" => ";copy",
            "cudaLaunchKernel" if call["error"] != true => ";launch",
            _ => "",
        };
        let stack = frames(call).join(";");
        assert!(sequences.iter().any(|sequence| stack.ends_with(&format!(";{sequence}{function}"))), "{call}");
    }
    let mut launches = 0;
    for inner in trace.of("userspace").filter(|call| call["depth"] == 1) {
        let mut outer = trace.of("userspace").filter(|call| call["depth"] == 0 && call["tid"] == inner["tid"]);
        let outer =
            outer.find(|call| start(call) <= start(inner) && end(inner) <= end(call)).expect("the call around it");
        let expected = [frames(outer), vec![outer["name"].as_str().expect("a name").to_owned()]].concat();
        assert_eq!(frames(inner)[..expected.len()], expected, "{inner}");
        launches +=
            usize::from((&outer["name"], &inner["name"]) == (&"cudaLaunchKernel".into(), &"cuLaunchKernel".into()));
    }
    assert_eq!(launches, 40 + 1 + 1);
}

/// --match and --exclude: those calls and no others, outermost among what is watched.
#[test]
fn patterns() {
    let (scene, trace) = traced("--match cudaM*,cudaF* --match cudaLaunchKernel --exclude cudaMemset,*Host");
    let wanted = |name: &str| {
        let included = ["cudaM", "cudaF"].iter().any(|start| name.starts_with(start)) || name == "cudaLaunchKernel";
        included && name != "cudaMemset" && !name.ends_with("Host")
    };
    let mut made = account(&scene.read("account"));
    made.values_mut().for_each(|calls| calls.retain(|call| wanted(&call.name)));
    made.retain(|_, calls| !calls.is_empty());
    same(&trace.outermost(), &made);
    assert_eq!(trace.of("userspace").filter(|event| event["depth"] != 0).count(), 0);

    // Driver calls alone: those that runtime calls lead to are the outermost then.
    let (_scene, trace) = traced("--match cuLaunch*,cuMemAlloc*");
    let count = |name| trace.named(name).filter(|event| event["type"] == "userspace").count();
    let counts =
        ["cuLaunchKernel", "cuLaunchKernelEx", "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged"].map(count);
    assert_eq!(counts, [42 + 20, 1, 2 + 10 + 2 + 1, 1, 1]);
    assert_eq!(trace.of("userspace").count(), counts.iter().sum::<usize>());
    assert!(trace.of("userspace").all(|event| event["depth"] == 0));
    // Kernels have their names, though the calls that tell them are not asked for.
    let names: BTreeSet<&str> =
        trace.named("cuLaunchKernel").filter_map(|call| call["args"]["kernel"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["first(float*, int)", "second", "third()"]));
}

/// Two processes at once, each with threads of its own, are kept apart.
#[test]
fn two_processes() {
    let scene = Scene::new();
    let script = format!("{0} account account & {0} account account; wait", program("traced"));
    Ended::of(&mut scene.trace_words("--sim -q -o t.jsonl", &["sh", "-c", &script])).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let made = account(&scene.read("account"));
    assert_eq!(made.len(), 8);
    same(&trace.outermost(), &made);
    trace.check_nesting();
    assert_eq!(trace.check_gpu(), WORK.map(|count| 2 * count));
}

/// Children: one that was forked and fails, as CUDA does there, and one that executes another program.
#[test]
fn children() {
    let scene = Scene::new();
    std::fs::write(scene.path("stop"), "").expect("a file");
    let command = format!("{} family account stop", program("traced"));
    Ended::of(&mut scene.trace("--sim -q -o t.jsonl", &command)).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let made = account(&scene.read("account"));
    let mut counts: Vec<usize> = made.values().map(Vec::len).collect();
    assert_eq!((counts.remove(0), counts.remove(0), counts.len()), (1 + 50, 1, 4));
    same(&trace.outermost(), &made);
    trace.check_nesting();
}
