//! Names that try to control a terminal, or to look like lines of a log.

use std::{fs, process::Command};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    monitor::{Monitor, Watched, get},
    program, programs,
    scene::{lost, number},
    wait_until,
};

/// Clears the screen, and then imitates a message of warpscope.
const NAME: &str = "a\u{1b}[2J\u{202e}\nwarpscope: forged";

/// Asserts that a text has no control characters except line feeds, nothing that changes its direction, and no line that a
/// name forged.
#[track_caller]
fn is_harmless(what: &str, text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!text.is_empty(), "{what} is empty");
    let hostile = |c: char| (c.is_control() && c != '\n') || ['\u{200f}', '\u{202e}'].contains(&c);
    assert!(!text.contains(hostile), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("warpscope: forged")), "{what}: {text}");
}

/// Check that the output of `record`, `report`, `diff`, `trace` and `export`, their errors, and folded stacks are harmless if an
/// attacker chose the names of the program, its process and its directory.
#[test]
fn hostile_names_are_escaped() {
    let scene = Scene::new();
    let directory = scene.path(NAME);
    fs::create_dir(&directory).expect("a directory");
    let truth = directory.join("b\u{1b}c\nforged");
    programs::copy(program("truth"), &truth);
    let truth = truth.to_str().expect("it is text");
    let words = [truth, "1", "2", "1", "1", "300"];
    let sim = |command: &mut Command| Ended::of(command.env("WARPSCOPE_SIM", "kernel_ns=3us"));
    let run = sim(&mut scene.record_words("--sim -F 997 -o x.wscope -o x.folded", &words)).exits(0);
    is_harmless("record", &run.stderr);
    is_harmless("folded stacks", scene.read("x.folded").as_bytes());
    is_harmless("report", &Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0).stdout);
    fs::copy(scene.path("x.wscope"), scene.path("y.wscope")).expect("a copy");
    is_harmless("diff", &Ended::of(&mut scene.warpscope(&["diff", "x.wscope", "y.wscope"])).exits(0).stdout);
    let run = sim(&mut scene.trace_words("--sim --live --stacks -o t.wscope", &words)).exits(0);
    is_harmless("trace", &run.stderr);
    is_harmless("report of a trace", &Ended::of(&mut scene.warpscope(&["report", "t.wscope"])).exits(0).stdout);
    let listed =
        Ended::of(scene.warpscope(&["trace", "--list", "--lib", truth]).env("LD_LIBRARY_PATH", programs::libraries()));
    is_harmless("the list", &listed.stdout);

    // Errors contain file names.
    let nowhere = format!("{NAME}/x");
    is_harmless("no recording", &Ended::of(&mut scene.warpscope(&["report", &nowhere])).exits(1).stderr);
    let mut bytes = fs::read(scene.path("x.wscope")).expect("the recording");
    bytes.truncate(bytes.len() - 1);
    fs::write(directory.join("cut.wscope"), bytes).expect("a file");
    let cut = format!("{NAME}/cut.wscope");
    is_harmless("a note", &Ended::of(&mut scene.warpscope(&["export", &cut, "-o", "cut.folded"])).stderr);
    let run = Ended::of(&mut scene.record_words("-q -o z.wscope", &[&nowhere])).exits(127);
    is_harmless("no such command", &run.stderr);
}

/// Check that NVTX ranges with hostile names are harmless in every output, that their work is counted, and that a huge name is
/// cut off.
#[test]
fn hostile_ranges_are_escaped() {
    let scene = Scene::new();
    let outputs = "-o x.wscope -o x.folded -o x.html -o x.json -o x.jsonl -o x.pftrace -o x.svg";
    let mut record = scene.record(&format!("--sim --nvtx {outputs}"), &format!("{} 1 hostile", program("nvtx")));
    let run = Ended::of(&mut record).exits(0);
    is_harmless("record", &run.stderr);
    is_harmless("folded stacks", scene.read("x.folded").as_bytes());
    is_harmless("report", &Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0).stdout);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "kernels"), number(&report, "matched"), lost(&report)), (9, 9, 0));
    let table = |name: &str| {
        Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--table", name, "-o", "x.csv"])).exits(0);
        scene.read("x.csv")
    };
    for name in ["kernels", "paths", "lines"] {
        let table = table(name);
        is_harmless(name, table.as_bytes());
        assert!(!table.lines().any(|line| line.starts_with(['=', '+', '-', '@'])), "{table}");
    }
    let _: Value = serde_json::from_str(&scene.read("x.json")).expect("JSON");
    for line in scene.read("x.jsonl").lines() {
        let _: Value = serde_json::from_str(line).expect("JSON");
    }
    let page = scene.read("x.html");
    assert_eq!(page.matches("</script>").count(), 2, "the data and the script");
    for file in ["x.wscope", "x.html", "x.json", "x.jsonl", "x.pftrace", "x.svg"] {
        let size = fs::metadata(scene.path(file)).expect("an output").len();
        assert!(size < 512 << 10, "{file} has {size} bytes: the name of 1 MiB is in it");
    }
}

/// Check that the monitor's log and its answer to health checks are harmless if an attacker chose the directory of a library.
#[test]
fn hostile_libraries_forge_no_log_line() {
    let scene = Scene::new();
    fs::create_dir(scene.path(NAME)).expect("a directory");
    let broken = Watched::with_invalid_library(&scene, &scene.path(NAME).join("libcuda.so.1"));
    let monitor = Monitor::of_machine(&scene, &format!("-p {}", broken.pid()));
    let mut answer = (String::new(), String::new());
    wait_until("the library is rejected", || {
        answer = get(&monitor.address, "/healthz", "");
        answer.0.starts_with("HTTP/1.1 503")
    });
    is_harmless("the answer", answer.1.as_bytes());
    let log = monitor.stop();
    assert!(log.err().contains("forged/libcuda.so.1 is not probed: it is not an ELF file\n"), "{}", log.err());
    is_harmless("the log", &log.stderr);
    broken.end();
}
