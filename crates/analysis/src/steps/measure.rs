//! What steps are made of: the GPU work that they launched, the time in which a GPU worked, and what was waited for otherwise.
//!
//! ```text
//!   launches   |L L L   |L L L     |        a step begins at its first launch
//!   GPU        .###.##.#.###.##...##.       it is busy while any of the process's work runs, launched in this step or before
//!   thread                     [w]L         before some work, from its launch on it was launching; before that, its thread may wait
//! ```

use std::io;

use model::{
    causes::{Cause, Causes},
    event::{Event, ProcessId, SessionId, Wait, Work},
    memory::Allocations,
    profile::Profile,
    ranks::is_communication,
    steps::{Series, Step, StepIndex},
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Events;

/// Intervals that wait for earlier ones which arrive later.
const WAITING: usize = 1 << 17;

/// Adds up the work of steps.
pub fn measure<'a>(
    series: &mut [Series],
    profile: &Profile,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<()> {
    let mut measuring = Measuring::new(series, profile);
    let mut causes = Causes::default();
    for event in events()? {
        match &event {
            Event::Launch(launch) => {
                if let Some((of, index)) = measuring.step(launch.process, launch.tid, launch.time) {
                    measuring.series[of].steps[index].work.launches += 1;
                }
                causes.launch(launch, |cause| measuring.ran(cause));
            }
            Event::Activity(activity) => causes.activity(activity, |cause| measuring.ran(cause)),
            Event::Sample(sample) if measuring.index.has_thread(sample.process, sample.tid) => {
                let step = measuring.step(sample.process, sample.tid, sample.time);
                if let Some((of, index)) = step.filter(|_| !profile.is_own_cost(sample.stack)) {
                    let cpu_ns = &mut measuring.series[of].steps[index].cpu_ns;
                    *cpu_ns = cpu_ns.saturating_add(sample.weight);
                }
            }
            Event::Wait(wait) => measuring.wait(wait),
            Event::Call(call) => measuring.memory(call.process, call.end, &event),
            Event::Tensor(tensor) => measuring.memory(tensor.process, tensor.time, &event),
            Event::TensorFreed(freed) => measuring.memory(freed.process, freed.time, &event),
            Event::Function(_) | Event::Shutdown(_) => measuring.allocations.note(&event),
            Event::KernelName(kernel) if is_communication(&kernel.name) => {
                measuring.communication.insert((kernel.session, kernel.id));
            }
            other => causes.note(other),
        }
    }
    causes.finish(|cause| measuring.ran(cause));
    measuring.finish();
    Ok(())
}

struct Measuring<'a> {
    series: &'a mut [Series],
    process_of: FxHashMap<SessionId, ProcessId>,
    index: StepIndex,
    /// When the work of each step ended.
    ends: Vec<Vec<u64>>,
    busy: FxHashMap<ProcessId, Busy>,
    /// Kernels that communicate.
    communication: FxHashSet<(SessionId, u32)>,
    allocations: Allocations,
    /// The step of each process that memory was last seen in.
    in_step: FxHashMap<ProcessId, usize>,
}

/// Work of a GPU, and its launch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ran {
    start: u64,
    end: u64,
    /// When it was launched, and by which thread.
    launched: Option<(u64, u32)>,
}

#[derive(Default)]
struct Busy {
    /// Intervals, in any order.
    waiting: Vec<Ran>,
    /// What is before this has been counted.
    until: u64,
    /// The first step of each series that a later interval may be in.
    next: Vec<usize>,
    /// When threads waited: the end and the start.
    waits: FxHashMap<u32, Vec<(u64, u64)>>,
    /// Their number.
    number_of_waits: usize,
}

impl<'a> Measuring<'a> {
    fn new(series: &'a mut [Series], profile: &Profile) -> Self {
        let ends = series.iter().map(|series| vec![0; series.steps.len()]).collect();
        Self {
            process_of: profile.sessions.iter().map(|(session, info)| (*session, info.process)).collect(),
            index: StepIndex::new(series),
            series,
            ends,
            busy: FxHashMap::default(),
            communication: FxHashSet::default(),
            allocations: Allocations::default(),
            in_step: FxHashMap::default(),
        }
    }

    /// Returns the step that a thread launched in, as the index of its series and its own.
    fn step(&self, process: ProcessId, tid: u32, time: u64) -> Option<(usize, usize)> {
        self.index.find(self.series, process, tid, time)
    }

    fn wait(&mut self, wait: &Wait) {
        let Some(of_process) = self.index.of_process(wait.process) else { return };
        let busy = self.busy.entry(wait.process).or_default();
        busy.waits.entry(wait.tid).or_default().push((wait.end, wait.start));
        busy.number_of_waits += 1;
        if busy.number_of_waits >= 8 * WAITING {
            busy.count(busy.waiting.len(), of_process, self.series, &self.ends);
            // Threads that launch nothing do not stop.
            busy.waits.clear();
            busy.number_of_waits = 0;
        }
    }

    /// Adds an event about memory. Each step gets the most that was in use in it, which an event without a step before it may be.
    fn memory(&mut self, process: ProcessId, time: u64, event: &Event) {
        if let Some([of]) = self.index.of_process(process) {
            let steps = &mut self.series[*of].steps;
            let next = steps.partition_point(|step| step.start <= time);
            used(steps, self.in_step.entry(process).or_default(), next, || self.allocations.take_most(process));
        }
        self.allocations.note(event);
    }

