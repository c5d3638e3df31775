//! A private directory for one recording: the injected library, the socket it reports to, the simulated GPU.
//!
//! The directory is ours and has an unpredictable name; the command's user can traverse it but not list or change it.
//! It is created only where nobody except root, or we, can rename or replace it, so its path is as safe as a handle. It
//! is removed when the recording ends. A lock marks it as in use; a directory left by a killed run has no lock, and the
//! next run removes it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Stat, StatVfsMountFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
    process::geteuid,
};

use crate::injector::INJECTOR;

/// The prefix of these directory names; 16 hexadecimal digits follow.
const PREFIX: &str = "warpscope.";
const DIGITS: usize = 16;
/// How often to retry if another run mistakes the new directory for a leftover and removes it.
const MOST_TRIES: usize = 16;

/// How many connections may wait to be accepted: what the kernel allows by default.
const BACKLOG: i32 = 4096;
/// The most leftovers that one run removes, and the time limit of the search. Anybody can fill /tmp, and the start must
/// not be delayed.
const MOST_REMOVED: usize = 64;
const MOST_TIME: Duration = Duration::from_secs(1);

/// The directory; removed with its contents on drop.
#[derive(Debug)]
pub struct Workspace {
    path: PathBuf,
    /// Holds the lock while the directory is in use.
    directory: OwnedFd,
    /// Closed before the directory is removed, which needs two descriptors: there may be no others left.
    spare: Vec<OwnedFd>,
}

impl Workspace {
    /// Creates a directory that programs may be loaded from, and removes those that killed runs left there.
    pub fn create() -> anyhow::Result<Self> {
        let mut refused = Vec::new();
        for parent in [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/run".into()] {
            if refused.iter().any(|(tried, _)| *tried == parent) {
                continue;
            }
            match Self::create_in(&parent) {
                Ok(workspace) => return Ok(workspace),
                Err(error) => refused.push((parent, error)),
            }
        }
        let reasons: Vec<String> =
            refused.iter().map(|(parent, error)| format!("{}: {error:#}", parent.display())).collect();
        bail!("no suitable directory for the injected library; set TMPDIR to another one ({})", reasons.join("; "))
    }

