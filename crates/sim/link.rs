// Builds the simulated GPU's files from its static library. Included by the build script of `embedded`.

use std::path::Path;
use std::process::Command;

/// Each shared library and its export list in `exports/`.
const LIBRARIES: [(&str, &str); 7] = [
    ("libcuda.so.1", "libcuda.map"),
    ("libcudart.so.12", "libcudart.so.12.map"),
    ("libcudart.so.13", "libcudart.so.13.map"),
    ("libcupti.so.12", "libcupti.so.12.map"),
    ("libcupti.so.13", "libcupti.so.13.map"),
    ("libnvidia-ml.so.1", "libnvidia-ml.map"),
    ("libnccl.so.2", "libnccl.map"),
];

/// Runs a command; an error contains the command line and its output.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{command:?} failed: {}\n{stdout}{stderr}", output.status))
}

/// Builds packages of the workspace that run inside other programs; the files are in `target`/embedded.
///
/// With frame pointers: code inside other programs must not truncate their stacks. The outer build's flags and wrappers
/// (coverage, clippy, a sanitizer) do not apply to these files.
fn build_packages(cargo: &str, workspace: &Path, target: &Path, packages: &[&str]) -> Result<(), String> {
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", "embedded", "--lib"]);
    for package in packages {
        command.args(["-p", package]);
    }
    command
        .arg("--target-dir")
        .arg(target)
        .current_dir(workspace)
        .env("RUSTFLAGS", "-Cforce-frame-pointers=yes")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    run(&mut command)
}

/// Links the shared libraries from the static one into `out`. `sim` is the crate's directory.
fn link_libraries(sim: &Path, archive: &Path, out: &Path) -> Result<(), String> {
    for (name, map) in LIBRARIES {
        let map = sim.join("exports").join(map);
        run(Command::new("cc")
            .args(["-shared", "-o"])
            .arg(out.join(name))
            .arg("-Wl,--whole-archive")
            .arg(archive)
            .arg("-Wl,--no-whole-archive")
            .arg(format!("-Wl,--version-script={}", map.display()))
            .arg(format!("-Wl,-soname,{name}"))
            // Stripped, like the real ones. -z now: no lazy binding in the launch path.
            .args(["-Wl,--gc-sections", "-Wl,--strip-all", "-Wl,-z,now", "-Wl,--build-id", "-Wl,--eh-frame-hdr"])
            .args(["-lgcc_s", "-lc", "-lm", "-lpthread", "-ldl"]))?;
    }
    Ok(())
}

/// Compiles the bundled workload into `out`, which must already contain the libraries.
fn compile_workload(sim: &Path, out: &Path) -> Result<(), String> {
    run(Command::new("c++")
        .args(["-std=c++17", "-O2", "-g1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"])
        .args(["-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(out.join("workload"))
        .arg(sim.join("workload/llm.cpp"))
        .arg(out.join("libcudart.so.13"))
        .args(["-static-libgcc", "-static-libstdc++", "-Wl,--as-needed", "-Wl,--allow-shlib-undefined", "-lm"]))
}
