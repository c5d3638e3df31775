//! Supplies the kernel's stack walker: which files each process has mapped, and the unwind tables of those files.
//!
//! Tables are compiled on a separate thread without blocking anything. A stack taken before its tables are ready
//! arrives as raw memory and is walked here, with the same rules, once they are.

mod image;
mod tables;

pub use tables::Tables;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bpf::{Code, MOST_FRAMES, MOST_PER_IMAGE, Place, RawStack, UnwindMaps};
use elf::Budget;
use model::event::{Mapping, ProcessId};
use symbols::{FileId, Files};
use unwind::{Ended, Found, Registers, Row};

use image::{Image, Module};
use tables::{Compiler, Finished, Job, Unwindable};

/// How long the end of a recording waits for a table. A file that takes longer is on a disk that does not respond.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// A stack walked in user space.
pub struct Walked {
    /// As it was taken.
    pub raw: RawStack,
    /// User addresses, innermost first.
    pub user: Vec<u64>,
    /// Why the walk ended.
    pub ended: Ended,
}

/// The state of the walker.
pub struct Unwinding {
    maps: UnwindMaps,
    files: HashMap<FileId, Progress>,
    images: HashMap<ProcessId, Image>,
    changed: HashSet<ProcessId>,
    compiler: Compiler,
    /// Raw stacks, each with the round in which it arrived.
    raw: Vec<(u64, RawStack)>,
    /// Counts calls of `settle`: mappings and records of a process arrive at most a round apart.
    round: u64,
    raw_dropped: u64,
    /// Files whose table could not be compiled because of a panic.
    panics: u64,
    most_raw: usize,
    /// How long to wait for a required table.
    wait: Duration,
    tables: Tables,
    notes: Vec<String>,
}

/// A file whose tables are being compiled, cannot be compiled, or are ready.
enum Progress {
    Queued,
    Nothing,
    Ready(Arc<Unwindable>, Option<Place>),
}

impl Unwinding {
    /// Starts the thread that compiles tables, which may use as much memory as `budget` allows. At most `most_raw` raw
    /// stacks are kept until their tables are ready; a required table is waited for at most `wait`.
    pub fn start(maps: UnwindMaps, most_raw: usize, wait: Duration, budget: &Budget) -> std::io::Result<Self> {
        Ok(Self {
            maps,
            files: HashMap::new(),
            images: HashMap::new(),
            changed: HashSet::new(),
            compiler: Compiler::start(budget.tables)?,
            raw: Vec::new(),
            round: 0,
            raw_dropped: 0,
            panics: 0,
            most_raw,
            wait,
            tables: Tables::default(),
            notes: Vec::new(),
        })
    }

