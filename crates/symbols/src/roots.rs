//! The root directories of processes, which differ in a container or a chroot.
//!
//! A root is kept open, so that files can be found in it after its processes have exited.
//!
//! It is searched with `openat2(RESOLVE_IN_ROOT)`, so that symlinks in it cannot lead outside.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// The maximum number of open roots.
const MOST: usize = 256;

/// The mount namespace and the directory.
type Identity = (u64, u64, u64);

/// A root that is not our own.
#[derive(Debug)]
pub(crate) struct Root(File);

/// All roots, each opened once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    own: Option<Identity>,
    held: HashMap<Identity, Arc<Root>>,
}

impl Roots {
    /// Closes the roots that no file refers to.
    pub(crate) fn forget_unused(&mut self) {
        self.held.retain(|_, root| Arc::strong_count(root) > 1);
    }

    /// Returns the root of a process; `None` if it is our own or unknown.
    pub(crate) fn of(&mut self, pid: u32) -> Option<Arc<Root>> {
        let identity = identity(&format!("/proc/{pid}"))?;
        if self.own.is_none() {
            self.own = self::identity("/proc/self");
        }
        if self.own == Some(identity) {
            return None;
        }
        if let Some(known) = self.held.get(&identity) {
            return Some(known.clone());
        }
        if self.held.len() >= MOST {
            return None;
        }
        let root = Arc::new(Root(directory(&format!("/proc/{pid}/root"))?));
        self.held.insert(identity, root.clone());
        Some(root)
    }
}

fn identity(process: &str) -> Option<Identity> {
    let namespace = fs::metadata(format!("{process}/ns/mnt")).ok()?;
    let root = fs::metadata(format!("{process}/root/")).ok()?;
    Some((namespace.ino(), root.dev(), root.ino()))
}

/// Opens a directory to find files in.
pub(crate) fn directory(path: &str) -> Option<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path).ok()
}

/// Opens a file for reading, in a root or in our own; only a regular file.
pub(crate) fn open(root: Option<&Root>, path: &Path) -> Option<File> {
    match root {
        None => elf::open(path).ok(),
        Some(Root(directory)) => {
            // With the directory as the root for absolute links.
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let found = openat2(directory, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
            elf::open_found(&File::from(found)).ok()
        }
    }
}
