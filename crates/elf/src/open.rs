//! Opens files by names that others control.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
};

/// Opens a file for reading, if it is a regular file.
///
/// Anything may be at a path that another user controls, by a link or in a mount namespace. Opening a device can have
/// effects (a watchdog starts, a tape rewinds), and opening a pipe or a file with a lease can block. So the file is found
/// and inspected first, without opening it.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    open_found(&OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?)
}

/// Opens a file that was found with `O_PATH`, in the same way.
pub fn open_found(found: &File) -> io::Result<File> {
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(format!("/proc/self/fd/{}", found.as_raw_fd()))
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
