//! Stacks that arrived as raw memory, and are walked here once the tables of their code are ready.

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use bpf::{MOST_FRAMES, RawStack};
use model::event::ProcessId;
use symbols::{FileId, Files};
use unwind::{Ended, Found, Registers};

use super::{
    Progress, Unwinding,
    growing::{Growing, Lookup},
    image::{Module, Wanted},
    tables::{Job, What},
    waiting::{Waiting, Walked},
};

/// How long the end of a recording waits for tables. A file that takes longer is on a disk that does not respond.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// How long one of them is waited for, between looks at what else happens.
const WAIT: Duration = Duration::from_millis(100);
/// How often a raw stack is walked again: each time at least one more of its functions is known.
const MOST_TRIES: usize = 4 * MOST_FRAMES;
/// The most memory of a waiting stack on average. A few deep ones have more.
const MOST_BYTES: usize = 32 << 10;
/// The most functions compiled for a raw stack in advance.
const MOST_GUESSED: usize = 1024;

/// Functions to compile, by file, and a process that has mapped it.
type Missing = HashMap<FileId, (ProcessId, Vec<Wanted>)>;

impl Unwinding {
    /// Adds a stack that arrived as raw memory.
    pub fn raw(&mut self, raw: RawStack) {
        let bytes = self.raw_bytes + raw.bytes.len();
        if self.raw.len() < self.most_raw && bytes <= self.most_raw * MOST_BYTES {
            self.raw_bytes = bytes;
            self.raw.push(Waiting { raw, arrived: self.round, tries: 0, seen: 0 });
        } else {
            self.raw_dropped += 1;
        }
    }

    /// Returns the number of raw stacks that could not be kept.
    pub fn raw_dropped(&self) -> u64 {
        self.raw_dropped
    }

    /// Passes on the raw stacks that can be walked now, and requests what the others need.
    pub(super) fn walk_raw(&mut self, files: &Files, walked: &mut dyn FnMut(Walked)) {
        let mut missing = HashMap::new();
        for waiting in std::mem::take(&mut self.raw) {
            match self.attempt(waiting, &mut missing) {
                ControlFlow::Break(stack) => walked(stack),
                ControlFlow::Continue(waiting) => self.raw.push(waiting),
            }
        }
        self.raw_bytes = self.raw.iter().map(|waiting| waiting.raw.bytes.len()).sum();
        self.request(missing, files);
    }

    /// Waits for all requested tables, for a limited time and until `stop`, and walks the remaining stacks.
    pub fn finish_all(&mut self, files: &Files, stop: &dyn Fn() -> bool, walked: &mut dyn FnMut(Walked)) {
        let begun = Instant::now();
        let over = || begun.elapsed() > LAST_WAIT || stop();
        while !self.raw.is_empty() && self.files.values().any(Progress::is_pending) && !over() {
            if let Some(finished) = self.compiler.wait(WAIT) {
                self.finish(finished);
            }
            self.settle(files, true, walked, &mut |_| ());
        }
        for waiting in std::mem::take(&mut self.raw) {
            walked(self.walk(waiting.raw));
        }
    }

