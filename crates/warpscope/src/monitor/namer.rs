//! Names for stacks and kernels, found on a thread of their own: a large library takes its time, and nobody should wait.
//!
//! A job is a small profile of one process, with the stacks or host functions in question and what was mapped there. The
//! files are opened for it and closed after it, so that nothing is kept; what is asked for together shares that.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use cuda::calls::KernelRef;
use model::{
    event::{Mapping, ProcessId, Stack, StackId, Symbol},
    profile::{ProcessInfo, Profile},
};
use symbols::{DebugFiles, Kept, Wishes};

use super::{health, state::State};
use crate::record::INJECTOR;

/// Jobs that may wait; others are asked for again later.
const ROOM: usize = 256;
/// Files that one job may hold open.
const MOST_FILES: usize = 256;

/// The thread's both ends.
pub struct Namer {
    jobs: mpsc::SyncSender<Job>,
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

/// What came of it.
pub enum Named {
    /// Frames, outermost first.
    Stack(ProcessId, StackId, Arc<[String]>),
    /// The kernel that a host function stands for.
    Stub(ProcessId, u64, String),
}

impl Namer {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Self> {
        let (jobs, todo) = mpsc::sync_channel::<Job>(ROOM);
        let (finished, done) = mpsc::channel();
        thread::Builder::new().name("names".into()).spawn(move || {
            health::take_time();
            for job in todo {
                for named in work(job) {
                    if finished.send(named).is_err() {
                        return;
                    }
                }
                health::give_memory_back();
            }
        })?;
        Ok(Self { jobs, done })
    }

    /// Asks for the names of stacks; `false` if there is no room now.
    pub fn ask_stacks(&self, process: ProcessId, stacks: &[Stack], state: &State) -> bool {
        let Some(known) = state.processes.get(&process) else { return true };
        let frames = || stacks.iter().flat_map(|stack| &stack.frames);
        let holds = |mapping: &&Mapping| {
            frames().any(|frame| match frame {
                model::event::Frame::User(address) => (mapping.start..mapping.end).contains(address),
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
            profile.stacks.insert(stack.id, stack.clone());
        }
        let what = What::Stacks(stacks.iter().map(|stack| stack.id).collect());
        self.jobs.try_send(Job { process, pid: known.pid, what, profile }).is_ok()
    }

    /// Asks which kernels host functions stand for; `false` if there is no room now.
    pub fn ask_stubs(&self, process: ProcessId, stubs: &[u64], state: &State) -> bool {
        let Some(known) = state.processes.get(&process) else { return true };
        let holds = |mapping: &&Mapping| stubs.iter().any(|stub| (mapping.start..mapping.end).contains(stub));
        let mut profile = profile(process, known.pid, known.mappings.iter().filter(holds));
        for stub in stubs {
            profile.calls.launches.insert((process, Some(KernelRef::HostStub(*stub))), 1);
        }
        let what = What::Stubs(stubs.to_vec());
        self.jobs.try_send(Job { process, pid: known.pid, what, profile }).is_ok()
    }

    /// What is done.
    pub fn done(&self) -> impl Iterator<Item = Named> {
        self.done.try_iter()
    }
}

fn profile<'a>(process: ProcessId, pid: u32, mappings: impl Iterator<Item = &'a Mapping>) -> Profile {
    let mut profile = Profile { mappings: mappings.cloned().collect(), ..Profile::default() };
    profile.processes.insert(process, ProcessInfo { pid, ..ProcessInfo::default() });
    profile
}

fn work(job: Job) -> Vec<Named> {
    let Job { process, pid, what, mut profile } = job;
    let mut kept = Kept::new(MOST_FILES);
    for mapping in &profile.mappings {
        kept.mapped(mapping, pid);
    }
    let wishes = Wishes { injector: INJECTOR, lines: true, debug_files: DebugFiles::default() };
    for symbol in symbols::resolve(&profile, &mut kept, &wishes).symbols {
        profile.symbols.add(symbol);
    }
    match what {
        What::Stacks(stacks) => {
            let named = |id: &StackId| profile.frames(*id).iter().map(|frame| frame.name.to_string()).collect();
            stacks.iter().map(|id| Named::Stack(process, *id, named(id))).collect()
        }
        What::Stubs(stubs) => {
            symbols::name_kernels(&mut profile);
            let name = |stub: &u64| profile.calls.names.get(process, KernelRef::HostStub(*stub));
            let named = |stub: &u64| Some(Named::Stub(process, *stub, name(stub)?.to_string()));
            stubs.iter().filter_map(named).collect()
        }
    }
}
