//! Programs that are compiled each in its own way, on first use. They have no debugging information: names come only from the
//! symbol tables.

use std::{collections::HashSet, fs, path::Path, process::Command, sync::Mutex};

use super::programs::{libraries, run, sources};

/// Name, compiler, source, flags. Most call the simulated GPU; those with -DWITHOUT_CUDA do not.
const RECIPES: [(&str, &str, &str, &str); 24] = [
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
    ("libfirst.so", "cc", "matrix/reloaded.c", "-O2 -shared -fPIC -DNAME=first_library -DWITHOUT_CUDA"),
    ("libsecond.so", "cc", "matrix/reloaded.c", "-O2 -shared -fPIC -DNAME=second_library -DWITHOUT_CUDA"),
    ("libplugin.so", "cc", "matrix/plugin.c", "-O2 -shared -fPIC -DWITHOUT_CUDA"),
    ("plt", "cc", "matrix/plt.c", "-O2 -fomit-frame-pointer -Wl,-z,lazy -L. -lplugin -Wl,-rpath,$ORIGIN"),
    ("plt-now", "cc", "matrix/plt.c", "-O2 -fomit-frame-pointer -Wl,-z,now -L. -lplugin -Wl,-rpath,$ORIGIN"),
    ("rust", "rustc", "matrix/rust.rs", "--edition 2024 -O"),
    ("many", "cc", "robust/many.c", "-O2 -DWITHOUT_CUDA"),
    ("maps", "cc", "robust/maps.c", "-O2 -DWITHOUT_CUDA"),
    ("tiny", "cc", "robust/tiny.c", "-O2 -DWITHOUT_CUDA -static -nostdlib"),
    ("nothing", "cc", "robust/nothing.c", "-O2 -DWITHOUT_CUDA"),
    ("waits", "cc", "robust/waits.c", "-O2 -DWITHOUT_CUDA"),
];

/// Returns the path of the compiled program or library of this name.
pub fn native(name: &str) -> String {
    static BUILT: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let simulator = libraries();
    let directory = simulator.with_file_name("native");
    // One at a time: if one fails, so do the others that need it.
    let mut built = BUILT.lock().expect("the last one was built");
    let built = built.get_or_insert_with(|| {
        fs::create_dir_all(&directory).expect("a directory of our own");
        HashSet::new()
    });
    let needs_plugin = name.starts_with("plt").then_some("libplugin.so");
    for name in needs_plugin.into_iter().chain([name]) {
        if built.insert(name.into()) {
            build(name, &directory, &simulator);
        }
    }
    directory.join(name).into_os_string().into_string().expect("the path is text")
}

fn build(name: &str, directory: &Path, simulator: &Path) {
    let recipe = RECIPES.iter().find(|recipe| recipe.0 == name);
    let (_, compiler, source, flags) = recipe.unwrap_or_else(|| panic!("there is no recipe for {name}"));
    let mut command = Command::new(compiler);
    command.current_dir(directory).args(["-o", name]).arg(sources().join("programs").join(source));
    command.args(flags.split(' ')).arg("-L").arg(simulator);
    if *compiler != "rustc" {
        command.args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-pthread"]);
        if !flags.contains("WITHOUT_CUDA") {
            command.arg("-lcuda");
        }
    }
    run(&mut command);
}
