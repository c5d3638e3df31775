//! Records of the BPF programs: the target controls their texts and words.
#![cfg_attr(feature = "libfuzzer", no_main)]

warpscope_fuzz::target!(|bytes: &[u8]| {
    if let Some(record) = bpf::Record::parse(bytes) {
        record.time();
    }
});
