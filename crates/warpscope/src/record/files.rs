//! Files that other processes have mapped, opened with care.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
};

/// Opens a regular file for reading. What lies at a path now may not be what was mapped: a FIFO would keep us waiting for a
/// writer, and opening a device may do anything.
pub fn open_regular(path: &str) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A FIFO, a directory and a device are refused at once.
    #[test]
    fn only_regular_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo").into_os_string().into_string().expect("text");
        let name = std::ffi::CString::new(fifo.as_str()).expect("no zeroes");
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [fifo.as_str(), "/", "/dev/zero"] {
            assert_eq!(open_regular(path).expect_err(path).kind(), io::ErrorKind::InvalidInput);
        }
        assert!(open_regular("/proc/self/exe").is_ok());
    }
}
