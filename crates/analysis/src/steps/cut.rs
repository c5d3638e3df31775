//! Steps as intervals: a second look at the launches, now that the loop is known.

use model::event::{Launch, ProcessId, StackId};

use super::{
    found::{APART, BEGINS, Found, LEFT},
    levels::Level,
    order::{Next, Order},
    sequence::Pair,
    threads::Threads,
};

/// The launches of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The process.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// Its number in the thread, from 1.
    pub number: u64,
    /// Its first launch.
    pub start: u64,
    /// Its last launch.
    pub last: u64,
    /// When the next step began, if it followed.
    pub next: Option<u64>,
    /// Its launches.
    pub launches: u64,
}

/// Cuts launches into steps.
#[derive(Debug)]
pub struct Cutter<'a> {
    found: &'a Found,
    levels: Vec<&'a Level>,
    marks: Vec<u8>,
    order: Order,
    threads: Threads<Thread>,
    done: Vec<Cut>,
}

#[derive(Debug, Default)]
struct Thread {
    last: Option<StackId>,
    steps: u64,
    current: Option<Cut>,
}

impl<'a> Cutter<'a> {
    /// Cuts by some levels, at most one for each process.
    pub fn new(found: &'a Found, levels: &[&'a Level]) -> Self {
        let marks = found.pairs.iter().map(|(pair, _)| found.marks_of(levels, pair));
        Self {
            found,
            levels: levels.to_vec(),
            marks: marks.collect(),
            order: Order::default(),
            threads: Threads::default(),
            done: Vec::new(),
        }
    }

    /// Adds a launch.
    #[inline]
    pub fn push(&mut self, launch: &Launch) {
        if let Some(next) = self.order.push(launch) {
            self.add(next);
        }
    }

    #[inline]
    fn add(&mut self, launch: Next) {
        let thread = self.threads.get(launch.process, launch.tid);
        let mut marks = 0;
        if launch.stack.0 != 0 && !launch.stack.is_placeholder() {
            let pair = Pair { process: launch.process, from: thread.last, to: launch.stack };
            marks = match self.found.numbers.get(&pair) {
                Some(number) => self.marks[*number as usize],
                None => self.found.marks_of(&self.levels, &pair),
            };
            if marks & APART != 0 {
                return;
            }
            thread.last = Some(launch.stack);
        }
        if marks & LEFT != 0 {
            self.done.extend(thread.current.take());
        }
        if marks & BEGINS != 0 {
            self.done.extend(thread.current.take().map(|step| Cut { next: Some(launch.time), ..step }));
            thread.steps += 1;
            let (process, tid, number, start) = (launch.process, launch.tid, thread.steps, launch.time);
            thread.current = Some(Cut { process, tid, number, start, last: start, next: None, launches: 0 });
        }
        if let Some(step) = &mut thread.current {
            step.launches += 1;
            step.last = step.last.max(launch.time);
        }
    }

    /// Returns the steps, by process and thread, in order.
    pub fn finish(mut self) -> Vec<Cut> {
        for next in std::mem::take(&mut self.order).finish() {
            self.add(next);
        }
        self.done.extend(self.threads.into_all().filter_map(|thread| thread.current));
        self.done.sort_unstable_by_key(|step| (step.process, step.tid, step.number));
        self.done
    }
}
