//! Supplies the kernel's stack walker: which files each process has mapped, and the unwind tables of those files.
//!
//! Tables are compiled on separate threads without blocking anything. A stack taken before its tables are ready
//! arrives as raw memory and is walked here, with the same rules, once they are.
//!
//! A recording compiles the tables of all mapped files, so that few stacks arrive as raw memory. A daemon takes few
//! stacks, and compiles only the functions on them: a raw stack shows which ones are missing.
//!
//! ```text
//!  mapping record ──> here ──> unwind::Table ──> rows, in maps shared with the kernel
//!                                                  │
//!  launch or sample ──> bpf/stack.h: for each frame, find the mapping, search its rows, step to the caller
//!                            ├─ a rule: exact
//!                            ├─ no rule (generated code): rbp is assumed to be a frame pointer
//!                            └─ no table yet: the stack's memory is sent, and walked here
//! ```
//!
//! - Tables of files that are certain to be mapped (libc, the command itself, our library) are compiled before the
//!   command starts. The injected library waits inside `cuInit` until this process's mappings are known, about a
//!   millisecond, so that bursts of copies are rare. It does not wait for tables.
//! - PyTorch's tables take 70 MiB, so the daemon compiles single functions, found by the search table of
//!   `.eh_frame_hdr`. At an address between the known ones, the walker sends the stack again. A file without a search
//!   table is compiled completely. The least recently used tables are removed at a limit, and compiled again on demand.
//! - Files are identified by path and build id, and kept open: containers have their own files, and a replaced file is
//!   not mistaken for the one that was mapped.

mod early;
mod eviction;
mod fair;
pub(crate) mod growing;
pub(crate) mod image;
mod raw;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
mod waiting;

pub use early::Early;
pub use tables::Tables;
pub use waiting::Walked;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bpf::{Code, MOST_PER_IMAGE, Place, UnwindMaps};
use model::event::{Mapping, ProcessId};
use sandbox::Failed;
use symbols::{FileId, Files};
use unwind::Row;

use early::canonical;
use growing::{Growing, Lookup};
use image::{Image, Module, Wanted};
use tables::{Compiled, Compiler, Finished, Job, Unwindable, What};
use waiting::Waiting;

/// How many bytes of grown tables are copied to the kernel per second. The previous copies are kept for a while.
const GROWTH: u32 = 4 << 20;

/// The most images that are kept while raw stacks of ended ones may arrive.
const MAX_IMAGES: usize = 1 << 16;

/// The state of the walker.
pub struct Unwinding {
    maps: UnwindMaps,
    files: HashMap<FileId, Progress>,
    images: HashMap<ProcessId, Image>,
    changed: HashSet<ProcessId>,
    compiler: Compiler,
    /// Compile only the functions on stacks.
    on_demand: bool,
    /// When grown tables may be copied to the kernel again.
    next_growth: Instant,
    raw: Vec<Waiting>,
    /// The bytes of their memory.
    raw_bytes: usize,
    /// Counts finished jobs.
    finished: u64,
    /// Counts calls of `settle`: mappings and records of a process arrive at most a round apart.
    round: u64,
    raw_dropped: u64,
    /// Files whose table could not be compiled because the process that reads them failed.
    failures: u64,
    /// There is no process that reads files.
    gone: bool,
    most_raw: usize,
    /// How long to wait for a required table.
    wait: Duration,
    tables: Tables,
    notes: Vec<String>,
}

/// A file whose tables are being compiled, cannot be compiled, are ready, or grow on demand.
enum Progress {
    Queued,
    Nothing,
    Ready(Arc<Unwindable>, Option<Place>),
    Growing(Growing),
}

impl Unwinding {
    /// Takes over the threads that compile tables, and what they have begun. At most `most_raw` raw stacks are kept until
    /// their tables are ready; a required table is waited for at most `wait`.
    pub fn new(maps: UnwindMaps, most_raw: usize, wait: Duration, early: Early) -> Self {
        let Early { compiler, queued, on_demand } = early;
        Self {
            maps,
            files: queued.into_iter().map(|id| (id, Progress::Queued)).collect(),
            images: HashMap::new(),
            changed: HashSet::new(),
            compiler,
            on_demand,
            next_growth: Instant::now(),
            raw: Vec::new(),
            raw_bytes: 0,
            finished: 0,
            round: 0,
            raw_dropped: 0,
            failures: 0,
            gone: false,
            most_raw,
            wait,
            tables: Tables::default(),
            notes: Vec::new(),
        }
    }

