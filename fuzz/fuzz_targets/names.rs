//! Mangled names, as symbol tables and CUPTI have them.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    // Only what looks like a mangled name is taken apart.
    for name in [text.to_owned(), format!("_Z{text}"), format!("_R{text}")] {
        assert!(symbols::demangle(&name).len() <= name.len().max(64 << 10));
    }
});
