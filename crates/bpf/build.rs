//! Compiles the BPF programs and writes their skeletons, and the types that both sides share.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    for name in ["record", "threads", "contract"] {
        compile(name);
    }
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=../unwind/src");
}

fn compile(name: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let source = format!("src/bpf/{name}.bpf.c");
    SkeletonBuilder::new()
        .source(&source)
        // Otherwise the skeleton contains the object as a list of a million numbers, which takes rustfmt and rustc long.
        .reference_obj(true)
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
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .unwrap_or_else(|error| panic!("cannot compile {source} with clang: {error:#}"));
}
