//! Maps of JIT compilers: the first word is the address to look up.
#![cfg_attr(feature = "libfuzzer", no_main)]

warpscope_fuzz::target!(|bytes: &[u8]| {
    let Some((address, text)) = bytes.split_first_chunk() else { return };
    let address = u64::from_le_bytes(*address);
    let wanted = [0, 0x1000, 0x1008, address, u64::MAX].into();
    for name in symbols::perf_map::names(text, wanted).values() {
        assert!(!name.is_empty() && name.len() <= 4096);
    }
});
