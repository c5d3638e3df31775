//! Runs every fuzz target on its seeds, and on parts of them.
#![cfg(not(feature = "libfuzzer"))]

use std::{fs, path::Path};

#[path = "../fuzz_targets/answer.rs"]
mod answer;
#[path = "../fuzz_targets/btf.rs"]
mod btf;
#[path = "../fuzz_targets/config.rs"]
mod config;
#[path = "../fuzz_targets/cubin.rs"]
mod cubin;
#[path = "../fuzz_targets/elf.rs"]
mod elf;
#[path = "../fuzz_targets/frames.rs"]
mod frames;
#[path = "../fuzz_targets/hang.rs"]
mod hang;
#[path = "../fuzz_targets/http.rs"]
mod http;
#[path = "../fuzz_targets/mcp.rs"]
mod mcp;
#[path = "../fuzz_targets/names.rs"]
mod names;
#[path = "../fuzz_targets/openmetrics.rs"]
mod openmetrics;
#[path = "../fuzz_targets/patterns.rs"]
mod patterns;
#[path = "../fuzz_targets/perf_map.rs"]
mod perf_map;
#[path = "../fuzz_targets/python.rs"]
mod python;
#[path = "../fuzz_targets/python_file.rs"]
mod python_file;
#[path = "../fuzz_targets/recording.rs"]
mod recording;
#[path = "../fuzz_targets/ring.rs"]
mod ring;
#[path = "../fuzz_targets/wire.rs"]
mod wire;

/// A target, and the name of its folder in `corpus`.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 18] = [
    ("answer", answer::run),
    ("btf", btf::run),
    ("config", config::run),
    ("cubin", cubin::run),
    ("elf", elf::run),
    ("frames", frames::run),
    ("hang", hang::run),
    ("http", http::run),
    ("mcp", mcp::run),
    ("names", names::run),
    ("openmetrics", openmetrics::run),
    ("patterns", patterns::run),
    ("perf_map", perf_map::run),
    ("python", python::run),
    ("python_file", python_file::run),
    ("recording", recording::run),
    ("ring", ring::run),
    ("wire", wire::run),
];

/// Check that no target fails on a seed, on its first half, or on a seed with a changed byte in the middle.
#[test]
fn seeds_are_survived() {
    for (name, run) in TARGETS {
        let seeds = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)).expect(name);
        for seed in seeds {
            let path = seed.expect("an entry").path();
            eprintln!("{}", path.display());
            let mut bytes = fs::read(&path).expect("a seed");
            run(&bytes);
            let middle = bytes.len() / 2;
            run(&bytes[..middle]);
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0xff;
            }
            run(&bytes);
        }
    }
}

/// Check that every target is listed here and in `Cargo.toml`.
#[test]
fn targets_are_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    let files = fs::read_dir(folder.join("fuzz_targets")).expect("the targets");
    let mut names: Vec<String> = files
        .map(|file| file.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(TARGETS.map(|(name, _)| name).to_vec(), names);
    for name in names {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
}
