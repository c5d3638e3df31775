//! Finds the debug file with the parts stripped from another file: all its symbols, lines and inlined functions.
//!
//! ```text
//!   by build id   DIR/.build-id/ab/cdef….debug, for each directory of debug files
//!                 CACHE/abcdef…/debuginfo, files fetched earlier by debuginfod's client
//!   by link       next to the file, in .debug/ next to it, and in DIR/<the file's directory>: by the name in
//!                 .gnu_debuglink, if the checksum matches
//! ```
//!
//! A file of a container is searched in that container first. The network is never used.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use elf::{Budget, Elf};

use crate::{
    files::Source,
    roots::{self, Root},
};

/// The distributions' directory for debug files.
const SYSTEM: &str = "/usr/lib/debug";
/// The maximum size of `.gnu_debuglink`: a file name and a checksum.
const LONGEST_LINK: u64 = 4096;

/// The locations to search for debug files.
#[derive(Clone, Debug, Default)]
pub struct DebugFiles {
    directories: Vec<PathBuf>,
    caches: Vec<PathBuf>,
}

/// A debug file.
pub(crate) struct DebugFile {
    pub(crate) file: File,
    pub(crate) elf: Elf,
}

impl DebugFiles {
    /// Searches these directories before the system's; `homes` may contain caches of debuginfod's client.
    pub fn new(directories: &[PathBuf], homes: &[PathBuf]) -> Self {
        let from_variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut caches: Vec<PathBuf> = from_variable("DEBUGINFOD_CACHE_PATH").into_iter().collect();
        caches.extend(from_variable("XDG_CACHE_HOME").map(|cache| cache.join("debuginfod_client")));
        caches.extend(homes.iter().map(|home| home.join(".cache/debuginfod_client")));
        Self { directories: directories.to_vec(), caches }
    }

    /// Returns the debug file of `source`, whose path in its processes is `path`.
    pub(crate) fn find(&self, source: &Source<'_>, path: &str, budget: &Budget) -> Option<DebugFile> {
        self.by_build_id(source).or_else(|| self.by_link(source, path, budget))
    }

    /// Returns each directory with its root.
    fn places<'a>(&'a self, source: &Source<'a>) -> impl Iterator<Item = (Option<&'a Root>, &'a Path)> {
        let system = Path::new(SYSTEM);
        let inside = source.root.map(|root| (Some(root), system));
        let given = self.directories.iter().map(|directory| (None, directory.as_path()));
        given.chain(inside).chain([(None, system)])
    }

    fn by_build_id(&self, source: &Source<'_>) -> Option<DebugFile> {
        let hex: String = source.elf.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, rest) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
        let in_directories = self
            .places(source)
            .map(|(root, directory)| (root, directory.join(format!(".build-id/{first}/{rest}.debug"))));
        let in_caches = self.caches.iter().map(|cache| (None, cache.join(&hex).join("debuginfo")));
        in_directories.chain(in_caches).find_map(|(root, path)| {
            let file = roots::open(root, &path)?;
            let elf = Elf::read(&file).ok().filter(|elf| elf.build_id == source.elf.build_id)?;
            Some(DebugFile { file, elf })
        })
    }

    fn by_link(&self, source: &Source<'_>, path: &str, budget: &Budget) -> Option<DebugFile> {
        let section = source.elf.section(".gnu_debuglink")?.read(&*source.file, LONGEST_LINK, "debug link").ok()?;
        let (name, crc) = link(&section)?;
        let beside = Path::new(path).parent()?;
        let below = beside.strip_prefix("/").ok()?;
        let near = [beside.join(&name), beside.join(".debug").join(&name)].map(|path| (source.root, path));
        let far = self.places(source).map(|(root, directory)| (root, directory.join(below).join(&name)));
        near.into_iter().chain(far).find_map(|(root, path)| {
            let file = roots::open(root, &path)?;
            let elf = Elf::read(&file).ok()?;
            // The whole file is read: the largest debug files are a few times as large as the parts used.
            let same = checksum(&file, budget.debug * 4).is_ok_and(|sum| sum == crc);
            same.then_some(DebugFile { file, elf })
        })
    }
}

/// Parses a name, zeros up to a multiple of four, and a CRC-32. The name is a file name without a directory.
fn link(section: &[u8]) -> Option<(String, u32)> {
    let length = section.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&section[..length]).ok()?;
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return None;
    }
    let crc = section.get((length + 4) & !3..)?.first_chunk::<4>()?;
    Some((name.to_owned(), u32::from_le_bytes(*crc)))
}

fn checksum(file: &File, largest: u64) -> io::Result<u32> {
    if file.metadata()?.len() > largest {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut sum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(sum.finalize()),
            read => {
                sum.update(&buffer[..read]);
                at += read as u64;
            }
        }
    }
}
