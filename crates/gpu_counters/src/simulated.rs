//! Libraries of the simulated GPU that warpscope loads itself.
//!
//! The files that the command loads are in a directory that may belong to the command's user, who could replace them. So
//! warpscope loads its own copy, from memory.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsRawFd, IntoRawFd},
    path::PathBuf,
    sync::Mutex,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// The libraries that have been opened.
static OPEN: Mutex<Vec<(&str, PathBuf)>> = Mutex::new(Vec::new());

/// Returns a path in this process of a library that nobody can change.
pub fn library(name: &'static str) -> io::Result<PathBuf> {
    let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((_, path)) = open.iter().find(|(known, _)| *known == name) {
        return Ok(path.clone());
    }
    let embedded = embedded::SIM_LIBRARIES.iter().find(|file| file.name == name).ok_or(io::ErrorKind::NotFound)?;
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(embedded.bytes)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // It stays open: the loader takes another file with the same path for this one.
    let _ = file.into_raw_fd();
    open.push((name, path.clone()));
    Ok(path)
}
