//! Function names from every source: debug files, files that are deleted or replaced by the end, maps written by JIT compilers;
//! and line numbers.

use std::{collections::HashMap, fs, process::Command};

use crate::support::{
    Ended, Scene, folded,
    jsonl::Events,
    oracle::Walk,
    program,
    programs::{run, sources},
    pythons::installed_of,
    scene::number,
};

/// The functions of a mode of `named.c`, from `main` on.
fn path(mode: &str) -> Vec<String> {
    ["main", mode, "path", "inner"].map(str::to_owned).to_vec()
}

/// Copies `named` to the scene and runs tools on it; each is a command with its words separated by blanks.
fn named(scene: &Scene, tools: &[&str]) -> String {
    crate::support::programs::copy(program("named"), scene.path("named"));
    for tool in tools {
        let mut words = tool.split_whitespace();
        run(Command::new(words.next().expect("a tool")).args(words).current_dir(scene.path("")));
    }
    scene.text("named")
}

/// Records a command that launches one kernel, and returns the program's own frames.
#[track_caller]
fn stack(scene: &Scene, options: &str, command: &str) -> Vec<String> {
    let options = format!("--sim -q --gpu-only -o x.folded {options}");
    Ended::of(&mut scene.record(&options, command)).exits(0);
    own_frames(&scene.read("x.folded"))
}

/// The frames from the C library's start of the program to the launch, in the only stack.
#[track_caller]
fn own_frames(folded: &str) -> Vec<String> {
    let lines = folded::read(folded);
    let [line] = lines.as_slice() else { panic!("not one stack: {folded}") };
    let begin = line.frames.iter().rposition(|frame| frame.contains("libc") && !frame.contains("libcu"));
    let end = line.frames.iter().position(|frame| *frame == "cudaLaunchKernel").expect("a launch");
    line.frames[begin.expect("a start") + 1..end].iter().map(|frame| (*frame).to_owned()).collect()
}

const KEEP: &str = "objcopy --only-keep-debug named named.debug";
const STRIP: &str = "objcopy --strip-all --add-gnu-debuglink=named.debug named";

/// Check that a stripped program gets its names from its debug file: by link next to it, and by build id in a directory of
/// `--debug-dir`. Without a debug file it has none.
#[test]
fn debug_files_name_stripped_programs() {
    let scene = Scene::new();
    let command = format!("{} plain", named(&scene, &[KEEP, STRIP]));
    assert_eq!(stack(&scene, "", &command), path("plain"));

    let notes = Command::new("readelf").arg("-n").arg(scene.path("named")).output().expect("readelf runs");
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("a build id");
    let directory = scene.path("debug/.build-id").join(&id[..2]);
    fs::create_dir_all(&directory).expect("directories");
    fs::rename(scene.path("named.debug"), directory.join(format!("{}.debug", &id[2..]))).expect("it is moved");
    assert_eq!(stack(&scene, "--debug-dir nowhere --debug-dir debug", &command), path("plain"));
    assert_eq!(stack(&scene, "", &command), ["[named]"]);
}

/// Check that, if the program deletes or replaces its own file and has exited when names are resolved, the names are those of the
/// file that ran.
#[test]
fn deleted_and_replaced_files_are_named() {
    let scene = Scene::new();
    let command = named(&scene, &[]);
    assert_eq!(stack(&scene, "", &format!("{command} delete {command}")), path("delete"));
    assert!(!scene.path("named").exists());

    let command = named(&scene, &[]);
    let other = scene.text("other");
    crate::support::programs::copy(program("truth"), &other);
    assert_eq!(stack(&scene, "", &format!("{command} replace {command} {other}")), path("replace"));
    assert_eq!(fs::read(&command).expect("it is there"), fs::read(program("truth")).expect("it is there"));
}

/// Check the same without a build id to distinguish files, and with a debug file next to the deleted file.
#[test]
fn deleted_files_without_build_id_or_with_debug_file_are_named() {
    let scene = Scene::new();
    let command = named(&scene, &["objcopy --remove-section .note.gnu.build-id named"]);
    let other = scene.text("other");
    crate::support::programs::copy(program("truth"), &other);
    assert_eq!(stack(&scene, "", &format!("{command} replace {command} {other}")), path("replace"));

    let command = named(&scene, &[KEEP, STRIP]);
    assert_eq!(stack(&scene, "", &format!("{command} delete {command}")), path("delete"));
}

/// Check a file that only the program could see, in a mount namespace that is gone when the program exits.
#[test]
fn files_in_a_lost_mount_namespace_are_named() {
    let scene = Scene::new();
    fs::create_dir(scene.path("mounted")).expect("a directory");
    let command = format!("{} hide {}", program("named"), scene.text("mounted"));
    assert_eq!(stack(&scene, "--lines", &command), lines_of_plain());
    assert!(!scene.path("mounted/hidden").exists());
}