    /// Returns notes for the user about files that could not be read since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Waits for tables that were begun early.
    pub fn await_all(&mut self, expected: &[FileId]) {
        for id in expected {
            self.wait_for(Some(*id));
        }
    }

    /// Compiles the tables of other files that the command will certainly map, before it starts.
    pub fn prepare(&mut self, files: &mut Files, sure: &[PathBuf]) {
        for path in canonical(sure) {
            let id = files.expected(&path).filter(|id| !self.files.contains_key(id));
            if let Some((id, file)) = id.and_then(|id| Some((id, files.open(id)?))) {
                self.finish(self.compiler.compile(Job { id, path, file, what: What::Whole }));
            }
        }
    }

    /// Adds a new image: a forked one has the mappings of its parent.
    pub fn born(&mut self, image: ProcessId, forked_from: Option<ProcessId>) {
        let parent = forked_from.and_then(|p| self.images.get(&p));
        let (modules, replaced) = parent.map(|p| (p.modules.clone(), p.replaced.clone())).unwrap_or_default();
        if !modules.is_empty() {
            self.changed.insert(image);
        }
        // The kernel's walker has them already. Many are not published again for a child that ends soon.
        let published = (!modules.is_empty()).then(Instant::now);
        self.images.insert(image, Image { modules, replaced, published, ..Image::default() });
    }

    /// Handles the end of an image; its stacks may not have been read yet.
    pub fn died(&mut self, image: ProcessId) {
        self.maps.forget(image.0);
        self.changed.remove(&image);
        if let Some(known) = self.images.get_mut(&image) {
            known.gone = true;
        }
    }

    /// Whether a mapping is known, or its image has so many that it makes no difference.
    pub fn knows(&self, mapping: &Mapping) -> bool {
        let is_it = |m: &Module| (m.start, m.end, m.offset) == (mapping.start, mapping.end, mapping.offset);
        self.images.get(&mapping.process).is_some_and(|image| image.modules.len() >= MOST_PER_IMAGE)
            || self.code_from(mapping).and_then(|modules| modules.first()).is_some_and(is_it)
    }

    /// Whether code is known at the addresses of a mapping.
    pub fn has_code_at(&self, mapping: &Mapping) -> bool {
        self.code_from(mapping).and_then(|modules| modules.first()).is_some_and(|m| m.start < mapping.end)
    }

    /// Returns the modules of the mapping's image that end after its start.
    fn code_from(&self, mapping: &Mapping) -> Option<&[Module]> {
        let modules = &self.images.get(&mapping.process)?.modules;
        Some(&modules[modules.partition_point(|m| m.end <= mapping.start)..])
    }

    /// Handles a file mapped as code, or anonymous memory.
    pub fn mapped(&mut self, mapping: &Mapping, file: Option<FileId>, files: &Files) {
        let Some(image) = self.images.get_mut(&mapping.process) else { return };
        let Mapping { start, end, offset, .. } = *mapping;
        if let Some(id) = file
            && !self.on_demand
            && !self.files.contains_key(&id)
            && let Some(file) = files.open(id)
        {
            self.compiler.queue(mapping.process, Job { id, path: mapping.path.clone(), file, what: What::Whole });
            self.files.insert(id, Progress::Queued);
        }
        image.replace(start, end, mapping.time);
        // The kernel's walker could not use more. Stacks end in modules that are left out.
        if image.modules.len() >= MOST_PER_IMAGE {
            return;
        }
        let place = image.modules.partition_point(|m| m.start < start);
        Arc::make_mut(&mut image.modules).insert(place, Module { start, end, offset, file });
        self.changed.insert(mapping.process);
    }

