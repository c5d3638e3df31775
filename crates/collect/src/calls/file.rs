//! Files of libraries: whether they are meant, and whether they are the same file.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// Libraries that are always traced, in addition to those that the user names.
const USUAL: [&str; 2] = ["libcuda", "libcudart"];

/// Identifies a file regardless of its names: device and inode.
pub type Identity = (u64, u64);

/// Changes whenever a file is written.
pub type Stamp = (u64, i64, i64);

/// Whether it is one of CUDA's libraries.
pub fn is_usual(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // Wheels may put a hash into a file's name: libcudart-9335f6a2.so.12.
    USUAL.iter().any(|l| name.strip_prefix(l).is_some_and(|r| r.starts_with(".so") || r.starts_with('-')))
}

/// Whether `path` is a library named by its path or by the beginning of its file name.
pub fn is_named(named: &Path, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match named.to_str() {
        Some(text) if !text.contains('/') => {
            name == text || name.strip_prefix(text).is_some_and(|r| r.starts_with('.'))
        }
        _ => named == Path::new(path) || fs::canonicalize(named).is_ok_and(|p| p == Path::new(path)),
    }
}

/// Returns the identity of a file and its last change.
pub fn identity(place: &Path) -> io::Result<(Identity, Stamp)> {
    fs::metadata(place).map(|info| known_by(&info))
}

/// Returns the identity of a file (device and inode) and its last change.
pub fn known_by(info: &fs::Metadata) -> (Identity, Stamp) {
    ((info.dev(), info.ino()), (info.size(), info.mtime(), info.mtime_nsec()))
}
