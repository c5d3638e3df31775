//! Descriptions that frequent events refer to, such as stacks and names. Each arrives once and is valid for later events,
//! so it is kept when the events around it are discarded. Bounded: descriptions of ended processes are removed, and so
//! are stacks that the window does not use; what does not fit is counted.
//!
//! Above 131,072 stacks, those that the window does not use are removed, and the probes send them again if they recur.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Event, Frame, Loss, LossCause, Origin, Process, ProcessId, SessionId, Stack, StackId};

/// The number of stacks above which unused ones are removed. The probes remember that they sent at most half as many.
const MANY_STACKS: usize = 1 << 17;
/// The number of other descriptions above which those of ended processes are removed, and the most that are kept.
const MANY_FACTS: usize = 1 << 16;
const MOST_FACTS: usize = 1 << 20;
/// How far up the ancestors of a process are kept: a forked process has the mappings of its parent.
const MOST_ANCESTORS: usize = 64;

/// What a description describes. In the order in which a recording contains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Process(ProcessId),
    Exit(ProcessId),
    Thread(ProcessId, u32),
    Mapping(u64),
    Session(SessionId),
    Rank(SessionId),
    Device(SessionId, u32),
    KernelName(SessionId, u32),
    RangeName(SessionId, u32),
    Pause(SessionId, u32),
    Counter(u32),
    Point(u32),
    Note(u64),
    Symbol(ProcessId, u8, u64, u64),
}

/// All descriptions.
#[derive(Default)]
pub struct Facts {
    known: FxHashMap<Key, Arc<Event>>,
    /// With the time of their last use.
    stacks: FxHashMap<StackId, (Arc<Stack>, u64)>,
    noted: FxHashSet<String>,
    /// Numbers those that have no number.
    next: u64,
    /// The number of descriptions at which those of ended processes are removed.
    many: usize,
    refused: u64,
}

impl Facts {
    /// Returns the stack with this id, if it is known.
    pub fn stack(&self, id: StackId) -> Option<&Stack> {
        self.stacks.get(&id).map(|(stack, _)| stack.as_ref())
    }

    /// Adds a description; `false` if the event is none.
    pub fn add(&mut self, event: &Event, now: u64) -> bool {
        self.next += 1;
        let key = match event {
            Event::Stack(stack) => {
                self.stacks.insert(stack.id, (Arc::new(stack.clone()), now));
                return true;
            }
            Event::Process(e) => Key::Process(e.id),
            Event::Exit(e) => Key::Exit(e.process),
            Event::Thread(e) => Key::Thread(e.process, e.tid),
            Event::Mapping(_) => Key::Mapping(self.next),
            Event::Session(e) => Key::Session(e.id),
            Event::Rank(e) => Key::Rank(e.session),
            Event::Device(e) => Key::Device(e.session, e.index),
            Event::KernelName(e) => Key::KernelName(e.session, e.id),
            Event::RangeName(e) => Key::RangeName(e.session, e.id),
            // It may be reported before the window, and end in it.
            Event::Pause(e) => Key::Pause(e.session, e.number),
            Event::Counter(e) => Key::Counter(e.id.0),
            Event::CounterPoint(e) => Key::Point(e.id.0),
            Event::Note(e) => {
                if self.noted.len() >= MANY_FACTS || !self.noted.insert(e.text.clone()) {
                    return true;
                }
                Key::Note(self.next)
            }
            Event::Symbol(e) => {
                let (kind, number) = match e.frame {
                    Frame::User(address) => (0, address),
                    Frame::Kernel(address) => (1, address),
                    Frame::Python(number) => (2, number.into()),
                };
                Key::Symbol(e.process, kind, number, e.since)
            }
            _ => return false,
        };
        if self.known.len() >= MOST_FACTS && !self.known.contains_key(&key) {
            self.refused += 1;
        } else {
            self.known.insert(key, Arc::new(event.clone()));
        }
        true
    }

    /// Notes that an event refers to a stack.
    pub fn refer(&mut self, event: &Event, now: u64) {
        if let Some((_, used)) = stack_of(event).and_then(|id| self.stacks.get_mut(&id)) {
            *used = now;
        }
    }

    /// Whether there are so many that some should be removed.
    pub fn are_many(&self) -> bool {
        self.stacks.len() > MANY_STACKS || self.known.len() > self.many.max(MANY_FACTS)
    }