    fn create_in(parent: &Path) -> anyhow::Result<Self> {
        // Resolve links, so that what is checked is what is used.
        let parent = fs::canonicalize(parent)?;
        let handle = open_trusted(&parent)?;
        if rustix::fs::fstatvfs(&handle)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            bail!("it is mounted noexec");
        }
        remove_leftovers(&parent, &handle);
        for _ in 0..MOST_TRIES {
            let name = format!("{PREFIX}{:0DIGITS$x}", super::random::random()?);
            rustix::fs::mkdirat(&handle, &name, Mode::RWXU)?;
            // Until it is locked, a run that removes leftovers may mistake this for one.
            let locked = lock(&handle, &name).and_then(|locked| match locked {
                Some(directory) => Ok(Some(([directory.try_clone()?, directory.try_clone()?], directory))),
                None => Ok(None),
            });
            match locked {
                Ok(Some((spare, directory))) => {
                    let workspace = Self { path: parent.join(name), directory, spare: spare.into() };
                    rustix::fs::fchmod(&workspace.directory, Mode::from_raw_mode(0o711))?;
                    return Ok(workspace);
                }
                Ok(None) => {
                    let _ = rustix::fs::unlinkat(&handle, &name, AtFlags::REMOVEDIR);
                }
                Err(error) => {
                    let _ = rustix::fs::unlinkat(&handle, &name, AtFlags::REMOVEDIR);
                    return Err(error.into());
                }
            }
        }
        bail!("new directories in it cannot be opened or locked")
    }

    /// Writes a file that any user may read and execute.
    pub fn write_program(&self, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::RWXU)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let mut file = File::from(file);
        file.write_all(bytes).with_context(|| format!("cannot write {}", path.display()))?;
        // The umask may have removed permissions that the command's user needs.
        file.set_permissions(fs::Permissions::from_mode(0o555))?;
        Ok(path)
    }

    /// Writes the injected library.
    pub fn write_injector(&self) -> anyhow::Result<PathBuf> {
        self.write_program(INJECTOR, embedded::INJECTOR)
    }

    /// Creates a subdirectory that nobody else may use.
    pub fn make_private_directory(&self, name: &str) -> io::Result<PathBuf> {
        rustix::fs::mkdirat(&self.directory, name, Mode::RWXU)?;
        Ok(self.path.join(name))
    }

    /// Creates a subdirectory that any user may list.
    pub fn make_directory(&self, name: &str) -> io::Result<PathBuf> {
        rustix::fs::mkdirat(&self.directory, name, Mode::RWXU)?;
        rustix::fs::chmodat(&self.directory, name, Mode::from_raw_mode(0o755), AtFlags::empty())?;
        Ok(self.path.join(name))
    }

    /// Opens the socket that injected libraries connect to.
    pub fn listen(&self) -> anyhow::Result<(OwnedFd, PathBuf)> {
        let path = self.path.join("socket");
        let socket = bind_seqpacket(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
        // Access is decided by the peer's credentials, not by the file's mode.
        rustix::fs::chmodat(&self.directory, "socket", Mode::from_raw_mode(0o666), AtFlags::empty())?;
        Ok((socket, path))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // A failure here cannot be handled, and nothing depends on it.
        self.spare.clear();
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Opens a directory if nobody except root, or we, can replace it or any part of its path.
fn open_trusted(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut handle = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
    for part in path.components().skip(1) {
        check_trusted(&rustix::fs::fstat(&handle)?)?;
        handle = rustix::fs::openat(&handle, part.as_os_str(), flags, Mode::empty())?;
    }
    check_trusted(&rustix::fs::fstat(&handle)?)?;
    Ok(handle)
}

fn check_trusted(directory: &Stat) -> anyhow::Result<()> {
    // SAFETY: always succeeds.
    if directory.st_uid != 0 && directory.st_uid != geteuid().as_raw() {
        bail!("it, or a directory above it, belongs to another user");
    }
    let (others, sticky) = (directory.st_mode & 0o022 != 0, directory.st_mode & libc::S_ISVTX != 0);
    if others && !sticky {
        bail!("it, or a directory above it, is writable by other users (no sticky bit)");
    }
    Ok(())
}

/// Locks a directory of ours while the handle is open. `None` if another process has locked or removed it.
fn lock(parent: &OwnedFd, name: &str) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        opened => opened?,
    };
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    let info = rustix::fs::fstat(&directory)?;
    // SAFETY: always succeeds.
    Ok((info.st_uid == geteuid().as_raw() && info.st_nlink > 0).then_some(directory))
}

/// Removes the directories of killed runs: they have our name prefix and our owner, and are not locked.
fn remove_leftovers(parent: &Path, handle: &OwnedFd) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let (mut left, begun) = (MOST_REMOVED, Instant::now());
    for entry in entries.flatten().take_while(|_| begun.elapsed() < MOST_TIME) {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == DIGITS);
        if digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            && let Ok(Some(_locked)) = lock(handle, &name)
        {
            left -= 1;
            // Follows no links. If removal fails, the next run tries again.
            let _ = fs::remove_dir_all(parent.join(name));
            if left == 0 {
                return;
            }
        }
    }
}

fn bind_seqpacket(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path).map_err(|error| match error {
        Errno::NAMETOOLONG => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is too long for a socket; set TMPDIR to a shorter one",
        ),
        error => error.into(),
    })?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a run removes a bounded number of leftovers, and that later runs remove the rest.
    #[test]
    fn leftovers_are_removed_in_batches() {
        let parent = tempfile::tempdir().unwrap();
        for number in 0..MOST_REMOVED + 1 {
            fs::create_dir(parent.path().join(format!("{PREFIX}{number:0DIGITS$x}"))).unwrap();
        }
        let handle = OwnedFd::from(File::open(parent.path()).unwrap());
        for left in [1, 0] {
            remove_leftovers(parent.path(), &handle);
            assert_eq!(fs::read_dir(parent.path()).unwrap().count(), left);
        }
    }
}
