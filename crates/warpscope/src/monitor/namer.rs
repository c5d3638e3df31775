//! Names for stacks and kernels, found on a thread of their own: a large library takes its time, and nobody should wait.
//!
//! A job is a small profile of one process, with the stack or the host function in question and what was mapped there. The
//! files are opened for it and closed after it, so that nothing is kept.

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
    Stack(StackId),
    Stub(u64),
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
                if finished.send_some(work(job)).is_err() {
                    break;
                }
                health::give_memory_back();
            }
        })?;
        Ok(Self { jobs, done })
    }

    /// Asks for the names of a stack; `false` if there is no room now.
    pub fn ask_stack(&self, process: ProcessId, stack: &Stack, state: &State) -> bool {
        let Some(known) = state.processes.get(&process) else { return true };
        let holds = |mapping: &&Mapping| {
            stack.frames.iter().any(|frame| match frame {
                model::event::Frame::User(address) => (mapping.start..mapping.end).contains(address),
                _ => false,
            })
        };
        let mut profile = profile(process, known.pid, known.mappings.iter().filter(holds));
        for frame in &stack.frames {
            if let Some(names) = state.python_names(*frame) {
                let (process, names) = (frame.named_in(process), names.to_vec());
                profile.symbols.add(Symbol { process, frame: *frame, since: 0, names });
            }
        }
        profile.stacks.insert(stack.id, stack.clone());
        self.jobs.try_send(Job { process, pid: known.pid, what: What::Stack(stack.id), profile }).is_ok()
    }

    /// Asks which kernel a host function stands for; `false` if there is no room now.
    pub fn ask_stub(&self, process: ProcessId, address: u64, state: &State) -> bool {
        let Some(known) = state.processes.get(&process) else { return true };
        let holds = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        let mut profile = profile(process, known.pid, known.mappings.iter().filter(holds));
        profile.calls.launches.insert((process, Some(KernelRef::HostStub(address))), 1);
        self.jobs.try_send(Job { process, pid: known.pid, what: What::Stub(address), profile }).is_ok()
    }

    /// What is done.
    pub fn done(&self) -> impl Iterator<Item = Named> {
        self.done.try_iter()
    }
}

trait SendSome {
    fn send_some(&self, named: Option<Named>) -> Result<(), mpsc::SendError<Named>>;
}

impl SendSome for mpsc::Sender<Named> {
    fn send_some(&self, named: Option<Named>) -> Result<(), mpsc::SendError<Named>> {
        named.map_or(Ok(()), |named| self.send(named))
    }
}

fn profile<'a>(process: ProcessId, pid: u32, mappings: impl Iterator<Item = &'a Mapping>) -> Profile {
    let mut profile = Profile { mappings: mappings.cloned().collect(), ..Profile::default() };
    profile.processes.insert(process, ProcessInfo { pid, ..ProcessInfo::default() });
    profile
}

fn work(job: Job) -> Option<Named> {
    let Job { process, pid, what, mut profile } = job;
    let mut kept = Kept::new(MOST_FILES);
    for mapping in &profile.mappings {
        kept.mapped(mapping, pid);
    }
    let wishes = Wishes { injector: INJECTOR, lines: true, debug_files: DebugFiles::default() };
    for symbol in symbols::resolve(&profile, &mut kept, &wishes).symbols {
        profile.symbols.add(symbol);
    }
    Some(match what {
        What::Stack(id) => {
            let frames = profile.frames(id).iter().map(|frame| frame.name.to_string()).collect();
            Named::Stack(process, id, frames)
        }
        What::Stub(address) => {
            symbols::name_kernels(&mut profile);
            let name = profile.calls.names.get(process, KernelRef::HostStub(address))?;
            Named::Stub(process, address, name.to_string())
        }
    })
}
