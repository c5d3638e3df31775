//! Where a disassembler is: named by the user, in PATH, in a CUDA toolkit, or beside the Python packages of the program.
//!
//! Triton carries one, so every program with PyTorch has it. Which packages the program uses is known from the files that
//! it has mapped, and these are untrusted. What another user could have written is not run. A disassembler is opened once:
//! what was checked is what runs, whatever its path leads to by then.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use model::profile::Profile;
use rustix::fs::{FileType, Mode, OFlags};

use crate::command::user::{User, acting_as};

/// Names the disassembler. Empty: none is used.
pub const VARIABLE: &str = "WARPSCOPE_NVDISASM";

const NAME: &str = "nvdisasm";
/// Where Python packages are, and where their disassemblers are in it.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
const IN_PACKAGES: [&str; 3] = ["triton/backends/nvidia/bin", "nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin"];
/// The most disassemblers that are tried.
const MOST: usize = 4;

/// A disassembler.
#[derive(Debug)]
pub struct Tool {
    /// Its path, for messages.
    pub path: PathBuf,
    /// The file.
    pub file: OwnedFd,
}

impl Tool {
    /// Opens a file; what it is remains to be checked.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let path = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
        Ok(Self { path: OsString::from_vec(path.into_bytes()).into(), file })
    }

    /// Opens a program that belongs to root or to this user, and that nobody else can write.
    fn usable(path: &Path, user: u32) -> Option<Self> {
        let tool = Self::open(path).ok().filter(|tool| tool.path.file_name().is_some_and(|name| name == NAME))?;
        let file = rustix::fs::fstat(&tool.file).ok()?;
        let owned = file.st_uid == 0 || file.st_uid == user;
        let regular = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
        (regular && owned && file.st_mode & 0o111 != 0 && file.st_mode & 0o022 == 0).then_some(tool)
    }
}

/// Finds disassemblers, the best first. If there are none, returns a message for the user.
pub fn find(profile: &Profile, user: Option<&User>) -> Result<Vec<Tool>, Option<String>> {
    match std::env::var_os(VARIABLE) {
        Some(path) if path.is_empty() => return Err(None),
        Some(path) => {
            let tool = acting_as(user, || Tool::open(Path::new(&path)));
            let missing = |error| {
                let path = Path::new(&path).display();
                format!(
                    "no instructions below the source lines: {VARIABLE} names {path}, which cannot be opened: {error}"
                )
            };
            return tool.map(|tool| vec![tool]).map_err(|error| Some(missing(error)));
        }
        None => {}
    }
    let mapped = profile.mappings.iter().map(|mapping| &*mapping.path);
    let directories = directories(mapped);
    let owner = User::uid_or_own(user);
    let search = || -> io::Result<Vec<Tool>> {
        let mut found: Vec<Tool> = Vec::new();
        for tool in directories.iter().filter_map(|directory| Tool::usable(&directory.join(NAME), owner)) {
            if found.iter().all(|other| other.path != tool.path) {
                found.push(tool);
            }
        }
        found.truncate(MOST);
        Ok(found)
    };
    match acting_as(user, search) {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Some(format!(
            "no instructions below the source lines: nvdisasm was not found; install the CUDA toolkit, Triton or the Python \
             package nvidia-cuda-nvdisasm, or set {VARIABLE} to its path"
        ))),
    }
}

/// Returns the directories to search, given the paths of mapped files.
fn directories<'a>(mapped: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all: Vec<PathBuf> = std::env::split_paths(&path).filter(|directory| directory.is_absolute()).collect();
    all.extend(toolkits(Path::new("/usr/local")));
    let packages: BTreeSet<&str> = mapped.filter_map(packages).collect();
    all.extend(packages.iter().flat_map(|root| IN_PACKAGES.map(|directory| Path::new(root).join(directory))));
    all
}

/// Returns the `bin` directories of CUDA toolkits: the one that is in use, then the newest.
fn toolkits(around: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(around)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let version = |name: &str| -> Vec<u32> { name.split(['-', '.']).filter_map(|part| part.parse().ok()).collect() };
    let mut all: Vec<String> = names.filter(|name| name.starts_with("cuda-")).collect();
    all.sort_by_key(|name| std::cmp::Reverse(version(name)));
    [String::from("cuda")].into_iter().chain(all).map(|name| around.join(name).join("bin")).collect()
}

/// Returns the directory of Python packages that a file is in.
fn packages(path: &str) -> Option<&str> {
    PACKAGES.iter().find_map(|part| path.find(part).map(|at| &path[..at + part.len()]))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// Check that a program is used only if nobody else can write it, and that a link to it is followed.
    #[test]
    fn programs_of_others_are_not_run() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(NAME);
        let user = User::uid_or_own(None);
        let usable = |path: &Path| Tool::usable(path, user).map(|tool| tool.path);
        assert_eq!(usable(&path), None);
        fs::write(&path, "").expect("the directory is writable");
        for (mode, works) in [(0o755, true), (0o700, true), (0o775, false), (0o757, false), (0o644, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            assert_eq!(usable(&path).is_some(), works, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let other = directory.path().join("bin");
        fs::create_dir(&other).expect("the directory is writable");
        std::os::unix::fs::symlink(&path, other.join(NAME)).expect("the directory is writable");
        assert_eq!(usable(&other.join(NAME)), fs::canonicalize(&path).ok());
        fs::remove_file(other.join(NAME)).expect("it is there");
        std::os::unix::fs::symlink("/bin/sh", other.join(NAME)).expect("the directory is writable");
        assert_eq!(usable(&other.join(NAME)), None, "another program");
    }

    /// Check the directories: the toolkit in use, then the newest; and the packages of mapped files, each once.
    #[test]
    fn directories_of_toolkits_and_packages_are_searched() {
        let around = tempfile::tempdir().expect("a directory");
        for name in ["cuda-9.2", "cuda-13.0", "cuda-12.8", "cuda", "other"] {
            fs::create_dir(around.path().join(name)).expect("the directory is writable");
        }
        let found = toolkits(around.path());
        let expected = ["cuda", "cuda-13.0", "cuda-12.8", "cuda-9.2"].map(|name| around.path().join(name).join("bin"));
        assert_eq!(found, expected);
        let mapped = [
            "/opt/v/lib/python3.12/site-packages/torch/lib/libtorch.so",
            "/opt/v/lib/python3.12/site-packages/triton/_C/libtriton.so",
            "/usr/lib/libc.so.6",
        ];
        let found = directories(mapped.into_iter());
        let packages: Vec<_> = found.iter().filter(|path| path.starts_with("/opt/v")).collect();
        assert_eq!(packages.len(), IN_PACKAGES.len());
        assert_eq!(*packages[0], Path::new("/opt/v/lib/python3.12/site-packages/triton/backends/nvidia/bin"));
    }
}
