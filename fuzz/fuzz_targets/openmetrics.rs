//! Names of processes, kernels and source lines in the exposition: whatever they contain, the text has one sample per line, with
//! closed labels followed by a number.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::time::Duration;

use monitor::{
    openmetrics::{Exposition, Format, Limits},
    snapshot::{Kernel, Process, Snapshot, Suspect},
};

/// Checks one line: `name{label="value",...} number`, with every quote and backslash in a value escaped.
fn check(line: &str) {
    let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a name ends"));
    assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
    let mut rest = rest;
    if let Some(labels) = rest.strip_prefix('{') {
        let (mut quoted, mut escaped, mut end) = (false, false, None);
        for (at, byte) in labels.bytes().enumerate() {
            match byte {
                _ if escaped => {
                    assert!(matches!(byte, b'\\' | b'"' | b'n'), "{line}");
                    escaped = false;
                }
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b'}' if !quoted => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        rest = &labels[end.expect("labels end") + 1..];
    }
    let number = rest.strip_prefix(' ').expect("a number").split(' ').next().expect("a number");
    assert!(number.parse::<f64>().is_ok(), "{line}");
}

warpscope_fuzz::target!(|text: &str| {
    let mut parts = text.split('\0');
    let mut next = || parts.next().unwrap_or_default();
    let kernel = Kernel { name: next().into(), launches: 3, ..Kernel::default() };
    let suspect = Suspect { stack: [next().into()].into(), function: next().into(), bytes: 7, ..Suspect::default() };
    let process = Process {
        id: 1,
        pid: 2,
        comm: next().into(),
        user: next().into(),
        kernels: vec![kernel],
        suspects: vec![suspect],
        ..Process::default()
    };
    let snapshot = Snapshot { processes: vec![process], ..Snapshot::default() };
    for format in [Format::OpenMetrics, Format::Prometheus] {
        let text = Exposition::new(Limits::default()).render(&snapshot, format, Duration::ZERO);
        text.lines().filter(|line| !line.starts_with('#')).for_each(check);
    }
});
