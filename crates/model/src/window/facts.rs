//! Descriptions that frequent events refer to, such as stacks and names. Each arrives once and is valid for later events,
//! so it is kept when the events around it are discarded. Bounded: descriptions of ended processes are removed, and so
//! are stacks that the window does not use; what does not fit is counted.
//!
//! Above 131,072 stacks, those that the window does not use are removed, and the probes send them again if they recur.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    event::{Event, Key, Kind, Loss, LossCause, Origin, Owner, ProcessId, SessionId, Stack, StackId},
    recording::Field,
};

/// The number of stacks above which unused ones are removed. The probes remember that they sent at most half as many.
const MANY_STACKS: usize = 1 << 17;
/// The number of other descriptions above which those of ended processes are removed, and the most that are kept.
const MANY_FACTS: usize = 1 << 16;
const MOST_FACTS: usize = 1 << 20;
/// How far up the ancestors of a process are kept: a forked process has the mappings of its parent.
const MOST_ANCESTORS: usize = 64;

/// All descriptions.
#[derive(Default)]
pub struct Facts {
    /// In the order of their kinds in a recording.
    known: FxHashMap<(Kind, Key), Arc<Event>>,
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
        if let Event::Stack(stack) = event {
            self.stacks.insert(stack.id, (Arc::new(stack.clone()), now));
            return true;
        }
        let Some(mut key) = event.key() else { return false };
        if let Event::Note(note) = event
            && (self.noted.len() >= MANY_FACTS || !self.noted.insert(note.text.clone()))
        {
            return true;
        }
        if key.is_empty() {
            self.next += 1;
            key.push(self.next);
        }
        let key = (event.kind(), key);
        if self.known.len() >= MOST_FACTS && !self.known.contains_key(&key) {
            self.refused += 1;
        } else {
            self.known.insert(key, Arc::new(event.clone()));
        }
        true
    }

    /// Notes that an event refers to a stack.
    pub fn refer(&mut self, event: &Event, now: u64) {
        if let Some(id) = event.stack() {
            self.used(id, now);
        }
    }

    /// Notes that a stack is needed.
    pub fn used(&mut self, id: StackId, now: u64) {
        if let Some((_, used)) = self.stacks.get_mut(&id) {
            *used = now;
        }
    }

    /// Returns when a process ended, if it has.
    pub fn ended(&self, process: ProcessId) -> Option<u64> {
        let key = Key::default().with(&process, Field::key);
        match self.known.get(&(Kind::Exit, key))?.as_ref() {
            Event::Exit(exit) => Some(exit.time),
            _ => None,
        }
    }

    /// Whether there are so many that some should be removed.
    pub fn are_many(&self) -> bool {
        self.stacks.len() > MANY_STACKS || self.known.len() > self.many.max(MANY_FACTS)
    }

    /// Removes the descriptions of processes that ended before this time, except of ancestors of the others.
    pub fn forget_ended(&mut self, horizon: u64) {
        self.known.retain(|_, event| !matches!(event.as_ref(), Event::Pause(pause) if pause.to < horizon));
        let (mut processes, mut ended) = (FxHashMap::default(), FxHashSet::default());
        for event in self.known.values() {
            match event.as_ref() {
                Event::Process(process) => drop(processes.insert(process.id, process)),
                Event::Exit(exit) if exit.time < horizon => drop(ended.insert(exit.process)),
                _ => {}
            }
        }
        let mut keep = FxHashSet::default();
        for process in processes.values().filter(|process| !ended.contains(&process.id)) {
            let ancestors = std::iter::successors(Some(process), |child| {
                (child.origin != Origin::Found).then(|| processes.get(&child.parent)).flatten()
            });
            keep.extend(ancestors.take(MOST_ANCESTORS).map(|process| process.id));
        }
        let gone: FxHashSet<ProcessId> = processes.into_keys().filter(|id| !keep.contains(id)).collect();
        if !gone.is_empty() {
            self.remove(&gone);
        }
        self.many = self.known.len() * 2;
    }

    fn remove(&mut self, gone: &FxHashSet<ProcessId>) {
        let of_gone = |event: &Arc<Event>| match event.as_ref() {
            Event::Session(session) if gone.contains(&session.process) => Some(session.id),
            _ => None,
        };
        let sessions: FxHashSet<SessionId> = self.known.values().filter_map(of_gone).collect();
        self.known.retain(|_, event| match event.owner() {
            Some(Owner::Process(id)) => !gone.contains(&id),
            Some(Owner::Session(id)) => !sessions.contains(&id),
            Some(Owner::Gpu) | None => true,
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
        let mut known: Vec<_> = self.known.iter().map(|(key, event)| (*key, event.clone())).collect();
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
