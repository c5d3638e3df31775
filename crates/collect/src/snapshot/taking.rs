//! Takes the stacks of all threads, without stopping any.
//!
//! ```text
//!   registers of all threads ── memory of the stacks of those that wait ── registers again: none has run in between?
//!                            └─ a sample of those that run, with registers and memory of one moment
//! ```
//!
//! What has run in between is tried again. A thread that never stays where it is for long enough has its Python frames only.

use std::{
    collections::{BTreeMap, HashMap},
    thread,
    time::{Duration, Instant},
};

use bpf::{ThreadSampler, ThreadState, Threads};
use unwind::Registers;

use super::{native::Copied, python::Stack, target::Target};

/// The most bytes of a stack, and of all.
const STACK: usize = 96 << 10;
const STACKS: usize = 512 << 20;
/// How long the threads that run may take for a sample.
const PATIENCE: Duration = Duration::from_millis(60);
const BETWEEN: Duration = Duration::from_millis(1);
/// The most threads that are sampled at a time: each needs a descriptor.
const MOST_SAMPLED: usize = 256;

/// A thread as it was found.
pub(super) struct Taken {
    /// The index of its process.
    pub target: usize,
    pub state: ThreadState,
    /// Absent if it never stayed where it was.
    pub native: Option<Copied>,
    pub python: Stack,
}

/// Takes the stacks of all threads of these processes.
pub(super) fn take(threads: &Threads, targets: &[Target]) -> bpf::Result<Vec<Taken>> {
    let index: HashMap<u32, usize> = targets.iter().enumerate().map(|(index, target)| (target.pid, index)).collect();
    let mut taken: BTreeMap<(usize, u32), Taken> = BTreeMap::new();
    let mut samplers: BTreeMap<u32, Option<ThreadSampler>> = BTreeMap::new();
    let begun = Instant::now();
    loop {
        let states = threads.states()?;
        let most = STACK.min(STACKS / states.len().max(1)) & !7;
        let pythons: Vec<HashMap<u64, u64>> = targets.iter().map(Target::python_threads).collect();
        let mut copied: HashMap<u32, (ThreadState, Copied)> = HashMap::new();
        for state in &states {
            let Some(target) = index.get(&state.pid).copied() else { continue };
            let known = taken.entry((target, state.tid)).or_insert_with(|| Taken {
                target,
                state: *state,
                native: None,
                python: Stack::default(),
            });
            if known.native.is_some() {
                continue;
            }
            known.state = *state;
            known.python = python(&targets[target], &pythons[target], state.thread_pointer);
            if state.runs != 0 {
                if samplers.len() < MOST_SAMPLED {
                    // It may have ended.
                    samplers.entry(state.tid).or_insert_with(|| ThreadSampler::start(state.tid).ok());
                }
                let sample = samplers.get(&state.tid).and_then(|sampler| sampler.as_ref()?.sample());
                known.native = sample.map(|sample| {
                    let registers = Registers { ip: sample.ip, general: sample.general };
                    let mut bytes = sample.bytes;
                    let outer = registers.sp().wrapping_add(bytes.len() as u64);
                    bytes.extend(targets[target].memory.bytes(outer, most.saturating_sub(bytes.len())));
                    Copied { registers, bytes }
                });
            } else {
                let registers = Registers { ip: state.ip, general: state.general };
                let bytes = targets[target].memory.bytes(registers.sp(), most);
                copied.insert(state.tid, (*state, Copied { registers, bytes }));
            }
        }
        // Those that have not run since have the stack that was copied.
        for state in threads.states()? {
            let Some(target) = index.get(&state.pid) else { continue };
            let Some((before, stack)) = copied.remove(&state.tid) else { continue };
            if state.runs == 0
                && state.switches == before.switches
                && let Some(known) = taken.get_mut(&(*target, state.tid))
            {
                known.native = Some(stack);
            }
        }
        if taken.values().all(|taken| taken.native.is_some()) || begun.elapsed() > PATIENCE {
            return Ok(taken.into_values().collect());
        }
        thread::sleep(BETWEEN);
    }
}

/// Reads the Python frames of a thread.
pub(super) fn python(target: &Target, threads: &HashMap<u64, u64>, thread_pointer: u64) -> Stack {
    let read = |python: &super::python::Python| {
        threads.get(&thread_pointer).map(|frame| python.stack(&target.memory, *frame)).unwrap_or_default()
    };
    target.python.as_ref().map(read).unwrap_or_default()
}
