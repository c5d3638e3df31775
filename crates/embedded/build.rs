//! Builds the injected library and the simulated GPU with a nested cargo, links the latter's shared libraries, and
//! compiles the bundled workload.

use std::path::{Path, PathBuf};
use std::process::exit;

mod link {
    include!("../sim/link.rs");

    /// Creates every file that `lib.rs` includes.
    pub fn build(cargo: &str, workspace: &Path, target: &Path, files: &Path) -> Result<(), String> {
        build_packages(cargo, workspace, target, &["inject", "sim"])?;
        let built = target.join("embedded");
        std::fs::create_dir_all(files).map_err(|e| format!("cannot create {}: {e}", files.display()))?;
        let (from, to) = (built.join("libinject.so"), files.join("libinject.so"));
        std::fs::copy(&from, &to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
        let sim = workspace.join("crates/sim");
        link_libraries(&sim, &built.join("libsim.a"), files)?;
        compile_workload(&sim, files)
    }
}

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).map_or_else(|| panic!("cargo sets {name}"), PathBuf::from)
}

/// The nested cargo's directory: beside `build` in the directory of the profile, not in `OUT_DIR`, which is another one for clippy
/// than for a build. So the second of them finds everything built.
fn nested_target(out: &Path) -> PathBuf {
    let mut directories = out.ancestors().skip_while(|directory| !directory.ends_with("build"));
    directories.nth(1).map_or_else(|| out.join("target"), |profile| profile.join("nested"))
}

fn main() {
    let out = variable("OUT_DIR");
    let workspace = variable("CARGO_MANIFEST_DIR").join("../..");
    let watched = [
        "Cargo.toml",
        "Cargo.lock",
        "crates/cupti/src",
        "crates/cupti/Cargo.toml",
        "crates/wire/src",
        "crates/wire/Cargo.toml",
        "crates/inject/src",
        "crates/inject/Cargo.toml",
        "crates/sim/src",
        "crates/sim/Cargo.toml",
        "crates/sim/link.rs",
        "crates/sim/exports",
        "crates/sim/workload",
        "crates/embedded/build.rs",
    ];
    for path in watched {
        println!("cargo:rerun-if-changed={}", workspace.join(path).display());
    }
    if workspace.join("crates/inject/build.rs").exists() {
        println!("cargo:rerun-if-changed={}", workspace.join("crates/inject/build.rs").display());
    }
    let cargo = variable("CARGO").display().to_string();
    if let Err(error) = link::build(&cargo, &workspace, &nested_target(&out), &out.join("files")) {
        eprintln!("cannot build the injected library and the simulated GPU (gcc and g++ are needed): {error}");
        exit(1);
    }
}
