//! Results inside pid, mount and user namespaces, as in containers, are the same as outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    calls::{Trace, account},
    folded::kernels_by_path,
    jsonl::Events,
    oracle::{Kind, Walk},
    program,
    programs::{WARPSCOPE, libraries, sources},
    pythons::installed,
    scene::{lost, number},
    truth::Truth,
};

/// A command that runs in new namespaces.
fn unshare(scene: &Scene, namespaces: &[&str], command: &[&str]) -> Command {
    let mut unshare = scene.bare("unshare");
    unshare.args(namespaces).args(command);
    unshare
}

const PID_NAMESPACE: [&str; 3] = ["--pid", "--fork", "--mount-proc"];

/// Records the ground-truth program, with warpscope in the namespaces of `outside` and the program in those of `inside`. Asserts
/// that every kernel is under its path and its thread, that every count equals the GPU's, and that CPU samples exist and have names.
#[track_caller]
fn assert_exact(scene: &Scene, outside: &[&str], inside: &[&str]) -> Events {
    let walk = Walk { processes: 2, threads: 4, streams: 2, devices: 2, launches: 1_000, graphs: false };
    let arguments = walk.arguments();
    let truth = program("truth");
    let outputs = ["record", "--sim", "-q", "-F", "997", "-o", "x.wscope", "-o", "x.folded", "-o", "x.jsonl", "--"];
    let mut command = vec![WARPSCOPE];
    command.extend(outputs);
    command.extend(inside);
    command.push(&truth);
    command.extend(arguments.split(' '));
    let script = format!("devices=2,kernel_ns=3us,truth={}", scene.text("account"));
    let mut run = if outside.is_empty() { scene.bare(command.remove(0)) } else { unshare(scene, outside, &[]) };
    Ended::of(run.args(command).env("WARPSCOPE_SIM", script)).exits(0);
    let report = scene.report("x.wscope");
    Truth::of(scene, "account").agrees(&report);
    let folded = scene.read("x.folded");
    let expected = walk.counts().into_iter().filter(|((kind, ..), _)| *kind == Kind::Kernel).collect();
    assert_eq!(kernels_by_path(&folded, 3), expected);
    assert!(!folded.contains("[unknown_process]"), "{folded}");
    // The second process runs the program as /proc/self/exe.
    let ours = |line: &&str| line.starts_with("truth;") || line.starts_with("exe;");
    let sampled = folded.lines().filter(ours).filter(|line| !line.contains("[GPU")).count();
    assert!(number(&report, "cpu_samples") > 0 && sampled > 0, "{folded}");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    let events = Events::read(&scene.read("x.jsonl"));
    assert_eq!(launches_by_thread(&events), vec![walk.launches; (walk.processes * walk.threads) as usize]);
    let (_, tid) = thread(events.of("launch").next().expect("a launch"));
    let part =
        scene.warpscope(&["report", "--json", "--tid", &tid.to_string(), "x.wscope"]).output().expect("a report");
    let part: Value = serde_json::from_slice(&part.stdout).expect("a report");
    assert_eq!((number(&part, "launches"), number(&part, "matched")), (walk.launches, walk.launches));
    events
}

fn thread(event: &Value) -> (u64, u64) {
    (number(event, "pid"), number(event, "tid"))
}

/// The number of launches of each thread that launches. Each is one of the threads that were created.
#[track_caller]
fn launches_by_thread(events: &Events) -> Vec<u64> {
    let created: BTreeSet<_> = events.of("thread").map(thread).collect();
    let mut launches = BTreeMap::new();
    for launch in events.of("launch") {
        *launches.entry(thread(launch)).or_default() += 1;
    }
    assert!(launches.keys().all(|thread| created.contains(thread)), "{:?} of {created:?}", launches.keys());
    launches.into_values().collect()
}

/// Check that warpscope in a pid namespace is exact, and uses the process ids of that namespace.
#[test]
fn record_in_a_pid_namespace_is_exact() {
    let scene = Scene::new();
    let events = assert_exact(&scene, &PID_NAMESPACE, &[]);
    assert!(events.pids().iter().all(|pid| *pid < 100), "ids of the namespace: {:?}", events.pids());
}

