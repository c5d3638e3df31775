//! What the threads of some processes do now, and whether they stay there: for `hang`. Nothing is loaded into the processes, no probe is
//! attached, and no thread is stopped.
//!
//! ```text
//!   target    a process: what it has mapped, its memory, its interpreter; identity: its rank
//!   taking    the registers of all threads, and copies of their stacks
//!   watching  how much of each stack stays the same
//!   native    frames by the unwind tables of the files; python: frames of the interpreter
//! ```

mod identity;
mod memory;
mod native;
mod python;
mod taking;
mod target;
mod watching;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use bpf::Threads;
use model::{
    event::{Frame, FrameKind, NamedFrame, Origin, ProcessId, Stack, StackEnd, StackId},
    hang::{self, Host, Process, State, Thread},
    profile::{ProcessInfo, Profile},
};
use symbols::{
    Kept,
    python::{self as symbolic, Native, Part, Python},
};
use unwind::Ended;

use self::{
    native::{Walked, walk},
    taking::{Taken, take},
    target::Target,
    watching::{Return, Watched, watch},
};
use crate::{
    command::limits,
    process::{procfs, select::Criteria},
    stacks,
};

/// The most processes, and threads of them.
const MOST_PROCESSES: usize = 1024;
const MOST_THREADS: usize = 1 << 15;

/// A look at some processes, before it begins.
pub struct Snapshot {
    host: Host,
    kept: Kept,
    targets: Vec<Target>,
    threads: Threads,
}

/// Returns the ranks among the running processes that meet the criteria: those that have loaded CUDA or NCCL and whose environment
/// has a rank. Processes that a rank has started, such as workers that load data, are not ranks.
pub fn ranks(criteria: &Criteria) -> anyhow::Result<Vec<u32>> {
    let mut found = criteria.processes()?;
    found.retain(|pid| procfs::has_gpu_library(*pid) && identity::has_rank(*pid));
    let all: HashSet<u32> = found.iter().copied().collect();
    let started_by_rank = |pid: u32| {
        let mut parent = procfs::parent(pid);
        // A parent may end meanwhile, and its id be used again.
        for _ in 0..64 {
            match parent {
                Some(pid) if all.contains(&pid) => return true,
                Some(pid) if pid > 1 => parent = procfs::parent(pid),
                _ => return false,
            }
        }
        false
    };
    found.retain(|pid| !started_by_rank(*pid));
    Ok(found)
}

impl Snapshot {
    /// Prepares a look at processes.
    pub fn of(pids: &[u32]) -> anyhow::Result<Self> {
        let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let mut host = Host {
            host: text("/proc/sys/kernel/hostname"),
            boot: text("/proc/sys/kernel/random/boot_id"),
            ..Host::default()
        };
        if !procfs::proc_is_own() {
            host.notes.push(procfs::FOREIGN_PROC.to_owned());
        }
        if pids.len() > MOST_PROCESSES {
            host.notes.push(format!("only {MOST_PROCESSES} of {} processes were looked at", pids.len()));
        }
        let mut kept = Kept::new(limits::raise());
        let mut targets = Vec::new();
        for (pid, id) in pids.iter().take(MOST_PROCESSES).zip(1..) {
            let target = Target::of(*pid, ProcessId(id), &host.host, &mut kept);
            targets
                .push(target.with_context(|| format!("cannot look at process {pid}: it has ended, or is not yours"))?);
        }
        host.notes.extend(targets.iter().filter_map(|target| target.unsupported.clone()));
        let threads = Threads::of(pids)?;
        Ok(Self { host, kept, targets, threads })
    }

