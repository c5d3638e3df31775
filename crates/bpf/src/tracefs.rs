//! Reads tracepoints and functions from tracefs. If it is not mounted, it is mounted temporarily and privately, in a
//! mount namespace that ends with the thread that created it.

use std::{fs, io, path::Path};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::features;

/// Reads a file of tracefs, such as `events/nvidia/nvidia_dev_xid/format`.
pub fn read(file: &str) -> io::Result<String> {
    let file = file.to_owned();
    within(move |root| fs::read_to_string(root.join(file)))
}

/// Returns all tracepoints as `category:name`, sorted.
pub fn tracepoints() -> io::Result<Vec<String>> {
    within(|root| {
        let mut found = Vec::new();
        for category in fs::read_dir(root.join("events"))?.flatten().filter(|e| e.path().is_dir()) {
            let names = fs::read_dir(category.path())?.flatten().filter(|e| e.path().join("id").is_file());
            let full = |name: fs::DirEntry| {
                format!("{}:{}", category.file_name().to_string_lossy(), name.file_name().to_string_lossy())
            };
            found.extend(names.map(full));
        }
        found.sort();
        Ok(found)
    })
}

/// Returns the kernel functions that can be probed.
pub fn kernel_functions() -> io::Result<Vec<String>> {
    let text = read("available_filter_functions")?;
    // The name of a module function is followed by its module.
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn within<T: Send + 'static>(look: impl FnOnce(&Path) -> io::Result<T> + Send + 'static) -> io::Result<T> {
    if let Some(root) = features::tracefs() {
        return look(Path::new(root));
    }
    let thread = std::thread::spawn(move || {
        mount_for_this_thread()?;
        look(Path::new(ROOT))
    });
    thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

const ROOT: &str = "/sys/kernel/tracing";

fn mount_for_this_thread() -> io::Result<()> {
    // SAFETY: the thread is new and runs only code of this file, which has no directory or mount of its own in use.
    unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(mount("tracefs", ROOT, "tracefs", MountFlags::empty(), None)?)
}
