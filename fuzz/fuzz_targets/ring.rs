//! Records of the BPF programs: the target controls their texts and words.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(record) = bpf::Record::parse(bytes) {
        record.time();
    }
});
