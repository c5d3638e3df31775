//! Keeps the kernel's stack walker supplied: which files each process has mapped, and the unwind tables of those files.
//!
//! Tables are compiled on a thread of their own; nobody waits for them. A stack taken before its tables are there comes as
//! raw memory and is walked here, with the same rules, once they are.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bpf::{Code, MOST_FRAMES, MOST_PER_IMAGE, Place, RawStack, UnwindMaps};
use elf::{Budget, Elf, Segments};
use model::event::{Mapping, ProcessId};
use symbols::{FileId, Files};
use unwind::{Ended, Found, Registers, Row, Table};

/// The most replaced modules of an image that are remembered.
const MOST_REPLACED: usize = 16;
/// The most raw stacks kept until their tables are there (some 33 KiB each).
pub const MOST_RAW: usize = 4096;

/// How long a recording waits for one table where it must. A file that takes longer lies on a disk that does not answer.
const LONGEST: Duration = Duration::from_secs(10);

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
    done: mpsc::Receiver<Finished>,
    /// Raw stacks, each with the round in which it came.
    raw: Vec<(u64, RawStack)>,
    /// Counts calls of `settle`: mappings and records of a process come at most a round apart.
    round: u64,
    raw_dropped: u64,
    /// Files whose table could not be made because of a panic.
    panics: u64,
    most_raw: usize,
    patience: Duration,
    made: Made,
    room: Arc<Room>,
    notes: Vec<String>,
}

/// The memory that tables may take, and what those that are kept take.
struct Room {
    limit: AtomicU64,
    kept: AtomicU64,
}

impl Room {
    fn left(&self) -> u64 {
        self.limit.load(Ordering::Relaxed).saturating_sub(self.kept.load(Ordering::Relaxed))
    }

    fn take(&self, rows: usize) {
        self.kept.fetch_add((rows * size_of::<Row>()) as u64, Ordering::Relaxed);
    }

    fn give_back(&self, rows: usize) {
        self.kept.fetch_sub((rows * size_of::<Row>()) as u64, Ordering::Relaxed);
    }
}

/// The tables made so far, and what they cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// Files that have a table.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// CPU time.
    pub time: Duration,
}

/// A file, its tables or why there are none, and the CPU time that went into them.
struct Finished {
    id: FileId,
    path: String,
    result: Option<Unwindable>,
    refused: Option<unwind::Error>,
    panicked: bool,
    time: Duration,
}

#[derive(Default)]
struct Image {
    /// Sorted by start, disjoint.
    modules: Vec<Module>,
    /// What other files have taken the place of, the last ones.
    replaced: Vec<Replaced>,
    gone: bool,
    /// When the kernel's walker got them last.
    published: Option<Instant>,
}

impl Image {
    /// Another file takes these addresses. The last modules that had to go are remembered.
    fn replace(&mut self, start: u64, end: u64, time: u64) {
        let gone = self.modules.extract_if(.., |m| m.end > start && m.start < end);
        self.replaced.extend(gone.map(|module| Replaced { module, until: time }));
        self.replaced.drain(..self.replaced.len().saturating_sub(MOST_REPLACED));
    }

    /// Its many modules were published a moment ago. Publishing costs time and, for two seconds, a second range of the walker's
    /// map, so that a process that maps code all the time would use up both.
    fn is_published_often(&self) -> bool {
        const MANY: usize = 1024;
        const EACH: Duration = Duration::from_micros(50);
        let pause = EACH * self.modules.len() as u32;
        self.modules.len() > MANY && self.published.is_some_and(|published| published.elapsed() < pause)
    }
}

#[derive(Clone)]
struct Replaced {
    module: Module,
    until: u64,
}

#[derive(Clone)]
struct Module {
    start: u64,
    end: u64,
    offset: u64,
    file: Option<FileId>,
}

