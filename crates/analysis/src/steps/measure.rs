//! What steps are made of: the GPU work that they launched, and the time in which a GPU worked.
//!
//! ```text
//!   launches   |L L L   |L L L   |          a step begins at its first launch
//!   GPU        .###.##.#.###.##.#.##        it is busy while any of the process's work runs, launched in this step or before
//! ```

use std::io;

use model::{
    causes::{Cause, Causes},
    event::{Event, ProcessId, SessionId, Work},
    steps::{Series, Step},
};
use rustc_hash::FxHashMap;

use crate::Events;

/// Intervals that wait for earlier ones which arrive later.
const WAITING: usize = 1 << 17;

/// Adds up the work of steps.
pub fn measure<'a>(
    series: &mut [Series],
    process_of: &FxHashMap<SessionId, ProcessId>,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<()> {
    let mut measuring = Measuring::new(series);
    let mut causes = Causes::default();
    for event in events()? {
        match &event {
            Event::Launch(launch) => {
                if let Some((of, index)) = measuring.step(launch.process, launch.tid, launch.time) {
                    measuring.series[of].steps[index].work.launches += 1;
                }
                causes.launch(launch, |cause| measuring.ran(cause, process_of));
            }
            Event::Activity(activity) => causes.activity(activity, |cause| measuring.ran(cause, process_of)),
            other => causes.note(other),
        }
    }
    causes.finish(|cause| measuring.ran(cause, process_of));
    measuring.finish();
    Ok(())
}

struct Measuring<'a> {
    series: &'a mut [Series],
    /// The series of each thread.
    of_thread: FxHashMap<(ProcessId, u32), usize>,
    /// The series of each process, longest first. Threads without steps work for the longest.
    of_process: FxHashMap<ProcessId, Vec<usize>>,
    /// When the work of each step ended.
    ends: Vec<Vec<u64>>,
    busy: FxHashMap<ProcessId, Busy>,
}

#[derive(Default)]
struct Busy {
    /// Intervals, in any order.
    waiting: Vec<(u64, u64)>,
    /// What is before this has been counted.
    until: u64,
    /// The first step of each series that a later interval may be in.
    next: Vec<usize>,
}

impl<'a> Measuring<'a> {
    fn new(series: &'a mut [Series]) -> Self {
        let (mut of_thread, mut of_process) = (FxHashMap::default(), FxHashMap::<_, Vec<usize>>::default());
        for (index, Series { process, tid, .. }) in series.iter().enumerate() {
            of_thread.insert((*process, *tid), index);
            of_process.entry(*process).or_default().push(index);
        }
        let ends = series.iter().map(|series| vec![0; series.steps.len()]).collect();
        Self { series, of_thread, of_process, ends, busy: FxHashMap::default() }
    }

    /// Returns the step that a thread launched in, as the index of its series and its own.
    fn step(&self, process: ProcessId, tid: u32, time: u64) -> Option<(usize, usize)> {
        let own = self.of_thread.get(&(process, tid));
        let of = *own.or_else(|| self.of_process.get(&process)?.first())?;
        let steps = &self.series[of].steps;
        let index = steps.partition_point(|step| step.start <= time).checked_sub(1)?;
        let step = &steps[index];
        (time < step.end || (!step.is_followed && time == step.end)).then_some((of, index))
    }

    fn ran(&mut self, cause: Cause<'_>, process_of: &FxHashMap<SessionId, ProcessId>) {
        let Cause::Ran(joined) = cause else { return };
        let activity = joined.activity;
        let Some(process) = process_of.get(&activity.session).copied() else { return };
        if let Some(launch) = joined.launch
            && let Some((of, index)) = self.step(launch.process, launch.tid, launch.time)
        {
            let work = &mut self.series[of].steps[index].work;
            match activity.work {
                Work::Kernel { .. } => {
                    work.kernels += 1;
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
        let Some(of_process) = self.of_process.get(&process).filter(|_| activity.duration() > 0) else { return };
        let busy = self.busy.entry(process).or_default();
        busy.waiting.push((activity.start, activity.end));
        if busy.waiting.len() >= 2 * WAITING {
            busy.count(WAITING, of_process, self.series, &self.ends);
        }
    }

    fn finish(mut self) {
        for (process, busy) in &mut self.busy {
            busy.count(busy.waiting.len(), &self.of_process[process], self.series, &self.ends);
        }
        for (series, ends) in self.series.iter_mut().zip(&self.ends) {
            series.steps.iter_mut().zip(ends).for_each(|(step, end)| step.end = until(step, *end));
        }
    }
}

/// Returns the end of a step: without another after it, that of its work.
fn until(step: &Step, work: u64) -> u64 {
    if step.is_followed { step.end } else { step.end.max(work) }
}

impl Busy {
    /// Counts the earliest intervals, each moment once.
    fn count(&mut self, count: usize, of_process: &[usize], series: &mut [Series], ends: &[Vec<u64>]) {
        self.waiting.sort_unstable();
        self.next.resize(of_process.len(), 0);
        for (start, end) in self.waiting.drain(..count) {
            let start = start.max(self.until);
            if end <= start {
                continue;
            }
            self.until = end;
            for (of, next) in of_process.iter().zip(&mut self.next) {
                let (steps, ends) = (&mut series[*of].steps, &ends[*of]);
                while steps.get(*next).is_some_and(|step| until(step, ends[*next]) <= start && *next + 1 < ends.len()) {
                    *next += 1;
                }
                for (step, work) in steps.iter_mut().zip(ends).skip(*next).take_while(|(step, _)| step.start < end) {
                    let overlap = end.min(until(step, *work)).saturating_sub(start.max(step.start));
                    step.busy_ns += overlap;
                }
            }
        }
    }
}
