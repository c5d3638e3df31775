//! The vdso: the kernel's page of code in every process. All processes of this machine have the same one.

use std::{fs::File, io::Write};

use rustix::fs::{MemfdFlags, memfd_create};

/// Returns its bytes.
fn image() -> Option<&'static [u8]> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    // SAFETY: the mapping is there for as long as the process, readable, and never written to.
    Some(unsafe { std::slice::from_raw_parts(start as *const u8, end - start) })
}

/// Returns a memory file with its bytes.
pub(crate) fn file() -> Option<File> {
    let mut file = File::from(memfd_create("vdso", MemfdFlags::CLOEXEC).ok()?);
    file.write_all(image()?).ok()?;
    Some(file)
}
