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
//!
//! A debug file must have the same build id or checksum. It contains no code, so its file offsets differ: addresses are
//! translated with the headers of the file itself.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use elf::{Budget, Bytes, Elf};

use crate::roots::{self, Root};

/// The distributions' directory for debug files.
const SYSTEM: &str = "/usr/lib/debug";
/// The maximum size of `.gnu_debuglink`: a file name and a checksum.
const LONGEST_LINK: u64 = 4096;
/// The most bytes of a build id that are used. Usual are 20.
const LONGEST_ID: usize = 64;
/// The most candidates of each kind.
const MOST: usize = 12;

/// The locations to search for debug files.
#[derive(Clone, Debug, Default)]
pub struct DebugFiles {
    directories: Vec<PathBuf>,
    caches: Vec<PathBuf>,
}

/// What identifies the debug file of a file. The file itself says so: its parser has no rights, and this is not trusted.
pub(crate) struct Identity {
    pub(crate) build_id: Vec<u8>,
    /// The name and checksum of a link.
    pub(crate) link: Option<(String, u32)>,
}

sandbox::plain! { Identity { build_id, link } }

/// A debug file.
pub(crate) struct DebugFile<'a> {
    pub(crate) file: &'a File,
    pub(crate) elf: Elf,
}

/// Files that may be the debug file of another, the most likely first.
#[derive(Default)]
pub(crate) struct Candidates {
    pub(crate) by_build_id: Vec<File>,
    pub(crate) by_link: Vec<File>,
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

    /// Opens the files that may have what was stripped from a file in `root`, whose path in its processes is `path`.
    pub(crate) fn candidates(&self, root: Option<&Root>, path: &str, identity: &Identity) -> Candidates {
        let open = |(root, path): (Option<&Root>, PathBuf)| roots::open(root, &path);
        let by_build_id = self.by_build_id(root, &identity.build_id).into_iter().filter_map(open);
        let link = identity.link.as_ref().map(|(name, _)| name.as_str()).filter(|name| is_plain(name));
        let by_link = link.and_then(|name| self.by_link(root, path, name)).unwrap_or_default();
        Candidates {
            by_build_id: by_build_id.take(MOST).collect(),
            by_link: by_link.into_iter().filter_map(open).take(MOST).collect(),
        }
    }

    /// Returns each directory with its root.
    fn places<'a>(&'a self, root: Option<&'a Root>) -> impl Iterator<Item = (Option<&'a Root>, &'a Path)> {
        let system = Path::new(SYSTEM);
        let inside = root.map(|root| (Some(root), system));
        let given = self.directories.iter().map(|directory| (None, directory.as_path()));
        given.chain(inside).chain([(None, system)])
    }

    fn by_build_id<'a>(&'a self, root: Option<&'a Root>, build_id: &[u8]) -> Vec<(Option<&'a Root>, PathBuf)> {
        let hex: String = build_id.iter().take(LONGEST_ID).map(|byte| format!("{byte:02x}")).collect();
        let Some((first, rest)) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let in_directories = self
            .places(root)
            .map(|(root, directory)| (root, directory.join(format!(".build-id/{first}/{rest}.debug"))));
        let in_caches = self.caches.iter().map(|cache| (None, cache.join(&hex).join("debuginfo")));
        in_directories.chain(in_caches).collect()
    }

    fn by_link<'a>(
        &'a self,
        root: Option<&'a Root>,
        path: &str,
        name: &str,
    ) -> Option<Vec<(Option<&'a Root>, PathBuf)>> {
        let beside = Path::new(path).parent()?;
        let below = beside.strip_prefix("/").ok()?;
        let near = [beside.join(name), beside.join(".debug").join(name)].map(|path| (root, path));
        let far = self.places(root).map(|(root, directory)| (root, directory.join(below).join(name)));
        Some(near.into_iter().chain(far).collect())
    }
}

impl Identity {
    /// Returns what a file says about its debug file.
    pub(crate) fn of(file: &File, elf: &Elf) -> Self {
        let section = elf.section(".gnu_debuglink").map(|section| section.read(file, LONGEST_LINK, "debug link"));
        let link = section.and_then(Result::ok).and_then(|section| link(&section));
        Self { build_id: elf.build_id.clone(), link }
    }

    /// Returns the one of some candidates that is the debug file.
    pub(crate) fn choose<'a>(
        &self,
        by_build_id: &[&'a File],
        by_link: &[&'a File],
        budget: &Budget,
    ) -> Option<DebugFile<'a>> {
        let with_id = |file: &&'a File| {
            let elf = Elf::read(*file).ok().filter(|elf| elf.build_id == self.build_id)?;
            Some(DebugFile { file, elf })
        };
        let with_sum = |file: &&'a File| {
            let (_, crc) = self.link.as_ref()?;
            let elf = Elf::read(*file).ok()?;
            // The whole file is read: the largest debug files are a few times as large as the parts used.
            let same = checksum(file, budget.debug * 4).is_ok_and(|sum| sum == *crc);
            same.then_some(DebugFile { file, elf })
        };
        by_build_id.iter().find_map(with_id).or_else(|| by_link.iter().find_map(with_sum))
    }
}

/// Whether a name is that of a file, without a directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}

/// Parses a name, zeros up to a multiple of four, and a CRC-32. The name is a file name without a directory.
fn link(section: &[u8]) -> Option<(String, u32)> {
    let length = section.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&section[..length]).ok()?;
    let crc = section.get((length + 4) & !3..)?.first_chunk::<4>()?;
    is_plain(name).then(|| (name.to_owned(), u32::from_le_bytes(*crc)))
}

fn checksum(file: &File, largest: u64) -> io::Result<u32> {
    if file.length() > largest {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut sum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        match FileExt::read_at(file, &mut buffer, at)? {
            0 => return Ok(sum.finalize()),
            read => {
                sum.update(&buffer[..read]);
                at += read as u64;
            }
        }
    }
}
