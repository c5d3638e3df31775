//! As whom the command runs, and who owns the files: under sudo, the user who called it.

use std::{env, ffi::CString, fs::File, io, os::fd::AsRawFd};

/// The user who called sudo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
    /// Login name.
    pub name: String,
    /// Home directory, if known.
    pub home: Option<String>,
}

impl User {
    /// The user who called sudo; none if we are not root or were not called through sudo.
    pub fn behind_sudo() -> Option<Self> {
        // SAFETY: always succeeds.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let number = |name| env::var(name).ok().and_then(|v: String| v.parse::<u32>().ok());
        let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
        if uid == 0 {
            return None;
        }
        let name = env::var("SUDO_USER").ok()?;
        Some(Self { uid, gid, groups: groups_of(&name, gid), home: home_of(uid), name })
    }
}

/// Gives a file to the user who called sudo. A file system that knows no owners is no reason to fail.
pub fn give(file: &File, user: Option<&User>) {
    if let Some(user) = user {
        // SAFETY: a plain system call on an open descriptor.
        unsafe { libc::fchown(file.as_raw_fd(), user.uid, user.gid) };
    }
}

fn groups_of(name: &str, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name) else { return vec![gid] };
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the buffer holds `count` ids, and the call writes no more than that.
        let answer = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if answer >= 0 {
            groups.truncate(count.max(0) as usize);
            return groups;
        }
        if groups.len() >= 65_536 {
            return vec![gid];
        }
        groups.resize(groups.len() * 2, 0);
    }
}

fn home_of(uid: u32) -> Option<String> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(uid)).then(|| fields.get(5).map(|home| (*home).to_owned()))?
    })
}

/// Becomes the user, for good. Only system calls, so it may run between fork and exec.
pub fn become_user(user: &User) -> io::Result<()> {
    // SAFETY: plain system calls; the list of groups is valid for its length.
    let done = unsafe {
        libc::setgroups(user.groups.len(), user.groups.as_ptr()) == 0
            && libc::setgid(user.gid) == 0
            && libc::setuid(user.uid) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
