//! The kernel's types.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bpf::functions_of(bytes, "vmlinux", |_| true);
});
