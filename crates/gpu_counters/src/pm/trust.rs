//! Which files only root can change: a process with root's rights may load no others.
//!
//! Owner and mode say so only on a file system that the machine trusts. A FUSE file system of a user, or a disk that a user
//! brings, claims any owner. Such mounts are `nosuid` (fusermount, udisks and `user` in fstab ensure it), which means just
//! this: owners of files there have no say.

use std::{
    ffi::{CStr, CString},
    fs,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use super::search::host;

/// Returns the file of a libcupti that only root can change, as well as the library that it loads.
pub fn trusted(library: &Path) -> Option<PathBuf> {
    let file = owned_by_root(library)?;
    match host(&file) {
        Some(host) => owned_by_root(&host).map(|_| file),
        None => Some(file),
    }
}

/// Returns the file that a path leads to if only root can change it, and every directory on the way to it.
fn owned_by_root(path: &Path) -> Option<PathBuf> {
    let file = fs::canonicalize(path).ok()?;
    // Each part is opened in the one before, which only root can change: so the path stays what was checked.
    let mut at = open(libc::AT_FDCWD, c"/").filter(only_root_changes)?;
    for part in file.components() {
        if let Component::Normal(name) = part {
            at = open(at.as_raw_fd(), &CString::new(name.as_bytes()).ok()?).filter(only_root_changes)?;
        }
    }
    Some(file)
}

/// Opens a file or a directory, but no link.
fn open(directory: libc::c_int, name: &CStr) -> Option<OwnedFd> {
    // SAFETY: the name ends in 0, and the new descriptor is owned by nothing else.
    unsafe {
        let file = libc::openat(directory, name.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC);
        (file >= 0).then(|| OwnedFd::from_raw_fd(file))
    }
}

fn only_root_changes(file: &OwnedFd) -> bool {
    let (mut info, mut mount) = (MaybeUninit::<libc::stat>::zeroed(), MaybeUninit::<libc::statvfs>::zeroed());
    // SAFETY: buffers for the results, of which all zeroes is a valid value.
    let (info, mount) = unsafe {
        let done = libc::fstat(file.as_raw_fd(), info.as_mut_ptr()) == 0
            && libc::fstatvfs(file.as_raw_fd(), mount.as_mut_ptr()) == 0;
        if !done {
            return false;
        }
        (info.assume_init(), mount.assume_init())
    };
    let (link, others) = (info.st_mode & libc::S_IFMT == libc::S_IFLNK, info.st_mode & 0o022 != 0);
    info.st_uid == 0 && !link && !others && mount.f_flag & libc::ST_NOSUID == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Check that a system library is trusted, also through a link, and that nothing in a directory that others can write
    /// to is.
    #[test]
    fn only_roots_files_are_trusted() {
        let shell = fs::canonicalize("/bin/sh").expect("a shell");
        assert_eq!(owned_by_root(Path::new("/bin/sh")), Some(shell.clone()));
        assert_eq!(owned_by_root(Path::new("/no/such/file")), None);
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "").expect("ours");
        assert_eq!(owned_by_root(&file), None);
        // The link can be changed, but what it leads to now cannot: that file is loaded, not the link.
        symlink("/bin/sh", &link).expect("ours");
        assert_eq!(owned_by_root(&link), Some(shell));
    }
}