    /// Takes the stacks of all threads, names their frames, and watches the threads for a time. `call` says how many frames of a stack
    /// belong to a call in which a thread waits.
    pub fn take(
        self,
        watched: Duration,
        naming: &symbols::Options,
        call: &dyn Fn(&[hang::Frame]) -> Option<usize>,
    ) -> anyhow::Result<Host> {
        let Self { mut host, mut kept, targets, threads } = self;
        host.time_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
        let mut taken = take(&threads, &targets)?;
        if taken.len() > MOST_THREADS {
            host.notes.push(format!("only {MOST_THREADS} of {} threads were looked at", taken.len()));
            taken.truncate(MOST_THREADS);
        }
        // While the code objects are certain to exist.
        let lines = lines(&targets, &taken);
        let walked = walk_all(&targets, &taken, &kept)?;
        let mut names = Names::of(&targets, &taken, &walked, lines, &mut kept, naming);
        host.notes.append(&mut names.notes);
        let merged: Vec<Merged> = taken
            .iter()
            .zip(&walked)
            .map(|(taken, walked)| names.merge(&targets[taken.target], taken, walked))
            .collect();
        let returns: Vec<Option<Return>> = merged
            .iter()
            .zip(&taken)
            .zip(&walked)
            .map(|((merged, taken), walked)| {
                merged.returns(call(&merged.frames)?, &targets[taken.target], taken, walked)
            })
            .collect();
        let begun = Instant::now();
        let (seen, refused) = watch(&threads, &targets, &taken, &returns, watched)?;
        host.watched_ns = begun.elapsed().as_nanos() as u64;
        host.notes.extend(refused.map(|why| {
            format!("no breakpoint can be set ({why}): a call that returns and begins again in the same place may look like a wait")
        }));
        let mut processes: BTreeMap<usize, Vec<Thread>> = BTreeMap::new();
        for ((taken, merged), (walked, seen)) in taken.iter().zip(merged).zip(walked.iter().zip(&seen)) {
            let thread = merged.thread(&targets[taken.target], taken, walked, seen);
            processes.entry(taken.target).or_default().push(thread);
        }
        for (index, target) in targets.into_iter().enumerate() {
            let mut threads = processes.remove(&index).unwrap_or_default();
            // The first thread has the id of the process.
            threads.sort_by_key(|thread| (thread.tid != target.pid, thread.tid));
            let mut of_process = taken.iter().zip(&seen).filter(|(taken, _)| taken.target == index);
            let ended = of_process.all(|(_, seen)| seen.ended);
            let Target { pid, name, program, place, .. } = target;
            host.processes.push(Process { pid, name, program, place, ended, threads });
        }
        Ok(host)
    }
}

/// Walks the native stacks.
fn walk_all(targets: &[Target], taken: &[Taken], kept: &Kept) -> anyhow::Result<Vec<Walked>> {
    let copied = taken.iter().filter_map(|taken| Some((&*targets[taken.target].modules, taken.native.as_ref()?)));
    let walked = walk(&copied.collect::<Vec<_>>(), &kept.files).context("cannot walk the stacks")?;
    let mut walked = walked.into_iter();
    let none = || Walked { frames: Vec::new(), ended: Ended::BadRead };
    Ok(taken.iter().map(|taken| taken.native.as_ref().and_then(|_| walked.next()).unwrap_or_else(none)).collect())
}

/// Lines of Python code, by process, code object and instruction; `None` for those that are internal to the interpreter.
type Lines = HashMap<(usize, u64, u32), Option<NamedFrame>>;

fn lines(targets: &[Target], taken: &[Taken]) -> Lines {
    let mut lines = Lines::new();
    for taken in taken {
        let target = &targets[taken.target];
        let Some(python) = &target.python else { continue };
        for frame in &taken.python.frames {
            lines.entry((taken.target, frame.code, frame.instruction)).or_insert_with(|| {
                let code = python.code(&target.memory, frame.code);
                stacks::python::name(python.interpreter.minor, &code, frame.instruction)
            });
        }
    }
    lines
}

/// The names of frames.
struct Names {
    profile: Profile,
    lines: Lines,
    notes: Vec<String>,
}

/// A stack of native and Python frames, innermost first.
struct Merged {
    frames: Vec<hang::Frame>,
    /// Where each comes from: the index of a native frame, or of a Python frame.
    parts: Vec<Part>,
}