impl Module {
    fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A file whose tables are being made, cannot be made, or are there.
enum Progress {
    Asked,
    Nothing,
    Ready(Arc<Unwindable>, Option<Place>),
}

struct Unwindable {
    segments: Segments,
    table: Table,
    /// How many rows it has, wherever they are.
    rows: usize,
}

struct Job {
    id: FileId,
    path: String,
    file: File,
}

impl Unwinding {
    /// Starts the thread that compiles tables. At most `most_raw` raw stacks are kept until theirs are there.
    pub fn start(maps: UnwindMaps, most_raw: usize) -> std::io::Result<Self> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (finished, done) = mpsc::channel();
        let room = Arc::new(Room { limit: AtomicU64::new(Budget::RECORDING.tables), kept: AtomicU64::new(0) });
        let shared = room.clone();
        thread::Builder::new().name("unwind-tables".into()).spawn(move || {
            // Tables can wait; the threads that are measured cannot.
            crate::command::priority::restore();
            for job in todo {
                if finished.send(job.run(|file| compile(file, &shared))).is_err() {
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
            round: 0,
            raw_dropped: 0,
            panics: 0,
            most_raw,
            patience: LONGEST,
            made: Made::default(),
            room,
            notes: Vec::new(),
        })
    }

    /// For whoever must not be held up: no table is waited for.
    pub fn without_waiting(self) -> Self {
        Self { patience: Duration::ZERO, ..self }
    }

    /// Limits the memory of all tables.
    pub fn within(self, budget: &Budget) -> Self {
        self.room.limit.store(budget.tables, Ordering::Relaxed);
        self
    }

    /// What could not be read since the last call, for the user.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
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
                let room = self.room.clone();
                self.finish(Job { id, path, file }.run(|file| compile(file, &room)));
            }
        }
    }

    /// A new image: a forked one has the mappings of its parent.
    pub fn born(&mut self, image: ProcessId, forked_from: Option<ProcessId>) {
        let parent = forked_from.and_then(|p| self.images.get(&p));
        let (modules, replaced) = parent.map(|p| (p.modules.clone(), p.replaced.clone())).unwrap_or_default();
        if !modules.is_empty() {
            self.changed.insert(image);
        }
        self.images.insert(image, Image { modules, replaced, ..Image::default() });
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
            let asked = self.jobs.send(Job { id, path: mapping.path.clone(), file });
            self.files.insert(id, if asked.is_ok() { Progress::Asked } else { Progress::Nothing });
        }
        image.replace(start, end, mapping.time);
        // The kernel's walker could not use more. Stacks end in what is left out.
        if image.modules.len() >= MOST_PER_IMAGE {
            return;
        }
        let place = image.modules.partition_point(|m| m.start < start);
        image.modules.insert(place, Module { start, end, offset, file });
        self.changed.insert(mapping.process);
    }

    /// Waits for the table of a file that has taken the place of another: stacks are judged by both. Where it is not waited
    /// for, those that pass through the file end there until it has come.
    pub fn wait_for(&mut self, file: Option<FileId>) {
        while let Some(Progress::Asked) = file.and_then(|id| self.files.get(&id)) {
            match self.done.recv_timeout(self.patience) {
                Ok(finished) => self.finish(finished),
                Err(_) => break,
            }
        }
    }

    /// Whether an address has the same rules in the module that has it now and in the one that had it before.
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

    /// A stack came as raw memory.
    pub fn raw(&mut self, raw: RawStack) {
        if self.raw.len() < self.most_raw {
            self.raw.push((self.round, raw));
        } else {
            self.raw_dropped += 1;
        }
    }

    /// Raw stacks that could not be kept.
    pub fn raw_dropped(&self) -> u64 {
        self.raw_dropped
    }

    /// Files whose table could not be made because of an error in warpscope.
    pub fn panics(&self) -> u64 {
        self.panics
    }

    /// The mappings of an image are told anew: what threads remember of its stacks no longer counts.
    pub fn renew(&mut self, image: ProcessId) {
        if self.images.get(&image).is_some_and(|known| !known.gone) {
            self.changed.insert(image);
        }
    }

    /// Forgets the tables of files that no image has mapped, once there are many or memory is short; returns which are still known.
    pub fn forget_unused(&mut self) -> HashSet<FileId> {
        const MANY: usize = 512;
        if self.files.len() > MANY || self.room.left() < self.room.limit.load(Ordering::Relaxed) / 2 {
            let images = self.images.values();
            let used: HashSet<FileId> = images.flat_map(|image| image.modules.iter().filter_map(|m| m.file)).collect();
            let (maps, room) = (&mut self.maps, &self.room);
            self.files.retain(|id, progress| {
                let keep = used.contains(id) || matches!(progress, Progress::Asked);
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

    /// The tables made so far.
    pub fn made(&self) -> Made {
        self.made
    }

    /// Takes finished tables and tells the kernel what has changed. Hands over the raw stacks that can be walked now.
    pub fn settle(&mut self, walked: &mut dyn FnMut(Walked), told: &mut dyn FnMut(ProcessId)) {
        while let Ok(finished) = self.done.try_recv() {
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
                // A full map is told by walks that end early.
                let _ = self.maps.set(image.0, &codes);
                told(image);
            }
        }
        let waiting = std::mem::take(&mut self.raw);
        for (came, raw) in waiting {
            if self.can_be_walked(ProcessId(raw.image), came) {
                walked(self.walk(raw));
            } else {
                self.raw.push((came, raw));
            }
        }
        let raw = &self.raw;
        self.images.retain(|id, image| !image.gone || raw.iter().any(|(_, r)| r.image == id.0));
        self.round += 1;
    }

    /// Waits for all tables that were asked for, and walks what is left.
    pub fn finish_all(&mut self, walked: &mut dyn FnMut(Walked)) {
        while !self.raw.is_empty() && self.files.values().any(|f| matches!(f, Progress::Asked)) {
            match self.done.recv_timeout(LONGEST) {
                Ok(finished) => self.finish(finished),
                Err(_) => break,
            }
            self.settle(walked, &mut |_| ());
        }
        for (_, raw) in std::mem::take(&mut self.raw) {
            walked(self.walk(raw));
        }
    }

    fn finish(&mut self, Finished { id, path, result, refused, panicked, time }: Finished) {
        self.made.time += time;
        self.panics += u64::from(panicked);
        if let Some(why @ (unwind::Error::Elf(elf::Error::TooLarge { .. }) | unwind::Error::TooMany { .. })) = refused {
            self.notes.push(format!("stacks end in {path}: its unwind table was not made: {why}"));
        }
        let progress = match result {
            None => Progress::Nothing,
            Some(mut unwindable) => {
                self.made.files += 1;
                self.made.rows += unwindable.table.rows.len() as u64;
                let place = self.maps.add_rows(Row::bytes(&unwindable.table.rows)).ok().flatten();
                if place.is_some() {
                    // They are shared with the kernel: once is enough.
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
            Some(Progress::Asked) => (0, None),
            Some(Progress::Ready(file, place)) => match file.segments.bias(module.start, module.offset) {
                Some(bias) => (bias.wrapping_add(file.table.base), Some(*place)),
                None => (0, Some(None)),
            },
        };
        Code { start: module.start, end: module.end, base, rows }
    }

    /// Whether waiting longer gives no better stack: all tables are made, or the process ended before its mappings were
    /// read, so that none will come. Without the second case such stacks would keep their slots for good.
    fn can_be_walked(&self, image: ProcessId, came: u64) -> bool {
        let image = self.images.get(&image);
        let modules = image.map_or(&[][..], |image| &image.modules);
        if modules.is_empty() {
            return image.is_none_or(|image| image.gone) && self.round > came;
        }
        modules.iter().filter_map(|m| m.file).all(|id| !matches!(self.files.get(&id), Some(Progress::Asked)))
    }

    fn walk(&self, raw: RawStack) -> Walked {
        let image = self.images.get(&ProcessId(raw.image));
        let (modules, replaced) = image.map_or((&[][..], &[][..]), |i| (&i.modules, &i.replaced));
        let find = |address: u64| {
            // What it had at the time may be there no more.
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

impl Job {
    /// Always comes to an end with a result: whoever waits for the file must not wait for ever.
    fn run(self, compile: impl FnOnce(&File) -> Result<Unwindable, unwind::Error>) -> Finished {
        let begin = cpu_time();
        let (result, refused, panicked) = match catch_unwind(AssertUnwindSafe(|| compile(&self.file))) {
            Ok(Ok(made)) => (Some(made), None, false),
            Ok(Err(why)) => (None, Some(why), false),
            Err(_) => (None, None, true),
        };
        let time = cpu_time().saturating_sub(begin);
        Finished { id: self.id, path: self.path, result, refused, panicked, time }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn compile(file: &File, room: &Room) -> Result<Unwindable, unwind::Error> {
    let elf = Elf::read(file)?;
    let table = Table::read(&elf, file, room.left())?;
    room.take(table.rows.len());
    Ok(Unwindable { rows: table.rows.len(), table, segments: elf.segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(image: u32) -> RawStack {
        RawStack { image, ..RawStack::default() }
    }

    /// Stacks of a process that ended before its mappings were read give their slots back, and so do those of a process
    /// that was never reported; a living process keeps its own until its mappings come. Needs root.
    #[test]
    fn slots_of_the_dead_are_given_back() {
        const SLOTS: usize = 4;
        let recorder = bpf::Recorder::start(&bpf::Options { ring_bytes: 1 << 20, ..bpf::Options::default() });
        let maps = recorder.expect("BPF programs load").unwind_maps().expect("maps");
        let mut unwinding = Unwinding::start(maps, SLOTS).expect("a thread");
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

    /// Check that a panic while a table is made ends the job and not the thread, and is counted.
    #[test]
    fn a_panic_is_a_result() {
        let mut files = Files::new(1);
        let id = files.expected("/proc/self/exe").expect("it can be opened");
        let file = File::open("/proc/self/exe").expect("it is there");
        let finished = Job { id, path: String::new(), file }.run(|_| std::panic::resume_unwind(Box::new("stopped")));
        assert!(finished.panicked && finished.result.is_none());
    }

    /// Check that one mapping over many modules leaves no more of them behind than are kept.
    #[test]
    fn replaced_modules_are_bounded() {
        let module = |start: u64| Module { start, end: start + 1, offset: 0, file: None };
        let mut image = Image { modules: (0..1_000).map(module).collect(), ..Image::default() };
        image.replace(0, 900, 7);
        assert_eq!((image.modules.len(), image.replaced.len()), (100, MOST_REPLACED));
        assert_eq!(image.replaced.last().map(|replaced| replaced.module.start), Some(899), "the last ones");
    }
}
