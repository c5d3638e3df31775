//! Keeps the kernel's stack walker supplied: which files each process has mapped, and the unwind tables of those files.
//!
//! Tables are compiled on a thread of their own; nobody waits for them. A stack taken before its tables are there comes as
//! raw memory and is walked here, with the same rules, once they are.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
};

use bpf::{Code, Place, RawStack, UnwindMaps};
use model::event::{Mapping, ProcessId};
use symbols::{FileId, Files};
use unwind::{Elf, Ended, Found, Registers, Table};

/// The most frames kept of a stack, as in the kernel.
const MOST_FRAMES: usize = 127;
/// The most raw stacks kept until their tables are there (some 33 KiB each).
pub const MOST_RAW: usize = 4096;

/// A stack walked here.
pub struct Walked {
    /// As it was taken.
    pub raw: RawStack,
    /// User addresses, innermost first.
    pub user: Vec<u64>,
    /// Why there are no more.
    pub ended: Ended,
}

/// All that the walker knows.
pub struct Unwinding {
    maps: UnwindMaps,
    files: HashMap<FileId, Progress>,
    images: HashMap<ProcessId, Image>,
    changed: HashSet<ProcessId>,
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<(FileId, Option<Unwindable>)>,
    raw: Vec<RawStack>,
    raw_dropped: u64,
    most_raw: usize,
}

#[derive(Default)]
struct Image {
    /// Sorted by start, disjoint.
    modules: Vec<Module>,
    gone: bool,
}

#[derive(Clone)]
struct Module {
    start: u64,
    end: u64,
    offset: u64,
    file: Option<FileId>,
}

/// A file whose tables are being made, cannot be made, or are there.
enum Progress {
    Asked,
    Nothing,
    Ready(Arc<Unwindable>, Option<Place>),
}

struct Unwindable {
    elf: Elf,
    table: Table,
}

struct Job {
    id: FileId,
    file: File,
}

