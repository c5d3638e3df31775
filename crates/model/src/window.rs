//! The recent past, for the flight recorder: a bounded window over the stream of events.
//!
//! ```text
//!            discarded                     the window                 now
//!   ---------------------------|---------------------------------------|
//!   chunk  chunk  chunk  chunk | chunk  chunk  chunk  chunk  chunk  ...
//!      \                       |
//!       `--> base: what later events need of earlier ones (launches whose work has not run, nodes of graphs, totals)
//!   facts: stacks, names, processes, mappings, devices: each once, whenever it arrived
//!   memory: what processes hold now, and held at their peaks, by stack
//! ```
//!
//! Events are kept as chunks, encoded as in a recording. The oldest chunk is discarded when it is older than the window,
//! or when the chunks need too much memory. [`Window::cut`] returns a [`Cut`]: the events of a recording of the window.
//!
//! - A chunk needs no other chunk to be read. It is kept for the window and 4 s more.
//! - Discarded events pass through the join, so at any time the launches that later work may belong to are known. Work
//!   belongs to the window by its own time, and brings its launch along.
//! - Sums since the beginning, such as the losses of a session, are differences between the window's last value and the
//!   last discarded one.
//! - Times in events come from other processes and are not trusted: the age of a chunk is at most the time at which it
//!   was received.

mod base;
mod cut;
mod facts;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc};

use rustc_hash::FxHashSet;

pub use self::cut::Cut;
use self::{base::Base, facts::Facts};
use crate::{
    event::{Dump, DumpReason, End, Event, ProcessId, Stack, StackId, Start},
    memory::{Allocations, GpuMemory},
    recording::{self, Encoder},
};

/// A chunk is closed at this size.
const CHUNK_FULL: usize = 64 << 10;
/// A chunk is also closed after this part of the window.
const CHUNKS_PER_WINDOW: u64 = 16;
/// How long chunks are kept beyond the window: a dump is written some time after its reason occurred.
const SLACK_NS: u64 = 4_000_000_000;

/// How much of the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The length of the window, in nanoseconds.
    pub ns: u64,
    /// The size of its encoded events.
    pub bytes: usize,
}

/// Why and when the window is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// When it occurred: the end of the window.
    pub time: u64,
    /// What occurred.
    pub kind: DumpReason,
    /// The same in words.
    pub text: String,
}

/// Encoded events.
#[derive(Debug)]
struct Chunk {
    payload: Arc<[u8]>,
    /// The latest time of an event in it.
    newest: u64,
    events: u64,
}

/// The recent past.
pub struct Window {
    limits: Limits,
    start: Option<Start>,
    facts: Facts,
    base: Base,
    memory: Allocations,
    chunks: VecDeque<Chunk>,
    /// The size of the chunks.
    bytes: usize,
    encoder: Encoder,
    /// The chunk that is being filled: when it was begun, the latest time in it, and the number of its events.
    open: (u64, u64, u64),
    now: u64,
    discarded: u64,
    /// Events up to this time were discarded.
    gone_until: u64,
}

