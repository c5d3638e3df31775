//! What a machine cannot test is listed in the output, never skipped silently.

use std::{collections::HashSet, fs::OpenOptions, io::Write, sync::Mutex};

/// Reports something that this machine lacks, to the file that `./test` prints at its end or to stderr, once per process.
pub fn not_covered(what: &str) {
    static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut seen = SEEN.lock().expect("nobody panics with the lock");
    if !seen.get_or_insert_default().insert(what.to_owned()) {
        return;
    }
    let line = format!("{what}\n");
    match std::env::var_os("WARPSCOPE_NOT_COVERED") {
        Some(file) => {
            let file = OpenOptions::new().append(true).create(true).open(file);
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list can be written");
        }
        // Not a print macro: those are hidden while a test passes.
        None => drop(std::io::stderr().write_all(format!("not covered: {line}").as_bytes())),
    }
}
