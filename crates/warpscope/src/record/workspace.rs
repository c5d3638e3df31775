//! A private directory for one recording: the injected library, the socket it reports to, the simulated GPU.
//!
//! The directory belongs to us and has an unpredictable name; the command's user can pass through it but not list or
//! change it. Everything goes when the recording ends.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

/// The injected library's file name; frames in it are the probe's own.
pub const INJECTOR: &str = "libwarpscope_inject.so";

/// The directory; removed with all it holds on drop.
#[derive(Debug)]
pub struct Workspace {
    path: PathBuf,
}

impl Workspace {
    /// Makes one where programs may be loaded from.
    pub fn create() -> anyhow::Result<Self> {
        let mut tried = Vec::new();
        for parent in [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/run".into()] {
            if tried.contains(&parent) {
                continue;
            }
            if !forbids_programs(&parent) {
                match make_directory(&parent) {
                    Ok(path) => {
                        let workspace = Self { path };
                        fs::set_permissions(&workspace.path, fs::Permissions::from_mode(0o711))?;
                        return Ok(workspace);
                    }
                    Err(error) if tried.len() == 3 => {
                        return Err(error).with_context(|| format!("cannot make a directory in {}", parent.display()));
                    }
                    Err(_) => {}
                }
            }
            tried.push(parent);
        }
        bail!(
            "found no directory to load the injected library from: tried {tried:?}; set TMPDIR to one that is not mounted noexec"
        )
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the injected library.
    pub fn write_injector(&self) -> anyhow::Result<PathBuf> {
        let path = self.path.join(INJECTOR);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o555)
            .open(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        file.write_all(embedded::INJECTOR).with_context(|| format!("cannot write {}", path.display()))?;
        // The mask may have taken the command's user the right to read it.
        file.set_permissions(fs::Permissions::from_mode(0o555))?;
        Ok(path)
    }

    /// Opens the socket that injected libraries connect to.
    pub fn listen(&self) -> anyhow::Result<(OwnedFd, PathBuf)> {
        let path = self.path.join("socket");
        let socket = bind_seqpacket(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
        // Who may connect is decided by the peer's credentials, not by the file's mode.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        Ok((socket, path))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and nothing depends on it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Whether programs and libraries may not be loaded from here.
fn forbids_programs(directory: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else { return true };
    let mut info = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a valid C string and a place for the answer, which is read only if the call succeeded.
    unsafe { libc::statvfs(path.as_ptr(), info.as_mut_ptr()) != 0 || info.assume_init().f_flag & libc::ST_NOEXEC != 0 }
}

/// Makes a directory with an unpredictable name and mode 0700.
fn make_directory(parent: &Path) -> io::Result<PathBuf> {
    let mut template = parent.join("warpscope-XXXXXX").into_os_string().into_vec();
    template.push(0);
    // SAFETY: a writable, nul-terminated template, as mkdtemp asks for.
    if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    template.pop();
    Ok(OsString::from_vec(template).into())
}

fn bind_seqpacket(path: &Path) -> io::Result<OwnedFd> {
    let bytes = path.as_os_str().as_bytes();
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is too long for a socket; set TMPDIR to a shorter one",
        ));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: plain system calls on a descriptor of our own and a filled-in address of the stated size.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let size = size_of_val(&address) as libc::socklen_t;
        if libc::bind(fd, (&raw const address).cast(), size) != 0 || libc::listen(fd, 128) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }
}