impl Window {
    /// Creates an empty window.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            start: None,
            facts: Facts::default(),
            base: Base::default(),
            memory: Allocations::default(),
            chunks: VecDeque::new(),
            bytes: 0,
            encoder: Encoder::default(),
            open: (0, 0, 0),
            now: 0,
            discarded: 0,
            gone_until: 0,
        }
    }

    /// Returns the stack with this id, if it is known.
    pub fn stack(&self, id: StackId) -> Option<&Stack> {
        self.facts.stack(id)
    }

    /// Returns the number of bytes of the events in the window.
    pub fn bytes(&self) -> usize {
        self.bytes + self.encoder.out.len()
    }

    /// Returns the number of events that were discarded.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        match event {
            Event::Start(start) => {
                self.start.get_or_insert_with(|| start.clone());
            }
            // These describe the whole time, not the window.
            Event::OwnCost(_) | Event::ProgramCost(_) | Event::End(_) | Event::Dump(_) => {}
            // Only their sums are kept: who holds memory may have allocated it long before the window.
            Event::Function(_) | Event::Call(_) => self.memory.note(event),
            Event::Tensor(_) | Event::TensorFreed(_) | Event::Shutdown(_) => self.memory.note(event),
            event if self.facts.add(event, self.now) => {}
            event => {
                self.facts.refer(event, self.now);
                let (_, latest, events) = &mut self.open;
                // Times from other processes are not trusted.
                *latest = event.span().map_or(self.now, |(_, end)| end).min(self.now).max(*latest);
                *events += 1;
                self.encoder.push(event);
                if self.encoder.out.len() >= CHUNK_FULL {
                    self.close();
                    self.discard();
                }
            }
        }
    }

    /// Discards what is older than the window now.
    pub fn advance(&mut self, now: u64) {
        self.now = now;
        if now.saturating_sub(self.open.0) > self.limits.ns / CHUNKS_PER_WINDOW {
            self.close();
        }
        self.discard();
    }

    /// Whether [`Window::forget`] would remove anything.
    pub fn must_forget(&self) -> bool {
        self.facts.are_many()
    }

    /// Removes descriptions of ended processes, and of stacks that are not used in the window if there are too many.
    /// Returns the stacks that were removed: if they occur again, they must be sent again. `None`: there was room.
    pub fn forget(&mut self) -> Option<Vec<(ProcessId, StackId)>> {
        if !self.must_forget() {
            return None;
        }
        let horizon = self.horizon();
        self.forget_ended();
        let keep: FxHashSet<StackId> = self.base.stacks().collect();
        self.memory.stacks().for_each(|id| self.facts.used(id, self.now));
        Some(self.facts.forget_stacks(horizon, &keep))
    }

    /// Returns what the processes that run, or ran in the window that ends at this time, hold as of now.
    pub fn memory(&self, time: u64) -> GpuMemory {
        let from = time.saturating_sub(self.limits.ns);
        self.memory.memory(|process| match self.facts.ended(process) {
            Some(ended) => (ended >= from).then_some(ended),
            None => Some(time),
        })
    }

    /// Returns the events of a recording of the window that ends when the reason occurred.
    pub fn cut(&mut self, reason: Reason, status: Option<i32>) -> Cut {
        self.close();
        self.forget_ended();
        let mut start = self.start.clone().unwrap_or_else(empty_start);
        let wanted = reason.time.saturating_sub(self.limits.ns);
        let full = self.gone_until > wanted;
        let from = wanted.max(start.time).max(if full { self.gone_until + 1 } else { 0 }).min(reason.time);
        start.wall_clock = start.wall_clock.saturating_add(from - start.time.min(from));
        start.time = from;
        let Reason { time, kind, text } = reason;
        Cut {
            start,
            dump: Dump { time, from, reason: kind, text, window_ns: self.limits.ns, discarded: self.discarded, full },
            end: End { time, status },
            facts: self.facts.all(),
            base: self.base.snapshot(),
            memory: GpuMemory::default(),
            chunks: self.chunks.iter().map(|chunk| chunk.payload.clone()).collect(),
        }
    }

    /// Removes what is known of processes that ended before the window.
    fn forget_ended(&mut self) {
        let horizon = self.horizon();
        let facts = &mut self.facts;
        self.memory.forget(|process| facts.ended(process).is_some_and(|ended| ended < horizon));
        facts.forget_ended(horizon);
    }

    /// The time before which chunks are discarded.
    fn horizon(&self) -> u64 {
        self.now.saturating_sub(self.limits.ns.saturating_add(SLACK_NS))
    }

    fn close(&mut self) {
        let (_, newest, events) = std::mem::replace(&mut self.open, (self.now, 0, 0));
        if events == 0 {
            return;
        }
        let payload: Arc<[u8]> = self.encoder.out.as_slice().into();
        self.encoder.begin();
        self.bytes += payload.len();
        self.chunks.push_back(Chunk { payload, newest, events });
    }

    fn discard(&mut self) {
        let horizon = self.horizon();
        while let Some(oldest) = self.chunks.front() {
            let old = oldest.newest < horizon;
            if !old && self.bytes <= self.limits.bytes {
                break;
            }
            self.gone_until = self.gone_until.max(oldest.newest);
            self.bytes -= oldest.payload.len();
            self.discarded += oldest.events;
            recording::events(&oldest.payload).for_each(|event| self.base.absorb(&event));
            self.chunks.pop_front();
        }
    }
}

fn empty_start() -> Start {
    Start {
        time: 0,
        wall_clock: 0,
        version: String::new(),
        host: String::new(),
        command: Vec::new(),
        mode: crate::event::Mode::default(),
        frequency: 0,
    }
}
