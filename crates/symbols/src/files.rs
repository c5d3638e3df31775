//! The files that processes have mapped, held open from then on.
//!
//! A name is looked up when all is over. By then the process has gone, and its file may have been deleted, replaced by
//! a newer build, or lie in a container that is no more. An open descriptor is still the file that ran. How many can be
//! held is bounded; beyond that, a file is looked for by its path, and used only if its build id is the one that was
//! mapped.

use std::{
    collections::{HashMap, HashSet},
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
    sync::Arc,
};

use elf::Elf;
use model::event::{ADDRESS, Mapping, ProcessId};

use crate::{
    roots::{self, Root, Roots},
    vdso,
};

/// The name of the vdso in place of a path.
const VDSO: &str = "[vdso]";

/// A distinct file: one path may stand for several, in containers and over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u32);

/// All files that were mapped.
#[derive(Debug)]
pub struct Files {
    /// The most that are held open.
    most: usize,
    held: usize,
    ids: HashMap<Identity, FileId>,
    known: HashMap<FileId, Known>,
    next: u32,
    /// Mappings of files without a build id.
    nameless: HashMap<(ProcessId, u64, u64), FileId>,
    roots: Roots,
}

/// What a file is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    path: String,
    build_id: Vec<u8>,
    /// Device and inode, where there is no build id.
    inode: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    file: Option<File>,
    stamp: Option<Stamp>,
    root: Option<Arc<Root>>,
    /// Where it was looked for, the surest place first.
    places: [String; 3],
}

/// Changes whenever a file is written to.
type Stamp = (u64, i64, i64);

/// A file as it is when names are looked up.
pub(crate) struct Source<'a> {
    pub(crate) file: Opened<'a>,
    pub(crate) elf: Elf,
    /// Where its path leads from, if not from our own root.
    pub(crate) root: Option<&'a Root>,
}

/// A file that is held, or was opened again.
pub(crate) enum Opened<'a> {
    Held(&'a File),
    Again(File),
}

impl std::ops::Deref for Opened<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Self::Held(file) => file,
            Self::Again(file) => file,
        }
    }
}

impl Default for Files {
    /// Holds nothing open: for a recording that was made before.
    fn default() -> Self {
        Self::new(0)
    }
}

