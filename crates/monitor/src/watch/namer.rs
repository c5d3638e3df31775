//! Resolves names of stacks and kernels on a separate thread: a large library takes time, and nothing should wait for
//! it.
//!
//! A job is a small profile of one process, with the stacks or host functions to resolve and the files mapped there. Kernel handles
//! are named from the memory of a process, on another thread: a process can block reads of its memory.
//! Files are opened for the job and closed after it. Only names are kept, so that the next process that runs the same
//! code costs nothing.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    thread,
};

use collect::{
    INJECTOR,
    calls::{
        file::{self, Identity, Stamp},
        objects::{Objects, Question},
    },
    command::priority,
};
use cuda::calls::KernelRef;
use elf::Budget;
use model::{
    event::{Frame, FrameKind, Mapping, NamedFrame, ProcessId, Stack, StackId, Symbol},
    profile::{ProcessInfo, Profile},
};
use symbols::{DebugFiles, Kept};
use text::user_code::is_user_file;

use super::{health, state::State};

/// The maximum number of queued jobs; others are requested again later.
const ROOM: usize = 256;
/// The maximum number of files that one job may hold open.
const MAX_FILES: usize = 256;
/// The maximum number of places whose names are kept.
const MAX_PLACES: usize = 4096;

/// Both ends of the channels to the thread.
pub struct Namer {
    jobs: mpsc::SyncSender<Job>,
    questions: mpsc::SyncSender<Question>,
    done: mpsc::Receiver<Named>,
}

struct Job {
    process: ProcessId,
    pid: u32,
    what: What,
    profile: Profile,
}

enum What {
    Stacks(Vec<StackId>),
    Stubs(Vec<u64>),
}

impl What {
    /// Whether lines are needed: a kernel has only a name, not the line of its host function.
    fn lines(&self) -> bool {
        matches!(self, Self::Stacks(_))
    }
}

/// The result of a job.
pub enum Named {
    /// Frames, outermost first.
    Stack(ProcessId, StackId, Arc<[crate::snapshot::Frame]>),
    /// The kernel that a host function launches, if known.
    Stub(ProcessId, u64, Option<String>),
    /// The requested handles of a process, and the kernels of these and others, by their mangled names.
    Handles(ProcessId, Vec<u64>, Vec<(u64, String)>),
    /// What could not be read.
    Note(String),
}

