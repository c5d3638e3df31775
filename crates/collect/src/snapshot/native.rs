//! Walks copied native stacks: compiles only the functions on them.

use std::{cell::RefCell, collections::HashMap, io, time::Duration};

use bpf::MOST_FRAMES;
use model::event::ProcessId;
use symbols::{FileId, Files};
use unwind::{Ended, Found, Registers, Row};

use crate::stacks::unwinding::{
    growing::{Growing, Lookup},
    image::{Module, Wanted},
    tables::{Compiled, Compiler, Job, Unwindable, What},
};

/// How often stacks are walked again: each time at least one more function is known.
const MOST_ROUNDS: usize = 64;
/// The most functions of a stack that are compiled in advance.
const MOST_GUESSED: usize = 512;
/// The most memory of tables.
const TABLES: u64 = 512 << 20;
const THREADS: u64 = 2;
/// How long the tables of one round are waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The stack of a thread, copied.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub registers: Registers,
    /// From the stack pointer on.
    pub bytes: Vec<u8>,
}

/// The frames of a stack, innermost first: the address, and the stack pointer after what it has called returns.
pub(super) struct Walked {
    pub frames: Vec<(u64, u64)>,
    pub ended: Ended,
}

enum File {
    Growing(Growing),
    Whole(Unwindable),
    Nothing,
}

/// Walks stacks, each with the modules of its process. `files` are the open files of these.
pub(super) fn walk(stacks: &[(&[Module], &Copied)], files: &Files) -> io::Result<Vec<Walked>> {
    let mut walker = Walker { files: HashMap::new() };
    let compiler = Compiler::start(TABLES, THREADS)?;
    for round in 0..MOST_ROUNDS {
        let mut missing: HashMap<FileId, Vec<Wanted>> = HashMap::new();
        for (modules, copied) in stacks {
            let unknown = RefCell::new(Vec::new());
            walker.walk(modules, copied, &|module, address| unknown.borrow_mut().push((module.clone(), address)));
            let unknown = unknown.into_inner();
            let guessed = if round == 0 && !unknown.is_empty() { walker.guess(modules, copied) } else { Vec::new() };
            for (module, address) in unknown.into_iter().chain(guessed) {
                if let Some(id) = module.file {
                    missing.entry(id).or_default().push(Wanted::new(&module, address));
                }
            }
        }
        if missing.is_empty() {
            break;
        }
        walker.compile(missing, files, &compiler);
    }
    Ok(stacks.iter().map(|(modules, copied)| walker.walk(modules, copied, &|_, _| ())).collect())
}

struct Walker {
    files: HashMap<FileId, File>,
}

impl Walker {
    fn compile(&mut self, missing: HashMap<FileId, Vec<Wanted>>, files: &Files, compiler: &Compiler) {
        let mut queued = 0;
        for (id, wanted) in missing {
            match files.open(id) {
                Some(file) => {
                    let job = Job { id, path: files.path(id), file, what: What::Functions(wanted) };
                    compiler.queue(ProcessId(0), job);
                    queued += 1;
                }
                None => drop(self.files.insert(id, File::Nothing)),
            }
        }
        for _ in 0..queued {
            let Some(finished) = compiler.wait(PATIENCE) else { break };
            let known = self.files.entry(finished.id).or_insert_with(|| File::Growing(Growing::default()));
            match (finished.result, &mut *known) {
                (Some(Compiled::Pieces(pieces)), File::Growing(growing)) => growing.add(pieces),
                (Some(Compiled::Whole(whole)), _) => *known = File::Whole(whole),
                _ => *known = File::Nothing,
            }
        }
    }

    fn lookup(&self, module: &Module, address: u64) -> Lookup {
        let Some(id) = module.file else { return Lookup::NoRule };
        match self.files.get(&id) {
            None => Lookup::Unknown,
            Some(File::Nothing) => Lookup::NoRule,
            Some(File::Growing(growing)) => growing.find(&Wanted::new(module, address)),
            Some(File::Whole(whole)) => {
                let bias = whole.segments.bias(module.start, module.offset);
                let pc = bias.and_then(|bias| address.wrapping_sub(bias).checked_sub(whole.table.base));
                let pc = pc.and_then(|pc| u32::try_from(pc).ok());
                pc.and_then(|pc| Row::find(&whole.table.rows, pc)).map_or(Lookup::NoRule, Lookup::Row)
            }
        }
    }

    /// Returns the code addresses in a stack whose functions are not known: most are return addresses of this stack.
    fn guess(&self, modules: &[Module], copied: &Copied) -> Vec<(Module, u64)> {
        let words = copied.bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let called = words.filter_map(|word| {
            let address = word.checked_sub(1)?;
            let module = Module::around(modules, address)?;
            matches!(self.lookup(module, address), Lookup::Unknown).then(|| (module.clone(), address))
        });
        called.take(MOST_GUESSED).collect()
    }

    fn walk(&self, modules: &[Module], copied: &Copied, unknown: &dyn Fn(&Module, u64)) -> Walked {
        let find = |address: u64| {
            let Some(module) = Module::around(modules, address) else { return Found::NoMapping };
            match self.lookup(module, address) {
                Lookup::Row(row) => Found::Row(row),
                Lookup::NoRule => Found::NoRule,
                Lookup::Unknown => {
                    unknown(module, address);
                    Found::NoMapping
                }
            }
        };
        let base = copied.registers.sp();
        let read = |address: u64| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            Some(u64::from_le_bytes(copied.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        };
        let mut frames = Vec::new();
        let each = |address, sp| frames.push((address, sp));
        let ended = unwind::walk_frames(&copied.registers, MOST_FRAMES, find, read, each);
        Walked { frames, ended }
    }
}