impl Files {
    /// Holds at most `most` files open.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            held: 0,
            ids: HashMap::new(),
            known: HashMap::new(),
            next: 0,
            nameless: HashMap::new(),
            roots: Roots::default(),
        }
    }

    /// Whether a mapping's path is that of a file, and not of bare memory or a device.
    pub fn is_file(path: &str) -> bool {
        path == VDSO || (path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/dev/"))
    }

    /// A file was mapped by a process. `None` if it is none, or cannot be found.
    pub fn mapped(&mut self, mapping: &Mapping, pid: u32) -> Option<FileId> {
        if !Self::is_file(&mapping.path) {
            return None;
        }
        let identity = Identity { path: mapping.path.clone(), build_id: mapping.build_id.clone(), inode: None };
        if let Some(id) = self.ids.get(&identity) {
            return Some(*id);
        }
        let places = [
            format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start & ADDRESS, mapping.end & ADDRESS),
            format!("/proc/{pid}/root{}", mapping.path),
            mapping.path.clone(),
        ];
        let file = open(&mapping.path, &places, &mapping.build_id)?;
        let root = self.roots.of(pid);
        let id = self.add(identity, file, root, places)?;
        if mapping.build_id.is_empty() {
            self.nameless.insert((mapping.process, mapping.start, mapping.time), id);
        }
        Some(id)
    }

    /// A file that is sure to be mapped, before it is.
    pub fn expected(&mut self, path: &str) -> Option<FileId> {
        let places = [path.to_owned(), String::new(), String::new()];
        let file = open(path, &places, &[])?;
        let build_id = if path == VDSO { Vec::new() } else { Elf::read(&file).ok()?.build_id };
        self.add(Identity { path: path.to_owned(), build_id, inode: None }, file, None, places)
    }

    fn add(
        &mut self,
        mut identity: Identity,
        file: File,
        root: Option<Arc<Root>>,
        places: [String; 3],
    ) -> Option<FileId> {
        let info = file.metadata().ok()?;
        if identity.build_id.is_empty() && identity.path != VDSO {
            identity.inode = Some((info.dev(), info.ino()));
        }
        if let Some(id) = self.ids.get(&identity) {
            return Some(*id);
        }
        let id = FileId(self.next);
        self.next = self.next.checked_add(1)?;
        let hold = self.held < self.most;
        self.held += usize::from(hold);
        let stamp = Some(stamp(&info));
        self.known.insert(id, Known { identity: identity.clone(), file: hold.then_some(file), stamp, root, places });
        self.ids.insert(identity, id);
        Some(id)
    }

    /// Forgets which files these images had mapped.
    pub(crate) fn forget_images(&mut self, gone: &dyn Fn(ProcessId) -> bool) {
        self.nameless.retain(|(image, ..), _| !gone(*image));
    }

    /// Closes and forgets all files but these.
    pub fn forget_all_but(&mut self, keep: &HashSet<FileId>) {
        self.known.retain(|id, _| keep.contains(id));
        self.ids.retain(|_, id| keep.contains(id));
        self.nameless.retain(|_, id| keep.contains(id));
        self.held = self.known.values().filter(|known| known.file.is_some()).count();
        self.roots.forget_unused();
    }

    /// Opens a file once more, to be read at will.
    pub fn open(&self, id: FileId) -> Option<File> {
        let known = self.known.get(&id)?;
        match &known.file {
            Some(file) => File::open(descriptor_path(file)).ok(),
            None => open(&known.identity.path, &known.places, &known.identity.build_id),
        }
    }

    /// The most files that are held open.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// How many files could not be held open.
    pub(crate) fn not_held(&self) -> usize {
        self.known.len() - self.held
    }

    /// The file of a mapping, if it still is what was mapped.
    pub(crate) fn source(&self, mapping: &Mapping) -> Option<Source<'_>> {
        if !Self::is_file(&mapping.path) {
            return None;
        }
        let identity = Identity { path: mapping.path.clone(), build_id: mapping.build_id.clone(), inode: None };
        let nameless = || self.nameless.get(&(mapping.process, mapping.start, mapping.time));
        let known = self.ids.get(&identity).or_else(nameless).and_then(|id| self.known.get(id));
        if let Some(known) = known
            && let Some(file) = &known.file
        {
            let elf = Elf::read(file).ok()?;
            // It may have been written over in its place.
            let same = match mapping.build_id.as_slice() {
                [] => file.metadata().ok().map(|info| stamp(&info)) == known.stamp,
                build_id => elf.build_id == build_id,
            };
            return same.then(|| Source { file: Opened::Held(file), elf, root: known.root.as_deref() });
        }
        let root = known.and_then(|known| known.root.as_deref());
        let file = roots::open(root, Path::new(&mapping.path)).filter(|_| mapping.path != VDSO)?;
        let elf = Elf::read(&file).ok()?;
        if !mapping.build_id.is_empty() && elf.build_id != mapping.build_id {
            return None;
        }
        Some(Source { file: Opened::Again(file), elf, root })
    }
}

/// Opens the first of the places that has the file, which must have the build id if that is known.
fn open(path: &str, places: &[String], build_id: &[u8]) -> Option<File> {
    if path == VDSO {
        return vdso::file();
    }
    places.iter().filter(|place| !place.is_empty()).find_map(|place| {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(place).ok()?;
        if !file.metadata().is_ok_and(|info| info.is_file()) {
            return None;
        }
        let same = build_id.is_empty() || Elf::read(&file).is_ok_and(|elf| elf.build_id == build_id);
        same.then_some(file)
    })
}

fn stamp(info: &std::fs::Metadata) -> Stamp {
    (info.size(), info.mtime(), info.mtime_nsec())
}

/// A path that leads to an open file, wherever it lies and whether or not it still has a name.
pub(crate) fn descriptor_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
