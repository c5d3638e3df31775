//! The user who runs the command and owns the files: under sudo, the user who called it.

use std::{env, ffi::CString, io};

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
    /// Returns the id of a user, or our own.
    pub fn uid_or_own(user: Option<&Self>) -> u32 {
        user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid)
    }

    /// Returns the user who called sudo; `None` if we are not root or were not called through sudo.
    pub fn behind_sudo() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
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

/// Runs `work` with the file access rights of `user`, or with our own. The kernel keeps these rights per thread, so
/// this runs on a separate thread, which ends with them.
pub fn acting_as<T, E>(user: Option<&User>, work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E>
where
    T: Send,
    E: From<io::Error> + Send,
{
    let Some(user) = user else { return work() };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            adopt_rights(user)?;
            work()
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Adopts the user's file access rights, for this thread alone. Root's rights on files depend on user id 0.
fn adopt_rights(user: &User) -> io::Result<()> {
    // The C library's setgroups would change every thread.
    // SAFETY: plain system calls; the list of groups is valid for its length.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::setfsgid(user.gid);
        libc::setfsuid(user.uid);
        // These calls return only the previous id, so each is called again with an invalid id to check the result.
        let taken = (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX));
        if taken != (user.uid.cast_signed(), user.gid.cast_signed()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("cannot act as {}", user.name)));
        }
    }
    Ok(())
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

/// Switches to the user permanently. Only system calls, so it may run between fork and exec.
pub fn become_user(user: &User) -> io::Result<()> {
    // SAFETY: plain system calls; the list of groups is valid for its length.
    let done = unsafe {
        libc::setgroups(user.groups.len(), user.groups.as_ptr()) == 0
            && libc::setgid(user.gid) == 0
            && libc::setuid(user.uid) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
