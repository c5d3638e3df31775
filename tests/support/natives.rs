//! Programs that are compiled each in its own way. No debugging information: names come from the symbol tables alone.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use super::programs::{libraries, run, sources};

/// Name, compiler, source, flags.
const RECIPES: [(&str, &str, &str, &str); 20] = [
    ("shapes", "cc", "matrix/shapes.c", "-O2 -fomit-frame-pointer"),
    ("shapes-framed", "cc", "matrix/shapes.c", "-O2 -fno-omit-frame-pointer"),
    ("shapes-cet", "cc", "matrix/shapes.c", "-O3 -fcf-protection=full -Wl,-z,now"),
    ("shapes-clang", "clang", "matrix/shapes.c", "-O2 -fomit-frame-pointer"),
    ("shapes-stripped", "cc", "matrix/shapes.c", "-O2 -fomit-frame-pointer -s"),
    ("shapes-static", "cc", "matrix/shapes.c", "-O2 -fomit-frame-pointer -static-pie -DWITHOUT_CUDA"),
    ("cpp", "c++", "matrix/cpp.cpp", "-O2 -fomit-frame-pointer"),
    ("cpp-clang", "clang++", "matrix/cpp.cpp", "-O2 -fomit-frame-pointer"),
    ("cpp-static-libstdc++", "c++", "matrix/cpp.cpp", "-O2 -static-libstdc++ -static-libgcc"),
    ("signals", "cc", "matrix/signals.c", "-O2 -fomit-frame-pointer"),
    ("contexts", "cc", "matrix/contexts.c", "-O2 -fomit-frame-pointer"),
    ("chain", "cc", "matrix/chain.c", "-O2 -fomit-frame-pointer"),
    ("reload", "cc", "matrix/reload.c", "-O2 -fomit-frame-pointer"),
    ("plt", "cc", "matrix/plt.c", "-O2 -fomit-frame-pointer -Wl,-z,lazy -L. -lplugin -Wl,-rpath,$ORIGIN"),
    ("plt-now", "cc", "matrix/plt.c", "-O2 -fomit-frame-pointer -Wl,-z,now -L. -lplugin -Wl,-rpath,$ORIGIN"),
    ("many", "cc", "robust/many.c", "-O2 -DWITHOUT_CUDA"),
    ("maps", "cc", "robust/maps.c", "-O2 -DWITHOUT_CUDA"),
    ("tiny", "cc", "robust/tiny.c", "-O2 -DWITHOUT_CUDA -static -nostdlib"),
    ("nothing", "cc", "robust/nothing.c", "-O2 -DWITHOUT_CUDA"),
    ("rust", "rustc", "matrix/rust.rs", "--edition 2024 -O"),
];

/// The compiled program of this name, or a library.
pub fn native(name: &str) -> String {
    let path = built().join(name);
    assert!(path.is_file(), "there is no recipe for {name}");
    path.into_os_string().into_string().expect("the path is text")
}

fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let simulator = libraries();
        let directory = simulator.with_file_name("native");
        std::fs::create_dir_all(&directory).expect("a directory of our own");
        let source = |name: &str| sources().join("programs").join(name);
        let library = |name: &str, file: &str, flag: &str| {
            let flags = ["-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", flag, "-o"];
            run(Command::new("cc").args(flags).args([directory.join(name), source(file)]));
        };
        library("libplugin.so", "matrix/plugin.c", "-g0");
        library("libfirst.so", "matrix/reloaded.c", "-DNAME=first_library");
        library("libsecond.so", "matrix/reloaded.c", "-DNAME=second_library");
        for (name, compiler, file, flags) in RECIPES {
            let mut command = Command::new(compiler);
            command.current_dir(&directory).args(["-o", name]).arg(source(file)).arg("-L").arg(&simulator);
            if compiler != "rustc" {
                command.args(["-D_GNU_SOURCE", "-Wall", "-Wextra"]);
            }
            command.args(flags.split(' '));
            if compiler != "rustc" {
                command.arg("-pthread");
                if !flags.contains("WITHOUT_CUDA") {
                    command.arg("-lcuda");
                }
            }
            run(&mut command);
        }
        directory
    })
}
