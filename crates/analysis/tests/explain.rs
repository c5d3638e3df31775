//! Whatever the code can show has an explanation.

use std::{
    fs,
    path::{Path, PathBuf},
};

use analysis::explain::{Entry, Kind, all, find};

/// The crates whose frames reach outputs.
const CRATES: [&str; 8] = ["analysis", "bpf", "collect", "cuda", "export", "model", "monitor", "symbols"];

/// Literals that begin like frames and are none: beginnings that are tested, templates of other frames, and a label of `top`.
const OTHERS: [&str; 7] = [
    "[{}]",
    "[{}] {command}",
    "[{mark}] {:<15}{}{room}",
    "[{what} {otherwise}]",
    "[{what} {called} ({line})]",
    "[{what} {function} ({line})]",
    "[rank {rank}]",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") => found.push(path),
            false => {}
        }
    }
}

/// Returns the string literals of code that begin with a bracket and a letter or placeholder.
fn frames(code: &str) -> Vec<&str> {
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let literals = lines.flat_map(|line| line.match_indices("\"[").map(|(at, _)| &line[at + 1..]));
    let ends = literals.filter_map(|rest| Some(&rest[..rest.find('"')?]));
    ends.filter(|text| text[1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '{')).collect()
}

/// Check that every frame in brackets that the code can produce is explained.
#[test]
fn frames_are_explained() {
    let entries: Vec<Entry> = all().filter(|entry| entry.kind == Kind::Frame).collect();
    let (mut files, mut seen) = (Vec::new(), 0);
    for name in CRATES {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), &mut files);
    }
    for file in files.iter().filter(|file| !file.components().any(|part| part.as_os_str() == "explain")) {
        let code = fs::read_to_string(file).expect("a source file");
        for literal in frames(&code).into_iter().filter(|literal| !OTHERS.contains(literal)) {
            let shown =
                literal.replace("{gpu}", "GPU").replace("{what}", "handed over by").replace("[{} other", "[... other");
            assert!(!find(&entries, &shown).is_empty(), "{}: {literal} has no explanation", file.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} frames were found in the code");
}