impl Names {
    fn of(
        targets: &[Target],
        taken: &[Taken],
        walked: &[Walked],
        lines: Lines,
        kept: &mut Kept,
        naming: &symbols::Options,
    ) -> Self {
        let mut profile = Profile::default();
        for target in targets {
            profile.mappings.extend(target.mappings.iter().cloned());
            let info = ProcessInfo { pid: target.pid, origin: Origin::Found, ..ProcessInfo::default() };
            profile.processes.insert(target.id, info);
        }
        for ((taken, walked), id) in taken.iter().zip(walked).zip(0..) {
            let frames = walked.frames.iter().map(|(address, _)| Frame::User(*address)).collect();
            let process = targets[taken.target].id;
            profile.stacks.insert(&Stack { id: StackId(id), process, time: 0, frames, end: StackEnd::Whole });
        }
        let named = symbols::resolve(&profile, kept, naming);
        for symbol in named.symbols {
            profile.symbols.add(symbol);
        }
        Self { profile, lines, notes: named.notes }
    }

    /// Merges the parts of a stack.
    fn merge(&self, target: &Target, taken: &Taken, walked: &Walked) -> Merged {
        let kinds: Vec<_> = walked.frames.iter().map(|(address, _)| target.code.kind(*address)).collect();
        let line = |frame: &python::Frame| self.lines.get(&(taken.target, frame.code, frame.instruction))?.clone();
        let python: Vec<(usize, NamedFrame)> =
            taken.python.frames.iter().enumerate().filter_map(|(place, frame)| Some((place, line(frame)?))).collect();
        let entries: Vec<bool> = python.iter().map(|(place, _)| taken.python.frames[*place].entry).collect();
        let native = Native { kinds: &kinds, whole: walked.ended == Ended::Whole };
        let whole = taken.python.whole || python.is_empty();
        let mut merged = Merged { frames: Vec::new(), parts: Vec::new() };
        for part in symbolic::merge(native, Python { entries: &entries, whole }).frames {
            match part {
                Part::Native(index) => {
                    let names = self.profile.symbols.at(target.id, Frame::User(walked.frames[index].0), 0);
                    // Inlined functions are outermost first.
                    for name in names.into_iter().flat_map(|names| names.iter().rev()) {
                        merged.push(name, part);
                    }
                }
                Part::Python(index) => merged.push(&python[index].1, Part::Python(python[index].0)),
            }
        }
        merged
    }
}

impl Merged {
    fn push(&mut self, frame: &NamedFrame, part: Part) {
        let python = frame.kind == FrameKind::Python;
        self.frames.push(hang::Frame { name: frame.name.to_string(), file: frame.module.to_string(), python });
        self.parts.push(part);
    }

    /// Returns the return of the call that has the innermost `count` frames.
    fn returns(&self, count: usize, target: &Target, taken: &Taken, walked: &Walked) -> Option<Return> {
        let caller = match (self.parts.get(count.checked_sub(1)?)?, self.parts.get(count)?) {
            (Part::Native(index), _) => index + 1,
            (Part::Python(_), Part::Native(index)) => *index,
            (Part::Python(_), Part::Python(index)) => {
                let frame = taken.python.frames.get(*index)?;
                let field = target.python.as_ref()?.interpreter.offsets.frame_instruction;
                return Some(Return::Line(frame.at.wrapping_add(field.into()), *index));
            }
        };
        let (address, sp) = *walked.frames.get(caller)?;
        // The frame of a caller is within its call instruction.
        Some(Return::To(address + 1, sp))
    }

    fn thread(self, target: &Target, taken: &Taken, walked: &Walked, seen: &Watched) -> Thread {
        let first_kept = taken.python.frames.len().saturating_sub(seen.python);
        let stayed = |part: &&Part| match part {
            _ if !seen.ran => true,
            Part::Native(index) => walked.frames[*index].1 > seen.highest,
            Part::Python(index) => *index >= first_kept,
        };
        Thread {
            tid: taken.state.tid,
            name: target.thread_name(taken.state.tid),
            state: state(&taken.state),
            ran: seen.ran,
            kept: self.parts.iter().rev().take_while(stayed).count() as u32,
            returned: seen.returned,
            whole: walked.ended == Ended::Whole,
            frames: self.frames,
        }
    }
}

fn state(state: &bpf::ThreadState) -> State {
    if state.runs != 0 {
        return State::Running;
    }
    // In the order of `enum wait_reason`.
    const STATES: [State; 8] = [
        State::Running,
        State::Lock,
        State::Sleep,
        State::Events,
        State::Io,
        State::Process,
        State::Driver,
        State::Memory,
    ];
    STATES.get(state.reason as usize).copied().unwrap_or_default()
}
