//! Compiles the BPF programs and writes their skeletons.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    SkeletonBuilder::new()
        .source("src/bpf/record.bpf.c")
        .clang_args([
            "-I",
            "src/bpf",
            "-I",
            "../unwind/src",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
            "-mcpu=v3",
        ])
        .build_and_generate(out.join("record.skel.rs"))
        .unwrap_or_else(|error| panic!("cannot compile src/bpf/record.bpf.c with clang: {error:#}"));
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=../unwind/src");
}