    /// Removes the descriptions of processes that ended before this time, except of ancestors of the others.
    pub fn forget_ended(&mut self, horizon: u64) {
        self.known.retain(|_, event| !matches!(event.as_ref(), Event::Pause(pause) if pause.to < horizon));
        let ended = |id: ProcessId| match self.known.get(&Key::Exit(id)).map(AsRef::as_ref) {
            Some(Event::Exit(exit)) => exit.time < horizon,
            _ => false,
        };
        let process = |id: ProcessId| match self.known.get(&Key::Process(id)).map(AsRef::as_ref) {
            Some(Event::Process(process)) => Some(process),
            _ => None,
        };
        let mut keep = FxHashSet::default();
        for key in self.known.keys() {
            let Key::Process(id) = *key else { continue };
            if ended(id) {
                continue;
            }
            let ancestors = std::iter::successors(process(id), |child: &&Process| {
                (child.origin != Origin::Found).then(|| process(child.parent)).flatten()
            });
            keep.extend(ancestors.take(MOST_ANCESTORS).map(|process| process.id));
        }
        let gone: FxHashSet<ProcessId> = self
            .known
            .keys()
            .filter_map(|key| match key {
                Key::Process(id) if !keep.contains(id) => Some(*id),
                _ => None,
            })
            .collect();
        if !gone.is_empty() {
            self.remove(&gone);
        }
        self.many = self.known.len() * 2;
    }

    fn remove(&mut self, gone: &FxHashSet<ProcessId>) {
        let of_gone = |(_, event): (&Key, &Arc<Event>)| match event.as_ref() {
            Event::Session(session) if gone.contains(&session.process) => Some(session.id),
            _ => None,
        };
        let sessions: FxHashSet<SessionId> = self.known.iter().filter_map(of_gone).collect();
        self.known.retain(|key, event| match key {
            Key::Process(id) | Key::Exit(id) | Key::Thread(id, _) | Key::Symbol(id, ..) => !gone.contains(id),
            Key::Mapping(_) => !matches!(event.as_ref(), Event::Mapping(mapping) if gone.contains(&mapping.process)),
            Key::Session(id) | Key::Rank(id) => !sessions.contains(id),
            Key::Device(id, _) | Key::KernelName(id, _) => !sessions.contains(id),
            Key::RangeName(id, _) | Key::Pause(id, _) => !sessions.contains(id),
            Key::Counter(_) | Key::Point(_) | Key::Note(_) => true,
        });
        self.stacks.retain(|_, (stack, _)| !gone.contains(&stack.process));
    }

    /// Removes stacks that were last used before this time, except some, if there are many. Returns them.
    pub fn forget_stacks(&mut self, horizon: u64, keep: &FxHashSet<StackId>) -> Vec<(ProcessId, StackId)> {
        if self.stacks.len() <= MANY_STACKS {
            return Vec::new();
        }
        let unused = self.stacks.extract_if(|id, (_, used)| *used < horizon && !keep.contains(id));
        let mut gone: Vec<_> = unused.map(|(id, (stack, _))| (stack.process, id)).collect();
        // The window itself uses too many: those that were used longest ago are missing.
        if self.stacks.len() > MANY_STACKS {
            let mut by_use: Vec<(u64, StackId)> = self.stacks.iter().map(|(id, (_, used))| (*used, *id)).collect();
            by_use.sort_unstable();
            for (_, id) in by_use.iter().take(self.stacks.len() - MANY_STACKS / 2) {
                gone.extend(self.stacks.remove(id).map(|(stack, _)| (stack.process, *id)));
            }
        }
        gone
    }

    /// Returns all, in the order in which a recording contains them.
    pub fn all(&self) -> All {
        let mut known: Vec<(Key, Arc<Event>)> = self.known.iter().map(|(key, event)| (*key, event.clone())).collect();
        known.sort_unstable_by_key(|(key, _)| *key);
        let lost = (self.refused > 0)
            .then(|| Arc::new(Event::Loss(Loss { cause: LossCause::EventsNotWritten, count: self.refused })));
        All {
            events: known.into_iter().map(|(_, event)| event).chain(lost).collect(),
            stacks: self.stacks.values().map(|(stack, _)| stack.clone()).collect(),
        }
    }
}

/// A copy of all descriptions, which shares their memory.
#[derive(Debug)]
pub struct All {
    /// All but stacks.
    pub events: Vec<Arc<Event>>,
    /// The stacks.
    pub stacks: Vec<Arc<Stack>>,
}

/// Returns the stack that an event refers to.
pub fn stack_of(event: &Event) -> Option<StackId> {
    match event {
        Event::Launch(e) => Some(e.stack),
        Event::Sample(e) => Some(e.stack),
        Event::Wait(e) => Some(e.stack),
        Event::Hits(e) => Some(e.stack),
        Event::NodeStack(e) => Some(e.stack),
        Event::Switch(e) => e.stack,
        Event::Call(e) => e.stack,
        _ => None,
    }
}