    /// Walks a raw stack, if waiting longer gives no better one: all tables are compiled, or the process ended before
    /// its mappings were read, so that none will arrive. Without the second case such stacks would keep their slots
    /// forever. Otherwise it continues to wait.
    fn attempt(&self, mut waiting: Waiting, missing: &mut Missing) -> ControlFlow<Walked, Waiting> {
        let image = self.images.get(&ProcessId(waiting.raw.image));
        let modules = image.map_or(&[][..], |image| &image.modules);
        if modules.is_empty() {
            let ended = image.is_none_or(|image| image.gone) && self.round > waiting.arrived;
            return if ended { ControlFlow::Break(self.walk(waiting.raw)) } else { ControlFlow::Continue(waiting) };
        }
        if !self.on_demand {
            let is_queued = |id: &FileId| matches!(self.files.get(id), Some(Progress::Queued));
            let ready = !modules.iter().filter_map(|m| m.file).any(|id| is_queued(&id));
            return if ready { ControlFlow::Break(self.walk(waiting.raw)) } else { ControlFlow::Continue(waiting) };
        }
        let again = waiting.tries > 0;
        if again && waiting.seen == self.finished {
            return ControlFlow::Continue(waiting);
        }
        (waiting.tries, waiting.seen) = (waiting.tries + 1, self.finished);
        let met = RefCell::new(Vec::new());
        let (user, ended) =
            self.walk_through(&waiting.raw, &|module, address| met.borrow_mut().push((module, address)));
        let met = met.into_inner();
        if met.is_empty() || waiting.tries > MOST_TRIES {
            return ControlFlow::Break(Walked { raw: waiting.raw, user, ended });
        }
        let guessed = if again { Vec::new() } else { self.guess(modules, &waiting.raw) };
        for (module, address) in met.into_iter().map(|(module, address)| (module.clone(), address)).chain(guessed) {
            if let Some(id) = module.file {
                let process = ProcessId(waiting.raw.image);
                missing.entry(id).or_insert((process, Vec::new())).1.push(Wanted::new(&module, address));
            }
        }
        ControlFlow::Continue(waiting)
    }

    /// Returns the code addresses in a stack's memory whose functions are not known. Most of them are return addresses
    /// of this stack: their functions are compiled together, not one after another.
    fn guess(&self, modules: &[Module], raw: &RawStack) -> Vec<(Module, u64)> {
        let words = raw.bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let called = words.filter_map(|word| {
            let address = word.checked_sub(1)?;
            let module = Module::around(modules, address)?;
            matches!(self.lookup(module, address), Lookup::Unknown).then(|| (module.clone(), address))
        });
        called.take(MOST_GUESSED).collect()
    }

    /// Compiles the functions at these addresses. A file whose functions are already being compiled has its turn when a
    /// stack needs it again.
    fn request(&mut self, missing: Missing, files: &Files) {
        for (id, (process, wanted)) in missing {
            let progress = self.files.entry(id).or_insert_with(|| Progress::Growing(Growing::default()));
            let Progress::Growing(growing) = progress else { continue };
            if growing.busy {
                continue;
            }
            let job = files.open(id).map(|file| Job { id, path: files.path(id), file, what: What::Functions(wanted) });
            growing.busy = job.map(|job| self.compiler.queue(process, job)).is_some();
            if !growing.busy {
                // A stack must not wait for it.
                self.files.insert(id, Progress::Nothing);
                self.finished += 1;
            }
        }
    }

    fn walk(&self, raw: RawStack) -> Walked {
        let (user, ended) = self.walk_through(&raw, &|_, _| ());
        Walked { raw, user, ended }
    }

    /// Walks a stack. Passes addresses whose functions are not known, where the walk ends, to `unknown`.
    fn walk_through<'a>(&'a self, raw: &RawStack, unknown: &dyn Fn(&'a Module, u64)) -> (Vec<u64>, Ended) {
        let image = self.images.get(&ProcessId(raw.image));
        let (modules, replaced) = image.map_or((&[][..], &[][..]), |i| (&i.modules, &i.replaced));
        let find = |address: u64| {
            // A module mapped at the time may have been replaced since.
            let before = replaced.iter().find(|r| raw.time < r.until && r.module.holds(address)).map(|r| &r.module);
            let Some(module) = before.or_else(|| Module::around(modules, address)) else { return Found::NoMapping };
            match self.lookup(module, address) {
                Lookup::Row(row) => Found::Row(row),
                Lookup::NoRule => Found::NoRule,
                Lookup::Unknown => {
                    unknown(module, address);
                    Found::NoMapping
                }
            }
        };
        let registers = Registers { ip: raw.ip, general: raw.general };
        let base = registers.sp() & !4095;
        let read = |address: u64| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            Some(u64::from_le_bytes(raw.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        };
        unwind::walk(&registers, MOST_FRAMES, find, read)
    }
}
