//! Mangled names, as in symbol tables and from CUPTI.
#![cfg_attr(feature = "libfuzzer", no_main)]

warpscope_fuzz::target!(|text: &str| {
    // Only names that look mangled are demangled.
    for name in [text.to_owned(), format!("_Z{text}"), format!("_R{text}")] {
        assert!(symbols::demangle(&name).len() <= name.len().max(64 << 10));
    }
});