    /// Returns notes for the user about files that could not be read since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Compiles the tables of files that the command will certainly map, before it starts: those that we have mapped
    /// ourselves, such as the C library, and those in `sure`.
    pub fn prepare(&mut self, files: &mut Files, sure: &[PathBuf]) {
        let own = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let own =
            own.lines().filter(|l| l.contains(" r-xp ")).filter_map(|l| Some(l[l.find(['/', '['])?..].to_owned()));
        let sure = sure.iter().filter_map(|p| p.canonicalize().ok()).map(|p| p.to_string_lossy().into_owned());
        for path in own.chain(sure).filter(|path| Files::is_file(path)).collect::<HashSet<_>>() {
            let Some(id) = files.expected(&path) else { continue };
            if let Some(file) = files.open(id) {
                self.finish(self.compiler.compile(Job { id, path, file }));
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
        self.images.insert(image, Image { modules, replaced, ..Image::default() });
    }

    /// Handles the end of an image; its stacks may not have been read yet.
    pub fn died(&mut self, image: ProcessId) {
        self.maps.forget(image.0);
        self.changed.remove(&image);
        if let Some(known) = self.images.get_mut(&image) {
            known.gone = true;
        }
    }

    /// Whether a mapping is known.
    pub fn knows(&self, mapping: &Mapping) -> bool {
        let is_it = |m: &Module| (m.start, m.end, m.offset) == (mapping.start, mapping.end, mapping.offset);
        self.images.get(&mapping.process).is_some_and(|image| image.modules.iter().any(is_it))
    }

    /// Handles a file mapped as code, or anonymous memory.
    pub fn mapped(&mut self, mapping: &Mapping, file: Option<FileId>, files: &Files) {
        let Some(image) = self.images.get_mut(&mapping.process) else { return };
        let Mapping { start, end, offset, .. } = *mapping;
        if let Some(id) = file
            && !self.files.contains_key(&id)
            && let Some(file) = files.open(id)
        {
            let queued = self.compiler.queue(Job { id, path: mapping.path.clone(), file });
            self.files.insert(id, if queued { Progress::Queued } else { Progress::Nothing });
        }
        image.replace(start, end, mapping.time);
        // The kernel's walker could not use more. Stacks end in modules that are left out.
        if image.modules.len() >= MOST_PER_IMAGE {
            return;
        }
        let place = image.modules.partition_point(|m| m.start < start);
        image.modules.insert(place, Module { start, end, offset, file });
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
        let Progress::Ready(file, place) = self.files.get(&module.file?)? else { return None };
        let rows = place.map_or(&*file.table.rows, |place| Row::of_bytes(self.maps.rows(place)));
        let bias = file.segments.bias(module.start, module.offset)?;
        let pc = u32::try_from(address.wrapping_sub(bias).checked_sub(file.table.base)?).ok()?;
        Row::find(rows, pc)
    }

    /// Adds a stack that arrived as raw memory.
    pub fn raw(&mut self, raw: RawStack) {
        if self.raw.len() < self.most_raw {
            self.raw.push((self.round, raw));
        } else {
            self.raw_dropped += 1;
        }
    }

    /// Returns the number of raw stacks that could not be kept.
    pub fn raw_dropped(&self) -> u64 {
        self.raw_dropped
    }

    /// Returns the number of files whose table could not be compiled because of an error in warpscope.
    pub fn panics(&self) -> u64 {
        self.panics
    }

    /// Publishes the mappings of an image again: the stacks that its threads remember become invalid.
    pub fn renew(&mut self, image: ProcessId) {
        if self.images.get(&image).is_some_and(|known| !known.gone) {
            self.changed.insert(image);
        }
    }

    /// Removes the tables of files that no image has mapped, once there are many or memory is short; returns the files
    /// still known.
    pub fn forget_unused(&mut self) -> HashSet<FileId> {
        const MANY: usize = 512;
        if self.files.len() > MANY || self.compiler.room.is_short() {
            let images = self.images.values();
            let used: HashSet<FileId> = images.flat_map(|image| image.modules.iter().filter_map(|m| m.file)).collect();
            let (maps, room) = (&mut self.maps, &self.compiler.room);
            self.files.retain(|id, progress| {
                let keep = used.contains(id) || matches!(progress, Progress::Queued);
                if let (false, Progress::Ready(file, place)) = (keep, progress) {
                    room.give_back(file.rows);
                    if let Some(place) = place {
                        maps.remove_rows(*place);
                    }
                }
                keep
            });
        }
        self.files.keys().copied().collect()
    }

    /// Returns the statistics of the tables compiled so far.
    pub fn tables(&self) -> Tables {
        self.tables
    }

    /// Collects finished tables and publishes changes to the kernel. Passes on the raw stacks that can be walked now.
    pub fn settle(&mut self, walked: &mut dyn FnMut(Walked), published: &mut dyn FnMut(ProcessId)) {
        while let Some(finished) = self.compiler.finished() {
            self.finish(finished);
        }
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
                // If the map is full, walks end early and report it.
                let _ = self.maps.set(image.0, &codes);
                published(image);
            }
        }
        let waiting = std::mem::take(&mut self.raw);
        for (arrived, raw) in waiting {
            if self.can_be_walked(ProcessId(raw.image), arrived) {
                walked(self.walk(raw));
            } else {
                self.raw.push((arrived, raw));
            }
        }
        let raw = &self.raw;
        self.images.retain(|id, image| !image.gone || raw.iter().any(|(_, r)| r.image == id.0));
        self.round += 1;
    }

