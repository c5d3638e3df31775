//! The files that processes have mapped, kept open.
//!
//! Names are looked up at the end of a recording. By then the process has exited, and its file may have been deleted,
//! replaced by a newer build, or been in a container that no longer exists. An open descriptor still refers to the file
//! that ran. The number of open files is bounded; beyond it, a file is searched by its path, and used only if its build
//! id matches the mapped one.
//!
//! A file that was overwritten in place no longer has the build id that was mapped (or, without one, its old size and
//! time), and is not used: `[libfoo.so]` is better than a wrong name. At most 16,384 files are kept open in a
//! recording, and a note says so if there are more. The vdso is the same for all processes of a kernel: ours is copied
//! into a file in memory.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
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

/// A distinct file: one path may refer to several, in containers and over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u32);

/// All mapped files. A copy shares the open files.
#[derive(Clone, Debug)]
pub struct Files {
    /// The maximum number of open files.
    most: usize,
    held: usize,
    ids: HashMap<Identity, FileId>,
    known: HashMap<FileId, Known>,
    next: u32,
    /// Mappings of files without a build id.
    nameless: HashMap<(ProcessId, u64, u64), FileId>,
    roots: Roots,
}

/// The identity of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    path: String,
    build_id: Vec<u8>,
    /// Device and inode, if there is no build id.
    inode: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Known {
    identity: Identity,
    file: Option<Arc<File>>,
    stamp: Option<Stamp>,
    root: Option<Arc<Root>>,
    /// The paths to try, the most reliable first.
    places: [String; 3],
}

/// Changes whenever the file is written to.
type Stamp = (u64, i64, i64);

/// A file at the time names are looked up.
pub(crate) struct Source<'a> {
    pub(crate) file: Opened<'a>,
    pub(crate) elf: Elf,
}

/// The same before it was read.
pub(crate) struct Unread<'a> {
    pub(crate) file: Opened<'a>,
    /// The root of its path, if it is not our own.
    pub(crate) root: Option<&'a Root>,
}

/// A file that was kept open, or was opened again.
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
    /// Keeps no files open: for an existing recording.
    fn default() -> Self {
        Self::new(0)
    }
}

impl Files {
    /// Keeps at most `most` files open.
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

    /// Whether a mapping's path is that of a file, and not of anonymous memory or a device.
    pub fn is_file(path: &str) -> bool {
        path == VDSO || (path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/dev/"))
    }

    /// Registers a file mapped by a process. `None` if it is not a file or cannot be found.
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

    /// Registers a file before it is mapped.
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
        self.known
            .insert(id, Known { identity: identity.clone(), file: hold.then(|| Arc::new(file)), stamp, root, places });
        self.ids.insert(identity, id);
        Some(id)
    }

    /// Forgets the mappings of these images.
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

    /// Returns the path that a file was mapped by.
    pub fn path(&self, id: FileId) -> String {
        self.known.get(&id).map_or_else(String::new, |known| known.identity.path.clone())
    }

    /// Opens a file again for reading.
    pub fn open(&self, id: FileId) -> Option<File> {
        let known = self.known.get(&id)?;
        match &known.file {
            // A copy if /proc is that of another pid namespace: all readers say where they read.
            Some(file) => File::open(descriptor_path(file)).or_else(|_| file.try_clone()).ok(),
            None => open(&known.identity.path, &known.places, &known.identity.build_id),
        }
    }

    /// Returns the maximum number of open files.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns how many files could not be kept open.
    pub(crate) fn not_held(&self) -> usize {
        self.known.len() - self.held
    }

    /// Returns the file of a mapping, if it is still the one that was mapped.
    pub(crate) fn source(&self, mapping: &Mapping) -> Option<Source<'_>> {
        let Unread { file, .. } = self.unread(mapping)?;
        let elf = Elf::read(&*file).ok()?;
        (mapping.build_id.is_empty() || elf.build_id == mapping.build_id).then_some(Source { file, elf })
    }

    /// Returns the file of a mapping. With a build id it must still be compared with that of the mapping: the file may have been
    /// overwritten or replaced.
    pub(crate) fn unread(&self, mapping: &Mapping) -> Option<Unread<'_>> {
        if !Self::is_file(&mapping.path) {
            return None;
        }
        let identity = Identity { path: mapping.path.clone(), build_id: mapping.build_id.clone(), inode: None };
        let nameless = || self.nameless.get(&(mapping.process, mapping.start, mapping.time));
        let known = self.ids.get(&identity).or_else(nameless).and_then(|id| self.known.get(id));
        if let Some(known) = known
            && let Some(file) = &known.file
        {
            let unchanged = || file.metadata().ok().map(|info| stamp(&info)) == known.stamp;
            let same = !mapping.build_id.is_empty() || unchanged();
            return same.then(|| Unread { file: Opened::Held(file), root: known.root.as_deref() });
        }
        let root = known.and_then(|known| known.root.as_deref());
        let file = roots::open(root, Path::new(&mapping.path)).filter(|_| mapping.path != VDSO)?;
        Some(Unread { file: Opened::Again(file), root })
    }
}

/// Opens the first of the paths that has the file, with a matching build id if it is known.
fn open(path: &str, places: &[String], build_id: &[u8]) -> Option<File> {
    if path == VDSO {
        return vdso::file();
    }
    places.iter().filter(|place| !place.is_empty()).find_map(|place| {
        let file = elf::open(place).ok()?;
        let same = build_id.is_empty() || Elf::read(&file).is_ok_and(|elf| elf.build_id == build_id);
        same.then_some(file)
    })
}

fn stamp(info: &std::fs::Metadata) -> Stamp {
    (info.size(), info.mtime(), info.mtime_nsec())
}

/// Returns a path to an open file, in any location and even if it has been deleted.
pub(crate) fn descriptor_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
