//! Marks the shared library as never unloaded, because CUPTI, atexit and atfork keep pointers into it. Also binds the
//! library's marker to itself: the probe is on this file, even if something else in the process exports the same name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
