//! The kernel's types.
#![cfg_attr(feature = "libfuzzer", no_main)]

warpscope_fuzz::target!(|bytes: &[u8]| {
    bpf::functions_of(bytes, "vmlinux", |_| true);
});