    /// Waits for the table of a file that has replaced another: stacks are checked against both. Without the wait,
    /// stacks through the file end there until the table is ready.
    pub fn wait_for(&mut self, file: Option<FileId>) {
        while let Some(Progress::Queued) = file.and_then(|id| self.files.get(&id)) {
            match self.compiler.wait(self.wait) {
                Some(finished) => self.finish(finished),
                None => break,
            }
        }
    }

    /// Whether an address has the same rules in its current and its previous module.
    pub fn alike(&self, image: ProcessId, address: u64) -> bool {
        let Some(image) = self.images.get(&image) else { return false };
        let now = image.modules.iter().find(|module| module.holds(address));
        let before = image.replaced.iter().rev().map(|replaced| &replaced.module).find(|module| module.holds(address));
        let row = |module: Option<&Module>| module.and_then(|module| self.row(module, address));
        matches!((row(now), row(before)), (Some(now), Some(before)) if now.same_rules(&before))
    }

    fn row(&self, module: &Module, address: u64) -> Option<Row> {
        match self.lookup(module, address) {
            Lookup::Row(row) => Some(row),
            Lookup::NoRule | Lookup::Unknown => None,
        }
    }

    fn lookup(&self, module: &Module, address: u64) -> Lookup {
        let Some(id) = module.file else { return Lookup::NoRule };
        match self.files.get(&id) {
            None | Some(Progress::Queued) if self.on_demand => Lookup::Unknown,
            None | Some(Progress::Queued | Progress::Nothing) => Lookup::NoRule,
            Some(Progress::Growing(growing)) => {
                growing.used.set(self.round);
                growing.find(&Wanted::new(module, address))
            }
            Some(Progress::Ready(file, place)) => {
                let rows = place.map_or(&*file.table.rows, |place| Row::of_bytes(self.maps.rows(place)));
                let bias = file.segments.bias(module.start, module.offset);
                let pc = bias.and_then(|bias| address.wrapping_sub(bias).checked_sub(file.table.base));
                let pc = pc.and_then(|pc| u32::try_from(pc).ok());
                pc.and_then(|pc| Row::find(rows, pc)).map_or(Lookup::NoRule, Lookup::Row)
            }
        }
    }

    /// Whether tables of files that an image has mapped are being compiled, or are not published yet.
    pub fn is_compiling(&self, image: ProcessId) -> bool {
        let is_queued = |id: &FileId| matches!(self.files.get(id), Some(Progress::Queued));
        let files = self.images.get(&image).into_iter().flat_map(|image| image.modules.iter());
        self.changed.contains(&image) || files.filter_map(|module| module.file).any(|id| is_queued(&id))
    }

    /// Returns the number of files whose table could not be compiled because the process that reads them failed.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Publishes the mappings of an image again: the stacks that its threads remember become invalid.
    pub fn renew(&mut self, image: ProcessId) {
        if self.images.get(&image).is_some_and(|known| !known.gone) {
            self.changed.insert(image);
        }
    }

    /// Sends no new stacks of an image from now on.
    pub fn set_full(&mut self, image: ProcessId) {
        if self.maps.set_full(image.0) {
            self.renew(image);
        }
    }

    /// Returns the statistics of the tables compiled so far.
    pub fn tables(&self) -> Tables {
        self.tables
    }

    /// Collects finished tables and publishes changes to the kernel. Passes on the raw stacks that can be walked now. `all_read`:
    /// no raw stack of an image that has ended is still in the ring.
    pub fn settle(
        &mut self,
        files: &Files,
        all_read: bool,
        walked: &mut dyn FnMut(Walked),
        published: &mut dyn FnMut(ProcessId),
    ) {
        while let Some(finished) = self.compiler.finished() {
            self.finish(finished);
        }
        self.publish_growth();
        for image in std::mem::take(&mut self.changed) {
            if let Some(known) = self.images.get_mut(&image).filter(|i| !i.gone) {
                if known.is_published_often() {
                    self.changed.insert(image);
                    continue;
                }
                known.published = Some(Instant::now());
            }
            if let Some(known) = self.images.get(&image).filter(|i| !i.gone) {
                let codes: Vec<Code> = known.modules.iter().map(|m| self.code(m)).collect();
                match self.maps.set(image.0, &codes) {
                    Ok(false) => _ = self.changed.insert(image),
                    // If the map of ranges is full, all stacks of the image are walked here.
                    Ok(true) | Err(_) => published(image),
                }
            }
        }
        self.walk_raw(files, walked);
        let kept = !all_read && self.images.len() < MAX_IMAGES;
        let raw = &self.raw;
        self.images.retain(|id, image| !image.gone || kept || raw.iter().any(|waiting| waiting.raw.image == id.0));
        self.round += 1;
    }

