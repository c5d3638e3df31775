//! The CPythons that this machine has.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Every CPython from 3.8 to 3.14 in `PATH` and under pyenv. Versions that are not there cannot be tested; those that are
/// get printed. Their executables, oldest version first.
pub fn installed() -> Vec<String> {
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let pyenv = env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    let versions = fs::read_dir(pyenv.join("versions")).into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    places.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut found = Vec::new();
    for minor in 8..=14 {
        let here = places.iter().filter_map(|place| place.join(format!("python3.{minor}")).canonicalize().ok());
        // pyenv has scripts of these names; they work only for versions that were chosen.
        for path in here.filter(|path| is_program(path)) {
            let path = path.into_os_string().into_string().expect("the path is text");
            if !found.contains(&path) {
                println!("testing CPython 3.{minor}: {path}");
                found.push(path);
            }
        }
    }
    found
}

fn is_program(path: &Path) -> bool {
    let runs = || Command::new(path).args(["-c", "import ctypes"]).output().is_ok_and(|output| output.status.success());
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF")) && runs()
}
