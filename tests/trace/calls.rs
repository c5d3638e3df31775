//! Calls one by one, compared with the program's own account.

use std::collections::BTreeSet;

use crate::support::{
    Ended, Scene,
    calls::{ByThread, Trace, account, end, start},
    program,
    scene::{lost, number},
};

/// Traces the program that writes an account of its calls.
#[track_caller]
fn traced(options: &str) -> (Scene, Trace) {
    let scene = Scene::new();
    let command = format!("{} account account", program("traced"));
    Ended::of(&mut scene.trace(&format!("--sim -q -o t.jsonl {options}"), &command)).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    (scene, trace)
}

/// Asserts that a trace has these calls and no others.
#[track_caller]
pub fn same(trace: &ByThread, account: &ByThread) {
    assert_eq!(trace.keys().collect::<Vec<_>>(), account.keys().collect::<Vec<_>>(), "threads differ");
    for (thread, expected) in account {
        for (place, (traced, made)) in trace[thread].iter().zip(expected).enumerate() {
            assert_eq!(traced, made, "call {place} of {thread:?}");
        }
        assert_eq!(trace[thread].len(), expected.len(), "calls of {thread:?}");
    }
}

/// Kernels, copies and memsets on the GPU that one account causes.
const WORK: [usize; 3] = [41 + 20 + 1 + 5, 6 + 4 + 1, 2 + 1 + 1];

/// Check that a trace of sums names and counts the same kernels as a full trace: those that were registered, and those that
/// were found by name.
#[test]
fn summary_names_the_same_kernels() {
    let launches = |options: &str| {
        let scene = Scene::new();
        Ended::of(&mut scene.trace(&format!("{options} --sim -q -o t.wscope"), &program("calls"))).exits(0);
        let report = scene.report("t.wscope");
        report["trace"]["launches"].clone()
    };
    let expected = serde_json::json!([
        { "kernel": "calls_runtime", "count": 3 },
        { "kernel": "calls_driver", "count": 2 },
    ]);
    assert_eq!(launches(""), expected);
    assert_eq!(launches("--summary-only"), expected);
}

/// Check four threads with both APIs: every call with its arguments and its result, in order, and nothing else; the driver calls
/// within them; and the GPU work under the call that launched it.
#[test]
fn every_call_is_traced() {
    let (scene, trace) = traced("-o t.wscope");
    let made = account(&scene.read("account"));
    assert_eq!(made.len(), 4);
    same(&trace.outermost(), &made);
    trace.check_nesting();
    assert_eq!(trace.check_gpu(), WORK);
    assert_eq!(trace.unfinished(), Vec::<&str>::new());
    // A runtime call makes a driver call with equivalent arguments.
    let launches = trace.named("cuLaunchKernel").filter(|call| call["depth"] == 1).count();
    assert_eq!(launches, 40 + 1 + 1, "one for each cudaLaunchKernel that did not fail");
    let report = scene.report("t.wscope");
    assert_eq!((lost(&report), number(&report, "unmatched_activities")), (0, 0), "{}", report["lost"]);
}

/// Check that query functions, and no others, are left out without --all-calls; that the trace says so; and that
/// naming one traces it.
#[test]
fn query_functions_are_left_out() {
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
    let is_query = |name: &str| {
        name != "cuModuleGetFunction" && ["Get", "Peek", "Query", "Elapsed"].iter().any(|word| name.contains(word))
    };
    let plain = trace(&[]);
    let mut made = account(&scene.read("last.account"));
    let all: usize = made.values().map(Vec::len).sum();
    made.values_mut().for_each(|calls| calls.retain(|call| !is_query(&call.name)));
    assert!(made.values().map(Vec::len).sum::<usize>() < all, "the program makes queries");
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

/// Check that, with nothing loaded into the program, the calls are the same and there is no GPU work.
#[test]
fn no_gpu_traces_the_same_calls() {
    let (scene, trace) = traced("--no-gpu");
    same(&trace.outermost(), &account(&scene.read("account")));
    trace.check_nesting();
    assert_eq!(trace.of("gpu").count(), 0);
    assert!(trace.all.iter().all(|event| event["correlation"].is_null()));
}

/// Check that --stacks gives each call the exact stack that made it, innermost last. A nested call has the stack of the outer
/// call, then the outer call itself, then the functions in between.
#[test]
fn stacks_are_exact() {
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

/// Check that --match and --exclude select calls, and that the outermost selected call has depth 0.
#[test]
fn patterns_select_calls() {
    let (scene, trace) = traced("--match cudaM*,cudaF* --match cudaLaunchKernel --exclude cudaMemset,*Host");
    let is_selected = |name: &str| {
        let included = ["cudaM", "cudaF"].iter().any(|start| name.starts_with(start)) || name == "cudaLaunchKernel";
        included && name != "cudaMemset" && !name.ends_with("Host")
    };
    let mut made = account(&scene.read("account"));
    made.values_mut().for_each(|calls| calls.retain(|call| is_selected(&call.name)));
    made.retain(|_, calls| !calls.is_empty());
    same(&trace.outermost(), &made);
    assert_eq!(trace.of("userspace").filter(|event| event["depth"] != 0).count(), 0);

    // With driver calls alone, those within runtime calls are the outermost ones.
    let (_scene, trace) = traced("--match cuLaunch*,cuMemAlloc*");
    let count = |name| trace.named(name).filter(|event| event["type"] == "userspace").count();
    let counts =
        ["cuLaunchKernel", "cuLaunchKernelEx", "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged"].map(count);
    assert_eq!(counts, [42 + 20, 1, 2 + 10 + 2 + 1, 1, 1]);
    assert_eq!(trace.of("userspace").count(), counts.iter().sum::<usize>());
    assert!(trace.of("userspace").all(|event| event["depth"] == 0));
    // Kernels have names although the calls that register them are not selected.
    let names: BTreeSet<&str> =
        trace.named("cuLaunchKernel").filter_map(|call| call["args"]["kernel"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["first(float*, int)", "second", "third()"]));
}

/// Check that two processes at once, each with several threads, are not mixed up.
#[test]
fn two_processes_are_kept_apart() {
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

/// Check children: a forked one, in which CUDA fails, and one that executes another program. CUPTI does not report calls that
/// fail in a forked child, so this needs probes.
#[test]
fn children_are_traced() {
    let scene = Scene::new();
    std::fs::write(scene.path("stop"), "").expect("a file");
    let command = format!("{} family account stop", program("traced"));
    Ended::of(&mut scene.trace("--sim -q --calls-from probes -o t.jsonl", &command)).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let made = account(&scene.read("account"));
    let mut counts: Vec<usize> = made.values().map(Vec::len).collect();
    assert_eq!((counts.remove(0), counts.remove(0), counts.len()), (1 + 50, 1, 4));
    same(&trace.outermost(), &made);
    trace.check_nesting();
}
