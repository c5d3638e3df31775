//! Libraries and functions that the user names, wherever they are and whenever they are loaded.

use std::{collections::BTreeMap, fs, process::Stdio};

use crate::support::{
    Ended, Running, Scene,
    calls::{Trace, start},
    program, programs,
    scene::number,
};

/// Builds the small library at this path.
fn build(scene: &Scene, file: &str, flags: &[&str]) {
    let source = programs::sources().join("programs/tiny.c");
    let mut compiler = scene.bare("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-DLIBRARY"]).args(flags).arg("-o").arg(scene.path(file)).arg(source);
    Ended::of(&mut compiler).exits(0);
}

/// Asserts that the calls of the small library, numbered by their results, have no gap up to the last one. Unknown arguments are
/// shown as the first six words. Returns the first number.
#[track_caller]
fn assert_no_gaps(trace: &Trace, last: u64) -> u64 {
    let mut calls: Vec<_> = trace.named("tiny_add").collect();
    calls.sort_by_key(|call| start(call));
    for call in &calls {
        assert_eq!((&call["library"], &call["depth"], &call["phase"]), (&"libtiny.so".into(), &0.into(), &"X".into()));
    }
    let numbers: Vec<u64> = calls.iter().map(|call| (number(call, "ret") - 1000) / 2).collect();
    for (call, number) in calls.iter().zip(&numbers) {
        let args = call["args"].as_object().expect("arguments");
        assert_eq!(args.keys().collect::<Vec<_>>(), ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"]);
        assert_eq!(
            (&args["arg0"], &args["arg1"]),
            (&format!("{number:#x}").into(), &format!("{:#x}", 1000 + number).into())
        );
    }
    let first = *numbers.first().expect("calls were seen");
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
    assert!(last >= first + 50);
    first
}

/// Starts a live trace, waits until it shows a call, then stops the program.
fn until_seen(scene: &Scene, options: &str, command: &str) -> (Trace, u64) {
    let mut run = Running::start(&mut scene.trace(&format!("{options} --live=tiny_add -o t.jsonl"), command));
    run.stderr_until("tiny_add(");
    fs::write(scene.path("stop"), "").expect("a file");
    let run = run.wait().exits(0);
    let last =
        run.out().lines().find_map(|line| line.strip_prefix("last ")).expect("the last").parse().expect("a number");
    (Trace::read(&scene.read("t.jsonl")), last)
}

/// Check that a library given by path is watched before the program starts, so no call is missed.
#[test]
fn libraries_by_path_miss_no_call() {
    let scene = Scene::new();
    fs::create_dir(scene.path("unusual")).expect("a directory");
    build(&scene, "unusual/libtiny.so", &[]);
    let command = format!("{} ./unusual/libtiny.so stop", program("tiny"));
    let (trace, last) = until_seen(&scene, "--lib ./unusual/libtiny.so", &command);
    assert_eq!(assert_no_gaps(&trace, last), 1);
    assert!(!trace.notes.iter().any(|note| note.contains("ms after it was loaded")), "{:?}", trace.notes);
}

/// Check that a library given by file name, loaded late from an unusual directory, is watched from then on, and that the trace
/// says so.
#[test]
fn libraries_by_name_are_watched_when_loaded() {
    let scene = Scene::new();
    fs::create_dir(scene.path("unusual")).expect("a directory");
    build(&scene, "unusual/libtiny.so", &[]);
    let command = format!("{} ./unusual/libtiny.so stop", program("tiny"));
    let (trace, last) = until_seen(&scene, "--lib libtiny.so", &command);
    assert_no_gaps(&trace, last);
    let late = "/unusual/libtiny.so was probed ";
    assert_eq!(trace.notes.iter().filter(|note| note.contains(late)).count(), 1, "{:?}", trace.notes);
}

/// Check that, if the file of a loaded library was replaced, the library in memory is watched, not the new file.
#[test]
fn replaced_libraries_are_traced_in_memory() {
    for named in ["./libtiny.so", "libtiny.so"] {
        let scene = Scene::new();
        build(&scene, "libtiny.so", &[]);
        let mut tiny = Running::start(scene.bare(program("tiny")).args(["./libtiny.so", "stop"]));
        assert_eq!(tiny.stdout_line(), "ready");
        // A different layout, so that the old offset in the new file is something else.
        build(&scene, "new.so", &["-DREPLACED", "-Wl,--section-start=.text=0x8000"]);
        fs::rename(scene.path("new.so"), scene.path("libtiny.so")).expect("the file is replaced");
        let options = format!("-p {} --lib {named} --live=tiny_add -o t.jsonl", tiny.pid());
        let mut run = Running::start(&mut scene.trace(&options, ""));
        run.stderr_until("tiny_add(");
        fs::write(scene.path("stop"), "").expect("a file");
        let tiny = tiny.wait().exits(0);
        run.wait().exits(0);
        let last = tiny.out().trim().rsplit(' ').next().expect("a number").parse().expect("a number");
        assert_no_gaps(&Trace::read(&scene.read("t.jsonl")), last);
    }
}

/// Check that one library in two processes is watched once, and that both are traced.
#[test]
fn libraries_in_two_processes_are_traced() {
    let scene = Scene::new();
    build(&scene, "libtiny.so", &[]);
    fs::write(scene.path("stop"), "").expect("a file");
    let script = format!("{0} ./libtiny.so stop & {0} ./libtiny.so stop; wait", program("tiny"));
    Ended::of(&mut scene.trace_words("-q --lib ./libtiny.so -o t.jsonl", &["sh", "-c", &script])).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let counts: Vec<usize> = trace.outermost().values().map(Vec::len).collect();
    assert_eq!(counts, [50, 50]);
}

/// Check a program with CUDA functions linked into it, and without libcuda: probes find them by their names, and others are not
/// shown; otherwise a sentence says what to do.
#[test]
fn static_cuda_functions_are_traced() {
    let scene = Scene::new();
    let ended = Ended::of(&mut scene.trace("-o none.jsonl", &program("linked"))).exits(0);
    assert!(
        ended.err().contains("no process initialised CUDA") && ended.err().contains("--calls-from probes"),
        "{}",
        ended.err()
    );
    Ended::of(&mut scene.trace("-q --calls-from probes -o t.jsonl", &program("linked"))).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let calls = trace.outermost().into_values().next().expect("calls");
    assert_eq!(calls.len(), 60);
    for (call, i) in calls.iter().zip(1_u64..) {
        match i {
            1..=30 => {
                let seen = (call.name.as_str(), &call.args["size"], &call.args["ptr"], &call.ret);
                let pointer = format!("{:#x}", 0x700_0000 + 64 * i);
                assert_eq!(seen, ("cudaMalloc", &(64 * i).into(), &pointer.into(), &"cudaSuccess".into()));
            }
            31..=50 => assert_eq!(
                (call.name.as_str(), &call.args["ptr"]),
                ("cudaFree", &format!("{:#x}", 0x700_0000 + 64 * 30).into())
            ),
            _ => assert_eq!(
                (call.name.as_str(), &call.args["grid"]),
                ("cudaLaunchKernel", &serde_json::json!([i - 50, 1, 1]))
            ),
        }
    }
    assert_eq!(trace.of("userspace").count(), 60);
}

/// Check --uprobe with a function of the program that is not exported, with its first arguments as words.
#[test]
fn unexported_functions_are_traced() {
    let scene = Scene::new();
    let linked = program("linked");
    let options = format!("-q --uprobe {linked}:not_cuda --match cudaFree -o t.jsonl");
    Ended::of(&mut scene.trace(&options, &linked)).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let calls: Vec<_> = trace.named("not_cuda").collect();
    assert_eq!(calls.len(), 7);
    for call in calls {
        let low = call["args"]["arg0"].as_str().expect("a word");
        assert!(low.ends_with("ffffffff") && call["ret"] == 0 && call["depth"] == 0, "{call}");
    }
    assert_eq!(trace.named("cudaFree").count(), 20);
    assert_eq!(trace.of("userspace").count(), 27);
}

/// Builds the C++ program in the scene.
fn build_models(scene: &Scene) {
    let source = programs::sources().join("programs/models.cpp");
    Ended::of(scene.bare("c++").args(["-O1", "-g", "-o"]).arg(scene.path("models")).arg(source)).exits(0);
}

/// Check --uprobe with patterns: methods and templates by their demangled names, with or without arguments, and by their symbols;
/// all matches, each under its own name, and nothing else.
#[test]
fn patterns_match_demangled_names() {
    let scene = Scene::new();
    build_models(&scene);
    let step = [("ns::Model::step(double)", 2), ("ns::Model::step(int)", 5)];
    for (pattern, expected) in [
        ("ns::Model::step", &step[..]),
        ("ns::Model::step(int)", &step[1..]),
        ("ns::Model::*", &[("ns::Model::size() const", 1), step[0], step[1]]),
        ("_ZN2ns4rest*", &[("ns::rest()", 1)]),
        ("_ZN2ns4restEv", &[("_ZN2ns4restEv", 1)]),
        ("ns::mix<int,?float>", &[("void ns::mix<int, float>(int, float)", 3)]),
        ("ns::[m-r]*", &[("void ns::mix<int, float>(int, float)", 3), ("ns::rest()", 1)]),
    ] {
        let uprobe = format!("./models:{pattern}");
        let words = ["trace", "-q", "--uprobe", &uprobe, "-o", "t.jsonl", "--", "./models"];
        Ended::of(&mut scene.warpscope(&words)).exits(0);
        let trace = Trace::read(&scene.read("t.jsonl"));
        let mut counts = BTreeMap::<&str, u64>::new();
        for call in trace.of("userspace") {
            *counts.entry(call["name"].as_str().expect("a name")).or_default() += 1;
        }
        // The return type of a template is part of its symbol, but not of its name.
        let plain = |name: &'static str| name.trim_start_matches("void ");
        let expected: BTreeMap<&str, u64> = expected.iter().map(|(name, count)| (plain(name), *count)).collect();
        assert_eq!(counts, expected, "{pattern}");
    }
}

/// Check that a --uprobe pattern without matches suggests similar names, and that one with too many matches is rejected.
#[test]
fn bad_function_patterns_are_rejected() {
    let scene = Scene::new();
    build_models(&scene);
    for (uprobe, words) in [
        ("./models:ns::Model::stepp", ["has no function ns::Model::stepp", "did you mean ns::Model::step"]),
        ("./models:ns::model::*", ["has no function ns::model::*", "did you mean ns::Model::"]),
        (
            "/lib/x86_64-linux-gnu/libc.so.6:*",
            ["functions matching *, more than the limit of 1000", "use a narrower pattern"],
        ),
        ("./models:ns::[", ["invalid pattern 'ns::['", "a [ has no closing ]"]),
    ] {
        let run = Ended::of(&mut scene.warpscope(&["trace", "--uprobe", uprobe, "--", "touch", "ran"])).exits(1);
        run.says(&words);
    }
    assert_eq!(scene.files(), ["models"]);
}

/// Check --list with --sim: the functions of the simulated GPU's libraries, without any in the usual locations; and what --uprobe
/// and --match would trace, in the program too.
#[test]
fn list_shows_the_simulated_libraries() {
    let scene = Scene::new();
    build_models(&scene);
    let names = |words: &[&str]| -> Vec<String> {
        let run = Ended::of(&mut scene.warpscope(&[&["trace", "--sim", "--list"], words].concat())).exits(0);
        assert!(run.out().contains("libcuda.so.1 (simulated GPU): "), "{}", run.out());
        assert!(!run.out().contains("warpscope."), "the temporary directory: {}", run.out());
        run.out().lines().filter_map(|line| Some(line.strip_prefix("  ")?.split("  ").next()?.to_owned())).collect()
    };
    let all = names(&[]);
    for name in ["cuInit", "cuLaunchKernel", "cudaMalloc", "cudaGraphLaunch"] {
        assert!(all.iter().any(|listed| listed == name), "{name} is not in the list");
    }
    let own = names(&["--uprobe", "./models:ns::Model::*", "--match", "cudaMalloc"]);
    for name in ["cudaMalloc", "ns::Model::step(int)", "ns::Model::step(double)", "ns::Model::size() const"] {
        assert!(own.iter().any(|listed| listed == name), "{name} is not in {own:?}");
    }
    assert!(!own.iter().any(|listed| listed == "cuInit" || listed == "cudaFree"), "{own:?}");
    assert_eq!(scene.files(), ["models"]);
}

/// Check --list: the functions of the libraries found, all or some, and a non-zero status if there are none.
#[test]
fn list_shows_the_libraries_found() {
    let scene = Scene::new();
    let list = |options: &str| {
        let mut command = scene.trace(options, "");
        Ended::of(command.env("LD_LIBRARY_PATH", programs::libraries()).stdin(Stdio::null()))
    };
    let all = list("--list").exits(0);
    let names: Vec<&str> = all.out().lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    for name in ["cuInit", "cuLaunchKernel", "cudaMalloc", "cudaGraphLaunch"] {
        assert!(names.contains(&name), "{name} is not in the list");
    }
    let some = list("--list cudaMallocH*").exits(0);
    let names: Vec<&str> = some.out().lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| *name == "cudaMallocHost"), "{names:?}");
    let none = list("--list noSuchFunction*").exits(1);
    assert!(none.out().contains("nothing matches noSuchFunction*"), "{}", none.out());
    list("--list [").exits(1).says(&["invalid pattern '['"]);
    build(&scene, "libtiny.so", &[]);
    let own = list("--lib ./libtiny.so --list tiny*").exits(0);
    assert!(own.out().lines().any(|line| line.starts_with("  tiny_add ")), "{}", own.out());
    assert_eq!(scene.files(), ["libtiny.so"]);
}
