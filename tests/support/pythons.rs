//! The CPythons on this machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::coverage::not_covered;

/// Minor versions of CPython 3 that warpscope supports.
pub const SUPPORTED: std::ops::RangeInclusive<u8> = 8..=14;

/// An interpreter.
#[derive(Clone, Debug)]
pub struct Python {
    /// The 12 of 3.12.
    pub minor: u8,
    pub path: PathBuf,
}

impl std::fmt::Display for Python {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Every supported CPython in `PATH`, in /usr/bin and under pyenv, oldest version first. Versions that are not installed are
/// reported as not covered. Panics if there is none.
pub fn installed() -> Vec<Python> {
    let mut places = pyenv();
    places.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    places.push("/usr/bin".into());
    let mut found: Vec<Python> = Vec::new();
    for minor in SUPPORTED {
        for place in &places {
            // pyenv's shims have these names too, but are scripts that work only for the selected versions.
            let Ok(path) = place.join(format!("python3.{minor}")).canonicalize() else { continue };
            if is_elf(&path) && !found.iter().any(|python| python.path == path) {
                if imports_ctypes(&path) {
                    found.push(Python { minor, path });
                } else {
                    not_covered(&format!("{}: it cannot import ctypes", path.display()));
                }
            }
        }
        if !found.iter().any(|python| python.minor == minor) {
            not_covered(&format!("CPython 3.{minor}: not installed"));
        }
    }
    let (first, last) = (SUPPORTED.start(), SUPPORTED.end());
    assert!(
        !found.is_empty(),
        "no CPython 3.{first} to 3.{last} is installed: install Debian's python3-dev, or another CPython"
    );
    found
}

/// The installed CPythons of some versions. Reports `what` as not covered if there are none.
pub fn installed_of(versions: std::ops::RangeInclusive<u8>, what: &str) -> Vec<Python> {
    let found: Vec<Python> = installed().into_iter().filter(|python| versions.contains(&python.minor)).collect();
    if found.is_empty() {
        not_covered(&format!("{what}: no CPython 3.{} to 3.{} is installed", versions.start(), versions.end()));
    }
    found
}

fn pyenv() -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let pyenv = env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    let versions = fs::read_dir(pyenv.join("versions")).into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin")).collect()
}

fn is_elf(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

fn imports_ctypes(path: &Path) -> bool {
    Command::new(path).args(["-c", "import ctypes"]).output().is_ok_and(|output| output.status.success())
}