/// Check a static program in a chroot, deleted after it has ended, with its debug file in the chroot too.
#[test]
fn programs_in_a_chroot_are_named() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("root/usr/lib/debug/bin")).expect("directories");
    fs::create_dir(scene.path("root/bin")).expect("a directory");
    let source = sources().join("programs/named.c");
    run(Command::new("cc").args(["-O1", "-g", "-static", "-DWITHOUT_CUDA", "-o"]).arg(scene.path("spin")).arg(source));
    let tools = [
        "objcopy --only-keep-debug spin spin.debug",
        "objcopy --strip-all --add-gnu-debuglink=spin.debug spin root/bin/spin",
        "mv spin.debug root/usr/lib/debug/bin/spin.debug",
    ];
    for tool in tools {
        let words: Vec<&str> = tool.split_whitespace().collect();
        run(Command::new(words[0]).args(&words[1..]).current_dir(scene.path("")));
    }
    let command = format!("{} chroot {} /bin/spin spin 0.3", scene.text("spin"), scene.text("root"));
    Ended::of(&mut scene.record("--cpu-only -q -F 997 -o x.folded", &command)).exits(0);
    let text = scene.read("x.folded");
    assert!(!scene.path("root/bin/spin").exists());
    let lines = folded::read(&text);
    let (mut spinning, mut all) = (0, 0);
    for line in lines.iter().filter(|line| line.frames.contains(&"main") && line.frames.contains(&"spin")) {
        all += line.weight;
        let at = line.frames.iter().position(|frame| *frame == "main").expect("filtered");
        if line.frames[at..].starts_with(&["main", "spin", "spin_for"]) {
            spinning += line.weight;
        }
    }
    assert!(all >= 200_000 && spinning * 100 >= all * 99, "{spinning} of {all} µs: {text}");
    assert!(!text.contains("[spin]"), "a frame without a name: {text}");
}

/// The stack of `named plain` with lines, as the comments in the source mark them.
fn lines_of_plain() -> Vec<String> {
    let source = fs::read_to_string(sources().join("programs/named.c")).expect("it is there");
    let line = |function: &str| {
        let comment = format!("/* line of {function} */");
        let line = source.lines().position(|line| line.contains(&comment)).expect("the comment is there") + 1;
        format!("{function} (named.c:{line})")
    };
    ["main", "plain", "path", "inner", "inlined_outer", "inlined_inner"].map(line).to_vec()
}

/// Check that `--lines` shows the line of each call, and inlined functions as frames of their own, from the DWARF of the program
/// or of its debug file.
#[test]
fn lines_and_inlined_functions_are_shown() {
    let scene = Scene::new();
    let command = format!("{} plain", named(&scene, &[]));
    assert_eq!(stack(&scene, "--lines", &command), lines_of_plain());
    assert_eq!(stack(&scene, "", &command), path("plain"));
    named(&scene, &[KEEP, STRIP]);
    assert_eq!(stack(&scene, "--lines", &command), lines_of_plain());
    named(&scene, &["objcopy --compress-debug-sections=zlib named"]);
    assert_eq!(stack(&scene, "--lines", &command), lines_of_plain());
    named(&scene, &["strip --strip-debug named"]);
    assert_eq!(stack(&scene, "--lines", &command), path("plain"));
}

/// A perf map that is removed at the end, whatever it is.
struct Map(String);

