//! The other commands: `doctor`, `sim`, help, completions, the manual page.

use std::os::unix::process::CommandExt;

use crate::support::{Ended, Scene, programs};

/// Check that `doctor` reports no failure here, and names every topic it checked.
#[test]
fn doctor_reports_every_topic() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.warpscope(&["doctor"])).exits(0);
    for topic in ["kernel", "privilege", "BTF", "probes", "parsers", "driver", "CUPTI"] {
        assert!(run.out().contains(topic), "`{topic}` is not in:\n{}", run.out());
    }
    assert!(!run.out().contains("FAIL"), "{}", run.out());
}

/// Check that, without privileges, `doctor` fails and gives the remedy.
#[test]
fn doctor_fails_without_privileges() {
    let scene = Scene::new();
    programs::copy(programs::WARPSCOPE, scene.path("warpscope"));
    let run = Ended::of(scene.bare(scene.path("warpscope")).arg("doctor").uid(65534).gid(65534)).exits(1);
    assert!(run.out().contains("FAIL  privilege"), "{}", run.out());
    assert!(run.out().contains("run as root (sudo)"), "{}", run.out());
}

/// Check that `sim --libs` writes libraries that a program can link to and run with, without warpscope.
#[test]
fn simulated_libraries_run_programs() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.bare_cuda("calls")).exits(0);
    assert_eq!(run.out(), "ok\n");
    // Writing to the same directory again is no error.
    for _ in 0..2 {
        Ended::of(&mut scene.warpscope(&["sim", "--libs", "new/directory"])).exits(0);
    }
    for name in
        ["libcuda.so.1", "libcudart.so", "libcudart.so.12", "libcudart.so.13", "libcupti.so.12", "libcupti.so.13"]
    {
        assert!(scene.path("new/directory").join(name).is_file(), "{name}");
    }
    std::fs::write(scene.path("file"), "").expect("a file");
    Ended::of(&mut scene.warpscope(&["sim", "--libs", "file/in"]))
        .exits(1)
        .says(&["cannot write the simulated GPU to file/in"]);
}

/// Check that `explain` knows findings, frames as they are shown, metrics and words, and suggests names for what it does not know.
#[test]
fn terms_are_explained() {
    let scene = Scene::new();
    let explain = |words: &[&str]| Ended::of(&mut scene.warpscope(&[&["explain"], words].concat()));
    for (term, name) in [
        ("gpu-idle", "gpu-idle (finding)"),
        ("[waiting for the GPU]", "[waiting for the GPU] (frame)"),
        ("warpscope_memory_live_bytes", "warpscope_memory_live_bytes (metric)"),
        ("matched", "matched (term)"),
    ] {
        let run = explain(&[term]).exits(0);
        assert!(run.out().starts_with(name), "{}", run.out());
        for part in ["measured: ", "exactness: ", "what to do: "] {
            assert!(run.out().contains(part), "{term}: {}", run.out());
        }
    }
    assert!(explain(&[]).exits(0).out().lines().count() > 150);
    explain(&["lanch-bound"]).exits(1).says(&["there is no explanation of `lanch-bound`; did you mean launch-bound"]);
}

/// Check that every command has help with its usage.
#[test]
fn every_command_has_help() {
    let scene = Scene::new();
    for command in ["record", "report", "export", "explain", "mcp", "demo", "sim", "completions", "man"] {
        let run = Ended::of(&mut scene.warpscope(&[command, "--help"])).exits(0);
        assert!(run.out().contains("Usage: warpscope "), "{command}");
    }
    let run = Ended::of(&mut scene.warpscope(&["record", "--help"])).exits(0);
    assert!(run.out().contains("sudo warpscope record -- python3 train.py"));
    let run = Ended::of(&mut scene.warpscope(&["--version"])).exits(0);
    assert_eq!(run.out(), concat!("warpscope ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// Check that bash can parse the completions, that every command has a manual page, and that the pages have its options.
#[test]
fn completions_and_manual_are_valid() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.warpscope(&["completions", "bash"])).exits(0);
    std::fs::write(scene.path("completions"), &run.stdout).expect("a file");
    Ended::of(scene.bare("bash").args(["-n", "completions"])).exits(0);
    let run = Ended::of(&mut scene.warpscope(&["man"])).exits(0);
    assert!(run.out().contains(".TH warpscope 1"), "{}", &run.out()[..80]);
    Ended::of(&mut scene.warpscope(&["man", "--dir", "pages"])).exits(0);
    let commands = run.out().lines().filter_map(|line| line.strip_prefix("warpscope\\-")?.strip_suffix("(1)"));
    let commands: Vec<&str> = commands.collect();
    assert!(commands.contains(&"record") && commands.len() > 10, "{commands:?}");
    for command in commands {
        let page = Ended::of(&mut scene.warpscope(&["man", command])).exits(0);
        assert_eq!(scene.read(&format!("pages/warpscope-{command}.1")), page.out());
    }
    let record = scene.read("pages/warpscope-record.1");
    assert!(record.contains("\\-\\-gpu\\-only") && record.contains(".SH EXAMPLES"), "{record}");
    Ended::of(&mut scene.warpscope(&["man", "recrod"])).exits(1).says(&["no command recrod", "record"]);
}

/// Check that `--` is optional, that options after the command belong to it, and that a mistyped option is not taken as a command.
#[test]
fn the_command_needs_no_dashes() {
    let scene = Scene::new();
    for command in ["record", "trace"] {
        let arguments = [command, "--sim", "-q", "-o", "x.wscope", "echo", "-q", "--sim", "-o", "--"];
        let run = Ended::of(&mut scene.warpscope(&arguments)).exits(0);
        assert_eq!(run.out(), "-q --sim -o --\n", "{command}");
        let run = Ended::of(&mut scene.warpscope(&[command, "--simm", "echo"])).exits(2);
        assert!(run.err().contains("unexpected argument '--simm'"), "{}", run.err());
        let run = Ended::of(&mut scene.warpscope(&[command])).exits(1);
        assert!(run.err().contains("-- COMMAND"), "{}", run.err());
    }
}

/// Check that times have units, and that bad values are explained.
#[test]
fn values_are_explained() {
    let scene = Scene::new();
    Ended::of(
        &mut scene.warpscope(&["record", "--sim", "-q", "-d", "50ms", "--kill", "-o", "x.wscope", "sleep", "60"]),
    )
    .exits(0);
    for (option, value, reason) in
        [("-d", "10x", "expected a time such as 10"), ("-F", "abc", "expected a whole number")]
    {
        let run = Ended::of(&mut scene.warpscope(&["record", option, value, "true"])).exits(2);
        assert!(run.err().contains(reason), "{}", run.err());
    }
}
