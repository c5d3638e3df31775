//! The C programs in `programs/`, compiled once per run against the simulated GPU's libraries.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The binary under test.
pub const WARPSCOPE: &str = env!("CARGO_BIN_EXE_warpscope");

/// The directory with the tests and their programs.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

/// The directory with the simulated GPU's libraries, as written by `warpscope sim --libs`.
pub fn libraries() -> PathBuf {
    built().join("sim")
}

/// Copies a program. Another process does it: if this one wrote the copy, a thread that forks meanwhile would keep it open for
/// writing for a moment, and it could not be run.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    run(Command::new("cp").arg("--preserve=mode").arg(from.as_ref()).arg(to.as_ref()));
}

/// Returns the path of the compiled program of this name.
pub fn program(name: &str) -> String {
    let path = built().join(name);
    assert!(path.is_file(), "there is no programs/{name}.c");
    path.into_os_string().into_string().expect("the path is text")
}

fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        super::defaults::apply_to_this_process();
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e");
        let _ = fs::remove_dir_all(&directory);
        let libraries = directory.join("sim");
        run(Command::new(WARPSCOPE).args(["sim", "--libs"]).arg(&libraries));
        for entry in fs::read_dir(sources().join("programs")).expect("the programs are there") {
            let source = entry.expect("the directory can be read").path();
            if source.extension().is_some_and(|ending| ending == "c") {
                let program = directory.join(source.file_stem().expect("it has a name"));
                run(Command::new("cc")
                    .args(["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall", "-o"])
                    .args([&program, &source])
                    .arg(format!("-L{}", libraries.display()))
                    .args(["-lcudart", "-lcuda", "-Wl,--as-needed", "-lcupti", "-lnccl", "-pthread"]));
            }
        }
        directory
    })
}

/// Runs a tool that must succeed.
#[track_caller]
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