impl Namer {
    /// Starts the threads.
    pub fn start() -> std::io::Result<Self> {
        let (jobs, todo) = mpsc::sync_channel::<Job>(ROOM);
        let (questions, asked) = mpsc::sync_channel::<Question>(ROOM);
        let (finished, done) = mpsc::channel();
        let answers = finished.clone();
        thread::Builder::new().name("handles".into()).spawn(move || {
            priority::lower();
            let mut objects = Objects::default();
            for question in asked {
                if answers.send(kernels(question, &mut objects)).is_err() {
                    return;
                }
            }
        })?;
        thread::Builder::new().name("names".into()).spawn(move || {
            priority::lower();
            let mut known = Known::default();
            for job in todo {
                for named in work(job, &mut known) {
                    if finished.send(named).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(Self { jobs, questions, done })
    }

    /// Requests the names of stacks; returns `false` if the queue is full.
    pub fn request_stacks(&self, process: ProcessId, stacks: &[Stack], state: &State) -> bool {
        let Some(known) = state.processes.get(&process) else { return true };
        let frames = || stacks.iter().flat_map(|stack| &stack.frames);
        let holds = |mapping: &&Mapping| {
            frames().any(|frame| match frame {
                Frame::User(address) => (mapping.start..mapping.end).contains(address),
                _ => false,
            })
        };
        let mut profile = profile(process, known.pid, known.mappings.iter().filter(holds));
        for frame in frames() {
            if let Some(names) = state.python_names(*frame) {
                let (process, names) = (frame.named_in(process), names.to_vec());
                profile.symbols.add(Symbol { process, frame: *frame, since: 0, names });
            }
        }
        for stack in stacks {
            profile.stacks.insert(stack);
        }
        let what = What::Stacks(stacks.iter().map(|stack| stack.id).collect());
        self.jobs.try_send(Job { process, pid: known.pid, what, profile }).is_ok()
    }

    /// Requests the kernels that host functions launch; returns `false` if the queue is full.
    pub fn request_stubs(&self, process: ProcessId, stubs: &[u64], state: &State) -> bool {
        let Some(known) = state.processes.get(&process) else { return true };
        let holds = |mapping: &&Mapping| stubs.iter().any(|stub| (mapping.start..mapping.end).contains(stub));
        let mut profile = profile(process, known.pid, known.mappings.iter().filter(holds));
        for stub in stubs {
            profile.calls.launches.insert((process, Some(KernelRef::HostStub(*stub))), 1);
        }
        let what = What::Stubs(stubs.to_vec());
        self.jobs.try_send(Job { process, pid: known.pid, what, profile }).is_ok()
    }

    /// Requests the kernels of handles; returns `false` if the queue is full.
    pub fn request_handles(&self, question: Question) -> bool {
        self.questions.try_send(question).is_ok()
    }

    /// Returns the finished results.
    pub fn done(&self) -> impl Iterator<Item = Named> {
        self.done.try_iter()
    }
}

fn profile<'a>(process: ProcessId, pid: u32, mappings: impl Iterator<Item = &'a Mapping>) -> Profile {
    let mut profile = Profile { mappings: mappings.cloned().collect(), ..Profile::default() };
    profile.processes.insert(process, ProcessInfo { pid, ..ProcessInfo::default() });
    profile
}

/// A place in a file with the file's version at the time of the request, and whether its line is needed too.
type Place = (Identity, Stamp, u64, bool);

/// The names of requested places, for all processes.
#[derive(Default)]
struct Known(HashMap<Place, Vec<NamedFrame>>);

impl Known {
    fn learn(&mut self, place: Place, names: Vec<NamedFrame>) {
        if self.0.len() >= MAX_PLACES {
            self.0.clear();
        }
        self.0.insert(place, names);
    }
}

/// Maps each address of a job to its place in a file. An address outside any file may mean something else in the next
/// process.
fn places(what: &What, profile: &Profile, kept: &mut Kept, pid: u32) -> HashMap<Frame, Place> {
    let frames: Vec<Frame> = match what {
        What::Stacks(_) => profile.stacks.iter().flat_map(|stack| stack.frames()).collect(),
        What::Stubs(stubs) => stubs.iter().map(|stub| Frame::User(*stub)).collect(),
    };
    let mut places = HashMap::new();
    for mapping in &profile.mappings {
        let file = kept.mapped(mapping, pid).and_then(|id| kept.files.open(id));
        let Some(info) = file.and_then(|file| file.metadata().ok()) else { continue };
        let (identity, stamp) = file::known_by(&info);
        for frame in &frames {
            if let Frame::User(address) = frame
                && (mapping.start..mapping.end).contains(address)
            {
                places.insert(*frame, (identity, stamp, address - mapping.start + mapping.offset, what.lines()));
            }
        }
    }
    places
}

fn work(job: Job, known: &mut Known) -> Vec<Named> {
    let Job { process, pid, what, mut profile } = job;
    let mut kept = Kept::new(MAX_FILES);
    let places = places(&what, &profile, &mut kept, pid);
    for (frame, place) in &places {
        if let Some(names) = known.0.get(place) {
            profile.symbols.add(Symbol { process, frame: *frame, since: 0, names: names.clone() });
        }
    }
    let debug_files = DebugFiles::default();
    let naming = symbols::Options { injector: INJECTOR, lines: what.lines(), debug_files, budget: Budget::DAEMON };
    let symbols::Named { symbols: found, notes, .. } = symbols::resolve(&profile, &mut kept, &naming);
    let any = !found.is_empty();
    for symbol in found {
        if let Some(place) = places.get(&symbol.frame).filter(|_| symbol.process == process) {
            known.learn(*place, symbol.names.clone());
        }
        profile.symbols.add(symbol);
    }
    if any {
        drop(kept);
        health::trim_heap();
    }
    let notes = notes.into_iter().map(Named::Note);
    match what {
        What::Stacks(stacks) => {
            let frame = |frame: &NamedFrame| crate::snapshot::Frame {
                name: frame.name.to_string(),
                of_library: frame.kind == FrameKind::Python && !is_user_file(&frame.module),
            };
            let named = |id: &StackId| profile.frames(*id).iter().map(frame).collect();
            stacks.iter().map(|id| Named::Stack(process, *id, named(id))).chain(notes).collect()
        }
        What::Stubs(stubs) => {
            symbols::name_kernels(&mut profile);
            let name = |stub: &u64| profile.calls.names.get(process, KernelRef::HostStub(*stub));
            let named = |stub: &u64| Named::Stub(process, *stub, name(stub).map(|name| name.to_string()));
            stubs.iter().map(named).chain(notes).collect()
        }
    }
}

/// Names the kernels of handles.
fn kernels(question: Question, objects: &mut Objects) -> Named {
    let found = objects.names(&question, &Budget::DAEMON);
    let kernels = found.iter().filter_map(symbols::handle_kernel);
    let kernels = kernels.map(|(handle, name)| (handle, name.to_owned())).collect();
    drop(found);
    health::trim_heap();
    Named::Handles(question.image, question.unnamed, kernels)
}
