//! Records of the BPF programs: their texts and words are the target's.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(record) = bpf::Record::parse(bytes) {
        record.time();
    }
});
