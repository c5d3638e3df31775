//! What is said about programs whose bottleneck is known, and what must not be said.
//!
//! Each scenario is one program: the scripts of its threads, the simulated GPU, and all findings that it must give. Shares must
//! be within 3 points of what the program itself measures. Every program is also reported in parts, where nothing may be
//! concluded from what is left out, and in time ranges. docs/findings.md lists the rules and the scores.

/// Defines scenarios: a test for each, which may check more of what was recorded, and the list of all.
macro_rules! scenarios {
    ($($(#[$about:meta])* $name:ident => $scenario:expr $(, $then:expr)?;)*) => {
        /// All scenarios of this file, by name.
        pub fn all() -> Vec<(&'static str, Scenario)> {
            vec![$((stringify!($name), $scenario)),*]
        }
        $(
            $(#[$about])*
            #[test]
            #[ignore = "compares times, which other tests change: ./test runs it after the others"]
            fn $name() {
                if let Some(_recorded) = $scenario.judge() {
                    $($then(_recorded);)?
                }
            }
        )*
    };
}

mod copies;
mod devices;
mod gains;
mod healthy;
mod host;
mod kernels;
mod launches;
mod parts;
mod python;
mod report;
mod says;
mod scenario;
mod score;
mod threads;

use std::process::Command;

use report::{findings, json};
use says::idle;
use scenario::{Recorded, Scenario};

use crate::support::{
    Ended, Scene,
    programs::{run, sources},
    pythons::installed,
};

/// Words that make sense in a Python program with PyTorch only.
const TORCH: [&str; 6] = ["torch", "DataLoader", "loss.item", "non_blocking", "pin_memory=", "autocast"];

/// Advice names PyTorch's functions in a Python program that has loaded it, and in no other.
#[test]
fn advice_fits_the_program() {
    let scene = Scene::new();
    let python = installed().pop().expect("at least one");
    let script = sources().join("programs/idle.py").canonicalize().expect("it is there");
    let library = scene.text("libtorch_python.so");
    run(Command::new("cc").args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&library));
    for loaded in [false, true] {
        let command = format!("{python} {} 120", script.display());
        let mut record = scene.record("--sim -q --off-cpu -o x.wscope", &command);
        if loaded {
            record.env("LD_PRELOAD", &library);
        }
        Ended::of(record.env("WARPSCOPE_SIM", "kernel_ns=1ms")).exits(0);
        let report = scene.report("x.wscope");
        let advice: Vec<&str> = findings(&report).filter_map(|finding| finding["advice"].as_str()).collect();
        let names_torch = advice.iter().any(|advice| TORCH.iter().any(|word| advice.contains(word)));
        assert_eq!(names_torch, loaded, "{advice:?}");
        assert!(findings(&report).any(|finding| finding["kind"] == "synchronization"), "{advice:?}");
        std::fs::remove_file(scene.path("x.wscope")).expect("it is there");
    }
}

/// Every output of a part says which part it is, and a part of a trace concludes nothing from calls that are not in it.
#[test]
fn every_output_names_its_filters() {
    let Recorded { scene, .. } = Scenario::of(["kernel:work sync 20( compute:3000 kernel:work kernel:other sync )"])
        .sim("kernel_ns=3ms")
        .options("--off-cpu")
        .says(idle("compute"))
        .check();
    let texts = ["x.svg", "x.json", "x.jsonl", "x.speedscope.json", "x.profile.json", "x.pftrace"];
    let mut export = scene.warpscope(&["export", "x.wscope", "--kernel", "work", "-o", "x.html"]);
    let run = Ended::of(export.args(texts.iter().flat_map(|file| ["-o", file]))).exits(0);
    assert!(run.err().contains("only a part is shown: --kernel work"), "{}", run.err());
    for file in texts {
        let bytes = std::fs::read(scene.path(file)).expect("it is there");
        assert!(String::from_utf8_lossy(&bytes).contains("--kernel work"), "{file}");
    }
    assert!(scene.read("x.html").contains("<title>[--kernel work] "));
    let diff = json(&scene, &["diff", "--json", "--kernel", "work", "x.wscope", "x.wscope"]);
    assert_eq!(diff["filters"], serde_json::json!(["--kernel work"]));

    let findings = crate::support::program("findings");
    let threads = [findings.as_str(), "kernel:work sync 5( nap:5000 kernel:other sync )"];
    Ended::of(&mut scene.trace_words("--sim -q -o t.wscope", &threads)).exits(0);
    let report = |options: &[&str]| {
        Ended::of(&mut scene.warpscope(&[&["report", "t.wscope"], options].concat())).exits(0).out().to_owned()
    };
    assert!(report(&[]).contains("outside CUDA"), "{}", report(&[]));
    let part = report(&["--kernel", "work"]);
    assert!(!part.contains("outside CUDA") && part.contains("--kernel work"), "{part}");
}
