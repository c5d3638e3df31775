//! A control group for one test: a monitor that watches it sees only the test's own processes.

use std::{
    ffi::CString,
    fs, io,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// A cgroup v2 group. Its processes are killed when it is dropped.
pub struct Group(PathBuf);

impl Group {
    /// Creates a group; `None` if this machine does not allow it.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let root = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?;
        let name = format!("warpscope-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(root).join(name);
        fs::create_dir(&path).ok().map(|()| Self(path))
    }

    /// The directory of the group.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Starts a command in the group.
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
        // Killed processes take a moment to disappear; a failed test leaves nothing behind either.
        let begin = Instant::now();
        while let Err(error) = fs::remove_dir(&self.0) {
            if begin.elapsed().as_secs() >= 60 {
                assert!(std::thread::panicking(), "{} is not empty: {error}", self.0.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
