//! A control group for one test: a monitor that watches it sees the test's own processes, and none of its neighbours'.

use std::{
    ffi::CString,
    fs, io,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use super::wait_until;

/// A group of the second hierarchy. At its end nothing in it runs on.
pub struct Group(PathBuf);

impl Group {
    /// A new one; none where groups cannot be made.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let root = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?;
        let name = format!("warpscope-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(root).join(name);
        fs::create_dir(&path).ok().map(|()| Self(path))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Starts a command in it.
    pub fn join(&self, command: &mut Command) {
        let members = CString::new(self.0.join("cgroup.procs").as_os_str().as_bytes()).expect("a path");
        // SAFETY: only system calls between fork and exec, on a path that the closure owns.
        unsafe {
            command.pre_exec(move || {
                let file = libc::open(members.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if file < 0 || libc::write(file, c"0".as_ptr().cast(), 1) != 1 {
                    return Err(io::Error::last_os_error());
                }
                libc::close(file);
                Ok(())
            });
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        if !std::thread::panicking() {
            wait_until("the control group is empty", || fs::remove_dir(&self.0).is_ok());
        }
    }
}