    /// Waits for all requested tables, and walks the remaining stacks.
    pub fn finish_all(&mut self, walked: &mut dyn FnMut(Walked)) {
        while !self.raw.is_empty() && self.files.values().any(|f| matches!(f, Progress::Queued)) {
            match self.compiler.wait(LAST_WAIT) {
                Some(finished) => self.finish(finished),
                None => break,
            }
            self.settle(walked, &mut |_| ());
        }
        for (_, raw) in std::mem::take(&mut self.raw) {
            walked(self.walk(raw));
        }
    }

    fn finish(&mut self, Finished { id, path, result, refused, panicked, time }: Finished) {
        self.tables.time += time;
        self.panics += u64::from(panicked);
        if let Some(why @ (unwind::Error::Elf(elf::Error::TooLarge { .. }) | unwind::Error::TooMany { .. })) = refused {
            self.notes.push(format!("stacks end in {path}: its unwind table was not made: {why}"));
        }
        let progress = match result {
            None => Progress::Nothing,
            Some(mut unwindable) => {
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
        let users = self.images.iter().filter(|(_, i)| i.modules.iter().any(|m| m.file == Some(id)));
        self.changed.extend(users.map(|(image, _)| *image));
        self.files.insert(id, progress);
    }

    fn code(&self, module: &Module) -> Code {
        let (base, rows) = match module.file.and_then(|id| self.files.get(&id)) {
            None | Some(Progress::Nothing) => (0, Some(None)),
            Some(Progress::Queued) => (0, None),
            Some(Progress::Ready(file, place)) => match file.segments.bias(module.start, module.offset) {
                Some(bias) => (bias.wrapping_add(file.table.base), Some(*place)),
                None => (0, Some(None)),
            },
        };
        Code { start: module.start, end: module.end, base, rows }
    }

    /// Whether waiting longer gives no better stack: all tables are compiled, or the process ended before its mappings
    /// were read, so that none will arrive. Without the second case such stacks would keep their slots forever.
    fn can_be_walked(&self, image: ProcessId, arrived: u64) -> bool {
        let image = self.images.get(&image);
        let modules = image.map_or(&[][..], |image| &image.modules);
        if modules.is_empty() {
            return image.is_none_or(|image| image.gone) && self.round > arrived;
        }
        modules.iter().filter_map(|m| m.file).all(|id| !matches!(self.files.get(&id), Some(Progress::Queued)))
    }

    fn walk(&self, raw: RawStack) -> Walked {
        let image = self.images.get(&ProcessId(raw.image));
        let (modules, replaced) = image.map_or((&[][..], &[][..]), |i| (&i.modules, &i.replaced));
        let find = |address: u64| {
            // A module mapped at the time may have been replaced since.
            let before = replaced.iter().find(|r| raw.time < r.until && r.module.holds(address)).map(|r| &r.module);
            let below = modules.partition_point(|m| m.start <= address);
            let module = before.or_else(|| below.checked_sub(1).map(|i| &modules[i]).filter(|m| m.holds(address)));
            let Some(module) = module else { return Found::NoMapping };
            self.row(module, address).map_or(Found::NoRule, Found::Row)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(image: u32) -> RawStack {
        RawStack { image, ..RawStack::default() }
    }

    /// Check that stacks of a process that ended before its mappings were read release their slots, as do those of a
    /// process that was never reported, and that a live process keeps its own until its mappings arrive. Needs root.
    #[test]
    fn slots_of_ended_processes_are_released() {
        const SLOTS: usize = 4;
        let recorder = bpf::Recorder::start(&bpf::Options { ring_bytes: 1 << 20, ..bpf::Options::default() });
        let maps = recorder.expect("BPF programs load").unwind_maps().expect("maps");
        let mut unwinding = Unwinding::start(maps, SLOTS, Duration::ZERO, &Budget::RECORDING).expect("a thread");
        unwinding.born(ProcessId(1), None);
        unwinding.born(ProcessId(2), None);
        for image in [1, 1, 2, 99] {
            unwinding.raw(raw(image));
        }
        unwinding.died(ProcessId(1));
        let mut walked = Vec::new();
        for _ in 0..3 {
            unwinding.settle(&mut |stack| walked.push(stack.raw.image), &mut |_| ());
        }
        assert_eq!(walked, [1, 1, 99]);
        for _ in 0..SLOTS {
            unwinding.raw(raw(2));
        }
        assert_eq!(unwinding.raw_dropped(), 1, "the living process still holds one slot");
    }
}