impl Drop for Map {
    fn drop(&mut self) {
        for path in [self.0.clone(), format!("{}.honest", self.0)] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Check that the perf map of code made at run time is used if the program itself wrote it, and not otherwise.
#[test]
fn only_own_perf_maps_are_used() {
    let name = |way: &str| {
        let scene = Scene::new();
        let command = format!("{} jit {way}", program("named"));
        let run = Ended::of(&mut scene.record("--sim -q --gpu-only -o x.folded -o x.wscope", &command)).exits(0);
        let _map = Map(run.out().trim().to_owned());
        let frames = own_frames(&scene.read("x.folded"));
        let [main, jit, made, path, inner] = frames.as_slice() else { panic!("{frames:?}") };
        assert_eq!([main, jit, path, inner], ["main", "jit", "path", "inner"]);
        (made.clone(), scene.report("x.wscope")["notes"].clone())
    };
    let nothing = serde_json::json!([]);
    for way in ["honest", "twice"] {
        assert_eq!(name(way), ("made_at_run_time".to_owned(), nothing.clone()), "{way}");
    }
    for way in ["none", "link", "foreign"] {
        assert_eq!(name(way), ("[anon]".to_owned(), nothing.clone()), "{way}");
    }
    assert_eq!(name("garbage"), ("[31m".to_owned(), nothing));
    let (name, notes) = name("huge");
    assert_eq!(name, "[anon]");
    assert!(
        notes[0].as_str().is_some_and(|note| note.ends_with("is larger than 64 MiB: names in it were not read")),
        "{notes}"
    );
}

/// The maps that a recording's processes have written to /tmp.
fn maps(events: &str) -> Vec<Map> {
    let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON"));
    let processes = events.filter(|event| event["type"] == "process");
    processes.map(|process| Map(format!("/tmp/perf-{}.map", number(&process, "pid")))).collect()
}

/// Check that the functions of Python's own perf support (`-X perf`, from 3.12 on) are shown with `--no-python`, and not in
/// addition to the Python functions. They stand for Python functions only in samples of the time before the process's interpreter
/// was found, which have no Python frames.
#[test]
fn perf_support_of_python_is_not_shown_twice() {
    let script = sources().join("programs/busy.py").canonicalize().expect("it is there");
    for python in installed_of(12..=14, "CPython's perf support") {
        let recorded = |options: &str| {
            let scene = Scene::new();
            let command = format!("{python} -X perf {} 0.3", script.display());
            let options = format!("--cpu-only -q -F 499 -o x.folded -o x.jsonl {options}");
            Ended::of(&mut scene.record(&options, &command)).exits(0);
            let _maps = maps(&scene.read("x.jsonl"));
            (scene.read("x.folded"), Events::read(&scene.read("x.jsonl")))
        };
        let stand_in = format!("py::spin:{}", script.display());
        let (native, _) = recorded("--no-python");
        assert!(native.contains(&stand_in) && !native.contains("spin (busy.py:"), "{python}: {native}");
        let (merged, events) = recorded("");
        assert!(merged.contains("spin (busy.py:"), "{python}: {merged}");
        let has_python = |frames: &[&str]| frames.iter().any(|frame| frame.contains(" (busy.py:"));
        let mut found: HashMap<u64, u64> = HashMap::new();
        for sample in events.of("sample").filter(|sample| has_python(&events.frames(number(sample, "stack")))) {
            let (pid, time) = (number(sample, "pid"), number(sample, "ts_ns"));
            found.entry(pid).and_modify(|first| *first = time.min(*first)).or_insert(time);
        }
        for sample in events.of("sample") {
            let frames = events.frames(number(sample, "stack"));
            let Some(place) = frames.iter().position(|frame| *frame == stand_in) else { continue };
            if has_python(&frames) {
                // It may be the innermost frame: the function is being called, and has no Python frame yet.
                let caller_is_it = place > 0 && frames[place - 1].starts_with("spin (busy.py:");
                assert!(place + 1 == frames.len() && !caller_is_it, "{python}: {frames:?}");
            } else {
                let found = found.get(&number(sample, "pid"));
                assert!(found.is_none_or(|found| number(sample, "ts_ns") < *found), "{python}: {sample} {frames:?}");
            }
        }
    }
}

/// Check that functions compiled by V8 are named from node's own map.
#[test]
fn node_functions_are_named() {
    let node = Command::new("node").arg("--version").output();
    assert!(node.is_ok_and(|output| output.status.success()), "node is missing: install Debian's nodejs");
    let scene = Scene::new();
    let script = "function busySpin(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) % 1000003; return s; }
        function outerLoop() { let t = 0; for (let i = 0; i < 3000; i++) t += busySpin(50000); return t; }
        console.log(outerLoop());";
    fs::write(scene.path("busy.js"), script).expect("a file");
    let options = "--cpu-only -q -F 499 -o x.folded -o x.jsonl";
    Ended::of(&mut scene.record(options, "node --perf-basic-prof busy.js")).exits(0);
    let _maps = maps(&scene.read("x.jsonl"));
    let text = scene.read("x.folded");
    let lines = folded::read(&text);
    let all: u64 = lines.iter().map(|line| line.weight).sum();
    let busy = |frame: &str| frame.contains("busySpin") && frame.contains("busy.js:1");
    let named: u64 = lines.iter().filter(|l| l.frames.last().is_some_and(|f| busy(f))).map(|line| line.weight).sum();
    assert!(named * 2 > all, "{named} of {all} µs: {text}");
}

/// Check that the cost of recording is not in the graph: neither the injected library and its thread, nor CUPTI, nor the probes,
/// nor our BPF programs, whose names come from elsewhere. The ledger says how much it was.
#[test]
fn own_costs_are_not_in_the_graph() {
    let scene = Scene::new();
    let command = format!("{} {}", program("truth"), Walk::of(5_000).arguments());
    let run =
        Ended::of(scene.record("--sim -F 4999 -o x.wscope -o x.folded", &command).env("WARPSCOPE_SIM", "devices=2"));
    let run = run.exits(0);
    let folded = scene.read("x.folded");
    for own in ["inject::", "warpscope", "uprobes", "libcupti", "__start_bss_decrypted"] {
        let line = folded.lines().find(|line| line.contains(own));
        assert_eq!(line, None, "{own}");
    }
    let report = scene.report("x.wscope");
    let (own, program) = (number(&report, "own_samples"), number(&report, "cpu_samples"));
    assert!(own > 0 && program > 0, "{own} and {program}");
    assert!(number(&report, "own_time_ns") > 0);
    assert!(run.err().contains("in warpscope's own code, CUPTI or probes"), "{}", run.err());
    // Hidden samples are counted, not lost.
    let period = 1_000_000 / 4999;
    let shown: u64 =
        folded.lines().filter(|l| !l.contains("[GPU")).filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert!((shown / period).abs_diff(program) <= program / 50 + 2, "{shown} us are not {program} samples");
}