    fn ran(&mut self, cause: Cause<'_>) {
        let Cause::Ran(joined) = cause else { return };
        let activity = joined.activity;
        let Some(process) = self.process_of.get(&activity.session).copied() else { return };
        if let Some(launch) = joined.launch
            && let Some((of, index)) = self.step(launch.process, launch.tid, launch.time)
        {
            let work = &mut self.series[of].steps[index].work;
            match activity.work {
                Work::Kernel { name, .. } => {
                    work.kernels += 1;
                    if self.communication.contains(&(activity.session, name)) {
                        work.communication_ns = work.communication_ns.saturating_add(activity.duration());
                    }
                    work.kernel_ns = work.kernel_ns.saturating_add(activity.duration());
                }
                Work::Copy { bytes, .. } => {
                    work.copies += 1;
                    work.copy_ns = work.copy_ns.saturating_add(activity.duration());
                    work.copy_bytes = work.copy_bytes.saturating_add(bytes);
                }
                Work::Memset { .. } => {}
            }
            let end = &mut self.ends[of][index];
            *end = (*end).max(activity.end);
        }
        let Some(of_process) = self.index.of_process(process).filter(|_| activity.duration() > 0) else { return };
        let busy = self.busy.entry(process).or_default();
        let launched = joined.launch.map(|launch| (launch.time, launch.tid));
        busy.waiting.push(Ran { start: activity.start, end: activity.end, launched });
        if busy.waiting.len() >= 2 * WAITING {
            busy.count(WAITING, of_process, self.series, &self.ends);
        }
    }

    fn finish(mut self) {
        for (process, of) in self.index.processes() {
            if let ([of], Some(in_step)) = (of, self.in_step.get_mut(&process)) {
                let steps = &mut self.series[*of].steps;
                let all = steps.len();
                used(steps, in_step, all + 1, || self.allocations.take_most(process));
            }
        }
        for (process, busy) in &mut self.busy {
            let of_process = self.index.of_process(*process).unwrap_or_default();
            busy.count(busy.waiting.len(), of_process, self.series, &self.ends);
        }
        for (series, ends) in self.series.iter_mut().zip(&self.ends) {
            series.steps.iter_mut().zip(ends).for_each(|(step, end)| step.end = until(step, *end));
        }
    }
}

/// Sets the memory of the steps before `next` that have none yet: the first of them had the most since the last call, the others
/// what is in use now. Steps are counted from 1; 0 is the time before them.
fn used(steps: &mut [Step], in_step: &mut usize, next: usize, mut take_most: impl FnMut() -> u64) {
    while *in_step < next {
        let most = take_most();
        if let Some(step) = in_step.checked_sub(1).and_then(|index| steps.get_mut(index)) {
            step.memory_bytes = most;
        }
        *in_step += 1;
    }
}

/// Returns the end of a step: without another after it, that of its work.
fn until(step: &Step, work: u64) -> u64 {
    if step.is_followed { step.end } else { step.end.max(work) }
}

impl Busy {
    /// Counts the earliest intervals, each moment once, and the time before each.
    fn count(&mut self, count: usize, of_process: &[usize], series: &mut [Series], ends: &[Vec<u64>]) {
        let Self { waiting, until: counted, next, waits, number_of_waits } = self;
        waiting.sort_unstable();
        next.resize(of_process.len(), 0);
        waits.values_mut().for_each(|waits| waits.sort_unstable());
        for Ran { start, end, launched } in waiting.drain(..count) {
            let (idle, start) = (*counted, start.max(*counted));
            if end <= start {
                continue;
            }
            *counted = end;
            let (launch, tid) = launched.unwrap_or((start, 0));
            let launch = launch.clamp(idle, start);
            let waits = waits.get(&tid).filter(|_| launched.is_some()).map_or(&[][..], Vec::as_slice);
            let waits = &waits[waits.partition_point(|(end, _)| *end <= idle)..];
            for (of, next) in of_process.iter().zip(&mut *next) {
                let (steps, ends) = (&mut series[*of].steps, &ends[*of]);
                while steps.get(*next).is_some_and(|step| until(step, ends[*next]) <= idle && *next + 1 < ends.len()) {
                    *next += 1;
                }
                for (step, work) in steps.iter_mut().zip(ends).skip(*next).take_while(|(step, _)| step.start < end) {
                    let (first, last) = (step.start, until(step, *work));
                    let within = |from: u64, to: u64| to.min(last).saturating_sub(from.max(first));
                    step.busy_ns += within(start, end);
                    step.launching_ns += within(launch, start);
                    let waited = waits.iter().take_while(|(_, from)| *from < launch);
                    step.waiting_ns +=
                        waited.map(|(to, from)| within((*from).max(idle), (*to).min(launch))).sum::<u64>();
                }
            }
        }
        for waits in waits.values_mut() {
            waits.drain(..waits.partition_point(|(end, _)| end <= counted));
        }
        *number_of_waits = waits.values().map(Vec::len).sum();
    }
}
