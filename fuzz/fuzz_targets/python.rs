//! Data read from a Python process: line tables, the runtime's description of its structures, and frames to merge.
#![cfg_attr(feature = "libfuzzer", no_main)]

use symbols::python::{Kind, Native, Offsets, Python, line, merge};

warpscope_fuzz::target!(|bytes: &[u8]| {
    let Some(([version, first, at @ ..], table)) = bytes.split_first_chunk::<6>() else { return };
    let minor = 8 + version % 7;
    line(minor, table, u32::from(*first), u32::from_le_bytes(*at));
    Offsets::of_runtime(minor, table);
    let kind = |byte: &u8| match byte % 5 {
        0 => Kind::Loop,
        1 => Kind::Interpreter,
        2 => Kind::System,
        3 => Kind::Generated,
        _ => Kind::Other,
    };
    let (native, python) = table.split_at(table.len() / 2);
    let kinds: Vec<Kind> = native.iter().map(kind).collect();
    let entries: Vec<bool> = python.iter().map(|byte| byte & 1 != 0).collect();
    merge(Native { kinds: &kinds, whole: first & 1 != 0 }, Python { entries: &entries, whole: first & 2 != 0 });
});