impl Unwinding {
    /// Starts the thread that compiles tables. At most `most_raw` raw stacks are kept until theirs are there.
    pub fn start(maps: UnwindMaps, most_raw: usize) -> std::io::Result<Self> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (finished, done) = mpsc::channel();
        thread::Builder::new().name("unwind-tables".into()).spawn(move || {
            for job in todo {
                let result = compile(&job.file);
                if finished.send((job.id, result)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self {
            maps,
            files: HashMap::new(),
            images: HashMap::new(),
            changed: HashSet::new(),
            jobs,
            done,
            raw: Vec::new(),
            raw_dropped: 0,
            most_raw,
        })
    }

    /// Makes the tables of files that the command is sure to map, before it starts: those that we have mapped ourselves, as
    /// the C library, and those that are `sure` to be.
    pub fn prepare(&mut self, files: &mut Files, sure: &[PathBuf]) {
        let own = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let own =
            own.lines().filter(|l| l.contains(" r-xp ")).filter_map(|l| Some(l[l.find(['/', '['])?..].to_owned()));
        let sure = sure.iter().filter_map(|p| p.canonicalize().ok()).map(|p| p.to_string_lossy().into_owned());
        for path in own.chain(sure).filter(|path| Files::is_file(path)).collect::<HashSet<_>>() {
            let Some(id) = files.expected(&path) else { continue };
            if let Some(file) = files.open(id) {
                self.finish((id, compile(&file)));
            }
        }
    }

    /// A new image: a forked one has the mappings of its parent.
    pub fn born(&mut self, image: ProcessId, forked_from: Option<ProcessId>) {
        let modules = forked_from.and_then(|p| self.images.get(&p)).map(|p| p.modules.clone()).unwrap_or_default();
        if !modules.is_empty() {
            self.changed.insert(image);
        }
        self.images.insert(image, Image { modules, gone: false });
    }

    /// An image is gone; its stacks may still be under way.
    pub fn died(&mut self, image: ProcessId) {
        self.maps.forget(image.0);
        self.changed.remove(&image);
        if let Some(known) = self.images.get_mut(&image) {
            known.gone = true;
        }
    }

    /// A file was mapped as code, or bare memory.
    pub fn mapped(&mut self, mapping: &Mapping, file: Option<FileId>, files: &Files) {
        let Some(image) = self.images.get_mut(&mapping.process) else { return };
        let Mapping { start, end, offset, .. } = *mapping;
        if let Some(id) = file
            && !self.files.contains_key(&id)
            && let Some(file) = files.open(id)
        {
            let asked = self.jobs.send(Job { id, file });
            self.files.insert(id, if asked.is_ok() { Progress::Asked } else { Progress::Nothing });
        }
        // What was there before is there no more.
        image.modules.retain(|m| m.end <= start || m.start >= end);
        let place = image.modules.partition_point(|m| m.start < start);
        image.modules.insert(place, Module { start, end, offset, file });
        self.changed.insert(mapping.process);
    }

    /// A stack came as raw memory.
    pub fn raw(&mut self, raw: RawStack) {
        if self.raw.len() < self.most_raw {
            self.raw.push(raw);
        } else {
            self.raw_dropped += 1;
        }
    }

    /// Raw stacks that could not be kept.
    pub fn raw_dropped(&self) -> u64 {
        self.raw_dropped
    }

    /// The mappings of an image are told anew: what threads remember of its stacks no longer counts.
    pub fn renew(&mut self, image: ProcessId) {
        if self.images.get(&image).is_some_and(|known| !known.gone) {
            self.changed.insert(image);
        }
    }

    /// Forgets the tables of files that no image has mapped, once there are many; returns which are still known.
    pub fn forget_unused(&mut self) -> HashSet<FileId> {
        const MANY: usize = 512;
        if self.files.len() > MANY {
            let images = self.images.values();
            let used: HashSet<FileId> = images.flat_map(|image| image.modules.iter().filter_map(|m| m.file)).collect();
            let maps = &mut self.maps;
            self.files.retain(|id, progress| {
                let keep = used.contains(id) || matches!(progress, Progress::Asked);
                if let (false, Progress::Ready(_, Some(place))) = (keep, progress) {
                    maps.remove_rows(*place);
                }
                keep
            });
        }
        self.files.keys().copied().collect()
    }

    /// Takes finished tables and tells the kernel what has changed. Hands over the raw stacks that can be walked now.
    pub fn settle(&mut self, walked: &mut dyn FnMut(Walked)) {
        while let Ok(finished) = self.done.try_recv() {
            self.finish(finished);
        }
        for image in std::mem::take(&mut self.changed) {
            if let Some(known) = self.images.get(&image).filter(|i| !i.gone) {
                let codes: Vec<Code> = known.modules.iter().map(|m| self.code(m)).collect();
                // A full map is told by walks that end early.
                let _ = self.maps.set(image.0, &codes);
            }
        }
        let waiting = std::mem::take(&mut self.raw);
        for raw in waiting {
            if self.tables_are_there(ProcessId(raw.image)) {
                walked(self.walk(raw));
            } else {
                self.raw.push(raw);
            }
        }
        let raw = &self.raw;
        self.images.retain(|id, image| !image.gone || raw.iter().any(|r| r.image == id.0));
    }

    /// Waits for all tables that were asked for, and walks what is left.
    pub fn finish_all(&mut self, walked: &mut dyn FnMut(Walked)) {
        while !self.raw.is_empty() && self.files.values().any(|f| matches!(f, Progress::Asked)) {
            match self.done.recv() {
                Ok(finished) => self.finish(finished),
                Err(_) => break,
            }
            self.settle(walked);
        }
        for raw in std::mem::take(&mut self.raw) {
            walked(self.walk(raw));
        }
    }

    fn finish(&mut self, (id, result): (FileId, Option<Unwindable>)) {
        let progress = match result {
            None => Progress::Nothing,
            Some(unwindable) => {
                let place = self.maps.add_rows(unwind::Row::bytes(&unwindable.table.rows)).ok().flatten();
                Progress::Ready(Arc::new(unwindable), place)
            }
        };
        let users = self.images.iter().filter(|(_, i)| i.modules.iter().any(|m| m.file == Some(id)));
        self.changed.extend(users.map(|(image, _)| *image));
        self.files.insert(id, progress);
    }

    fn code(&self, module: &Module) -> Code {
        let (base, rows) = match module.file.and_then(|id| self.files.get(&id)) {
            None | Some(Progress::Nothing) => (0, Some(None)),
            Some(Progress::Asked) => (0, None),
            Some(Progress::Ready(file, place)) => match file.elf.bias(module.start, module.offset) {
                Some(bias) => (bias.wrapping_add(file.table.base), Some(*place)),
                None => (0, Some(None)),
            },
        };
        Code { start: module.start, end: module.end, base, rows }
    }

    fn tables_are_there(&self, image: ProcessId) -> bool {
        let modules = self.images.get(&image).map_or(&[][..], |i| &i.modules);
        // Before its first mapping is known nothing can be walked.
        !modules.is_empty()
            && modules.iter().filter_map(|m| m.file).all(|id| !matches!(self.files.get(&id), Some(Progress::Asked)))
    }

    fn walk(&self, raw: RawStack) -> Walked {
        let modules = self.images.get(&ProcessId(raw.image)).map_or(&[][..], |i| &i.modules);
        let find = |address: u64| {
            let below = modules.partition_point(|m| m.start <= address);
            let Some(module) = below.checked_sub(1).map(|i| &modules[i]).filter(|m| address < m.end) else {
                return Found::NoMapping;
            };
            let Some(Progress::Ready(file, _)) = module.file.and_then(|id| self.files.get(&id)) else {
                return Found::NoRule;
            };
            let row = file
                .elf
                .bias(module.start, module.offset)
                .and_then(|bias| file.table.lookup(address.wrapping_sub(bias)));
            row.map_or(Found::NoRule, Found::Row)
        };
        let registers = Registers { ip: raw.ip, general: raw.general };
        let base = registers.sp() & !4095;
        let read = |address: u64| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            Some(u64::from_le_bytes(raw.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        };
        let (user, ended) = unwind::walk(&registers, MOST_FRAMES, find, read);
        Walked { raw, user, ended }
    }
}

fn compile(file: &File) -> Option<Unwindable> {
    let elf = Elf::from_file(file).ok()?;
    Some(Unwindable { table: Table::from_file(file).ok()?, elf })
}
