//! Opens files by names that others control.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

/// Opens a file for reading, if it is a regular file.
///
/// Anything may be at a path that another user controls, by a link or in a mount namespace. Opening a device can have
/// effects (a watchdog starts, a tape rewinds), and opening a pipe or a file with a lease can block. So the file is found
/// and inspected first, without opening it.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&path)?;
    match open_found(&found) {
        // /proc is that of another pid namespace. The file may have been replaced since it was inspected.
        Err(error) if error.kind() == io::ErrorKind::NotFound => open_same(path.as_ref(), &found),
        result => result,
    }
}

/// Opens a file that was found with `O_PATH`, in the same way.
pub fn open_found(found: &File) -> io::Result<File> {
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    open_now(format!("/proc/self/fd/{}", found.as_raw_fd()).as_ref())
}

/// Opens the file at a path, if it is the one that was found there.
fn open_same(path: &Path, found: &File) -> io::Result<File> {
    let (found, file) = (found.metadata()?, open_now(path)?);
    let info = file.metadata()?;
    if (info.dev(), info.ino()) != (found.dev(), found.ino()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it was replaced"));
    }
    Ok(file)
}

fn open_now(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Check that regular files are opened, also through links, and that nothing else is.
    #[test]
    fn only_regular_files_are_opened() {
        let own = open("/proc/self/exe").expect("this program");
        assert_eq!(own.metadata().expect("a file").len(), fs::metadata("/proc/self/exe").expect("a file").len());
        for other in ["/dev/null", "/dev", "/proc/self/fd/none"] {
            assert!(open(other).is_err(), "{other}");
        }
    }
}