    fn finish(&mut self, Finished { id, path, result, refused, failed, time }: Finished) {
        self.finished += 1;
        self.tables.time += time;
        self.failures += u64::from(failed.is_some());
        match (refused, failed) {
            (Some(why), _) => self.note_missing(&path, &sandbox::sentence(&why)),
            // It holds for all files.
            (_, Some(Failed::Gone)) if self.gone => {}
            (_, Some(why)) => {
                self.gone |= why == Failed::Gone;
                self.note_missing(&path, &why.to_string());
            }
            _ => {}
        }
        let progress = match result {
            None => Progress::Nothing,
            Some(Compiled::Pieces(pieces)) => {
                let mut growing = match self.files.remove(&id) {
                    Some(Progress::Growing(growing)) => growing,
                    _ => Growing::default(),
                };
                let before = growing.kept();
                growing.add(pieces);
                self.compiler.room.take(growing.kept());
                self.compiler.room.give_back(before);
                self.files.insert(id, Progress::Growing(growing));
                self.make_room();
                return;
            }
            Some(Compiled::Whole(mut unwindable)) => {
                self.tables.files += 1;
                self.tables.rows += unwindable.table.rows.len() as u64;
                let place = self.maps.add_rows(Row::bytes(&unwindable.table.rows)).ok().flatten();
                if place.is_some() {
                    // The kernel's copy is shared with us: one copy is enough.
                    unwindable.table.rows = Vec::new();
                }
                Progress::Ready(Arc::new(unwindable), place)
            }
        };
        self.files.insert(id, progress);
        self.changed_file(id);
    }

    fn note_missing(&mut self, path: &str, why: &str) {
        self.notes.push(format!("stacks end in {path}: its unwind table was not built: {why}"));
    }

    /// Copies grown tables to the kernel.
    fn publish_growth(&mut self) {
        if Instant::now() < self.next_growth {
            return;
        }
        let (mut bytes, mut grown) = (0, Vec::new());
        for (id, progress) in &mut self.files {
            let Progress::Growing(growing @ Growing { unpublished: true, .. }) = progress else { continue };
            growing.unpublished = false;
            let rows = Row::bytes(growing.rows());
            bytes += rows.len();
            // Without room, the kernel keeps its previous copy.
            if let Ok(Some(place)) = self.maps.add_rows(rows) {
                if let Some(previous) = growing.place.replace(place) {
                    self.maps.remove_rows(previous);
                }
                grown.push(*id);
            }
        }
        self.next_growth = Instant::now() + Duration::from_secs(bytes as u64) / GROWTH;
        for id in grown {
            self.changed_file(id);
        }
    }

    fn code(&self, module: &Module) -> Code {
        let Module { start, end, offset, file, .. } = *module;
        let (base, rows) = match file.map(|id| self.files.get(&id)) {
            Some(None) if self.on_demand => (0, None),
            None | Some(None | Some(Progress::Nothing)) => (0, Some(None)),
            Some(Some(Progress::Queued)) => (0, None),
            Some(Some(Progress::Growing(growing))) => match growing.code(start, offset) {
                Some((base, place)) => (base, Some(place)),
                None => (0, None),
            },
            Some(Some(Progress::Ready(file, place))) => match file.segments.bias(start, offset) {
                Some(bias) => (bias.wrapping_add(file.table.base), Some(*place)),
                None => (0, Some(None)),
            },
        };
        Code { start, end, base, rows }
    }
}

impl Progress {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Queued | Self::Growing(Growing { busy: true, .. }))
    }
}