/// Check warpscope in nested pid namespaces.
#[test]
fn record_in_nested_namespaces_is_exact() {
    let scene = Scene::new();
    let nested = [&PID_NAMESPACE[..], &["unshare"], &PID_NAMESPACE[..]].concat();
    assert_exact(&scene, &nested, &[]);
}

/// Check a program in its own pid, mount and user namespaces, with warpscope outside.
#[test]
fn record_of_a_container_is_exact() {
    let scene = Scene::new();
    assert_exact(&scene, &[], &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
}

/// Check warpscope in a pid namespace with the program in another one within.
#[test]
fn record_of_a_container_in_a_container_is_exact() {
    let scene = Scene::new();
    assert_exact(&scene, &PID_NAMESPACE, &["unshare", "--pid", "--fork", "--mount-proc"]);
}

const CONTAINER: [&str; 6] = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];

/// Records a program in a container.
fn record_contained(scene: &Scene, options: &str, command: &str) -> Events {
    let options = format!("--sim -q --gpu-only {options} -o x.wscope -o x.jsonl");
    let mut run = scene.record(&options, &format!("{} {command}", CONTAINER.join(" ")));
    Ended::of(run.env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{}", report["lost"]);
    Events::read(&scene.read("x.jsonl"))
}

/// Check that launches whose stacks are not taken have their threads.
#[test]
fn sampled_launches_of_a_container_have_their_threads() {
    let scene = Scene::new();
    let command = format!("env WARPSCOPE_SAMPLING=4,0 {} 3 2000", program("sampled"));
    let events = record_contained(&scene, "", &command);
    let sampled = events.of("launch").filter(|launch| events.stack(launch).contains(&"launch")).count();
    assert!((100..3_000).contains(&sampled), "{sampled}");
    assert_eq!(launches_by_thread(&events), [2_000; 3]);
}

/// The threads of each kernel, and those of each NVTX range, by name.
fn threads_by_name(events: &Events) -> BTreeMap<String, BTreeSet<(u64, u64)>> {
    let mut threads: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for kernel in events.of("kernel") {
        let name = kernel["name"].as_str().expect("a name").to_owned();
        threads.entry(name).or_default().insert(thread(events.launch_of(kernel)));
    }
    for range in events.of("range") {
        let name = range["path"][0].as_str().expect("a path").to_owned();
        threads.entry(name).or_default().insert(thread(range));
    }
    threads
}

#[track_caller]
fn assert_own_threads(events: &Events, count: usize) {
    let threads = threads_by_name(events);
    let distinct: BTreeSet<_> = threads.values().flatten().collect();
    assert_eq!((threads.len(), distinct.len()), (count, count), "{threads:?}");
    assert!(threads.values().all(|threads| threads.len() == 1), "{threads:?}");
    assert_eq!((events.of("launch").count(), events.of("range").count()), (count * 20, count));
    assert_eq!(launches_by_thread(events), vec![20; count]);
}

/// Check that threads that end at once have their launches and NVTX ranges.
#[test]
fn short_threads_of_a_container_have_their_launches() {
    let scene = Scene::new();
    let events = record_contained(&scene, "--nvtx", &format!("{} 300 20", program("short_threads")));
    assert_own_threads(&events, 300);
}

/// Check the same if all have the same id in their namespace.
#[test]
fn threads_with_the_same_inner_id_are_distinguished() {
    let scene = Scene::new();
    let events = record_contained(&scene, "--nvtx", &format!("{} 50 20 again", program("short_threads")));
    assert_own_threads(&events, 50);
}

/// Check that Python's threads in a container appear under the code that started them.
#[test]
fn python_threads_of_a_container_have_their_starts() {
    let python = installed().pop().expect("a Python");
    let scene = Scene::new();
    let script = sources().join("programs/threads.py").canonicalize().expect("it is there");
    let events = record_contained(&scene, "", &format!("{python} {} 200", script.display()));
    let mut launches = 0;
    for launch in events.of("launch").filter(|launch| number(launch, "pid") != number(launch, "tid")) {
        let stack = events.stack(launch);
        assert!(stack.iter().any(|frame| frame.starts_with("[started by ")), "{stack:#?}");
        launches += 1;
    }
    assert_eq!(launches, 4 * 200);
}

/// Check a mount namespace in which the program is at a path that does not exist outside.
#[test]
fn record_in_a_mount_namespace_is_exact() {
    let scene = Scene::new();
    fs::create_dir(scene.path("mounted")).expect("a directory");
    let walk = Walk { processes: 1, threads: 2, streams: 1, devices: 1, launches: 500, graphs: false };
    let script = format!(
        "mount -t tmpfs none mounted && cp {} mounted/truth && exec {WARPSCOPE} record --sim -q -o x.wscope -o x.folded -- mounted/truth {}",
        program("truth"),
        walk.arguments()
    );
    let mut command = unshare(&scene, &["--mount"], &["sh", "-c", &script]);
    Ended::of(command.env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
    let expected = walk.counts().into_iter().filter(|((kind, ..), _)| *kind == Kind::Kernel).collect();
    assert_eq!(kernels_by_path(&scene.read("x.folded"), 3), expected);
}

/// Check that, in a pid namespace without its own /proc, warpscope says what is missing and still puts every kernel under its path.
#[test]
fn a_foreign_proc_is_reported() {
    let scene = Scene::new();
    let command = format!("record --sim -q -o x.wscope -o x.folded -- {} 1 2 1 1 500", program("truth"));
    let mut run = unshare(&scene, &["--pid", "--fork"], &[WARPSCOPE]);
    Ended::of(run.args(command.split(' ')).env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "matched"), number(&report, "pending_launches")), (1_000, 0));
    assert!(report["notes"].to_string().contains("mount this namespace's /proc"), "{}", report["notes"]);
    let kernels: u64 = kernels_by_path(&scene.read("x.folded"), 3).values().sum();
    assert_eq!(kernels, number(&report, "kernels"));
}

/// Check that a trace in a pid namespace has every call of the program's own account, with the ids that the program sees.
#[test]
fn trace_in_a_pid_namespace_is_exact() {
    let scene = Scene::new();
    let command = format!("trace --all-calls --sim -q --stacks -o t.jsonl -- {} account account", program("traced"));
    let mut run = unshare(&scene, &PID_NAMESPACE, &[WARPSCOPE]);
    Ended::of(run.args(command.split(' '))).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    crate::trace::same(&trace.outermost(), &account(&scene.read("account")));
    trace.check_nesting();
}

/// Check that a running process of the namespace is found by its id there, and that the trace has a gapless part of its calls.
#[test]
fn trace_attaches_in_a_pid_namespace() {
    let scene = Scene::new();
    let script = "\"$1\" steps account stop > ready & pid=$!
        until grep -q ready ready; do sleep 0.01; done
        \"$2\" trace -p $pid -q -d 1 -o t.jsonl && touch stop && wait $pid";
    let mut run = unshare(&scene, &PID_NAMESPACE, &["sh", "-c", script, "sh", &program("traced"), WARPSCOPE]);
    Ended::of(run.env("LD_LIBRARY_PATH", libraries())).exits(0);
    let (trace, made) = (Trace::read(&scene.read("t.jsonl")).outermost(), account(&scene.read("account")));
    assert_eq!(trace.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    for (thread, calls) in &trace {
        // Of a runtime call in progress when the trace began, only the driver calls within it can be seen.
        let first = calls.iter().position(|call| call.name.starts_with("cuda")).expect("runtime calls");
        let calls = &calls[first..];
        let place = made[thread].windows(calls.len()).position(|window| window == calls);
        assert!(calls.len() >= 10 && place.is_some(), "{} calls of {thread:?}", calls.len());
    }
}

/// Check that warpscope reports that the kernel denies eBPF to the root of a user namespace.
#[test]
fn user_namespaces_are_rejected() {
    let scene = Scene::new();
    for arguments in ["record -q -- true", "trace -q -- true"] {
        let mut run = unshare(&scene, &["--user", "--map-root-user"], &[WARPSCOPE]);
        Ended::of(run.args(arguments.split(' '))).exits(1).says(&["user namespace", "outside of it"]);
        assert_eq!(scene.files(), Vec::<String>::new());
    }
}
