//! Accounting of live memory, call by call. [`cuda::memory`] defines the rules.

use std::collections::BTreeMap;

use cuda::{
    calls::Space,
    memory::{Action, Group},
};
use rustc_hash::FxHashMap;

use super::amounts::add;
use crate::event::{Call, Memory, ProcessId};

/// Memory by kind.
pub type Spaces = BTreeMap<Space, Memory>;

/// The live allocations, where they are, and the current context of each thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    live: FxHashMap<Key, Live>,
    /// What was at an address before it was reused without a seen free: the free may still be in progress.
    replaced: FxHashMap<Key, Replaced>,
    threads: FxHashMap<(ProcessId, u32), Current>,
    /// Primary contexts by handle.
    primaries: FxHashMap<(ProcessId, u64), Place>,
    references: FxHashMap<(ProcessId, Place), References>,
    /// What happened to single allocations; absent if nobody reads it.
    changes: Option<Vec<Change>>,
}

/// What happened to one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It began to be live.
    Began { space: Space, address: u64, bytes: u64, place: Place },
    /// It is no longer live.
    Ended { group: Group, address: u64 },
}

type Key = (ProcessId, Group, u64);

/// The owner of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A device's primary context.
    Device(u32),
    /// A context created by the program.
    Context(u64),
}

#[derive(Clone, Copy, Debug)]
struct Live {
    space: Space,
    bytes: u64,
    time: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
struct Replaced {
    space: Space,
    /// When the address was reused.
    time: u64,
}

/// The contexts of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    place: Option<Place>,
    below: Option<Place>,
}

/// References to a primary context.
#[derive(Clone, Copy, Debug, Default)]
struct References {
    seen: u64,
    /// There are references that were not seen.
    unseen: bool,
}

/// An allocation as its call describes it.
pub(crate) struct Allocated {
    pub space: Space,
    pub address: Option<u64>,
    pub bytes: u64,
}

impl Accounts {
    /// Creates an account that also reports each change.
    pub fn with_changes() -> Self {
        Self { changes: Some(Vec::new()), ..Self::default() }
    }

    /// Returns the changes since the last call of this function, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change);
        }
    }

    /// Adds a successful allocation.
    pub fn allocated(&mut self, call: &Call, new: &Allocated, memory: &mut Spaces) {
        let &Allocated { space, address, bytes } = new;
        let sum = memory.entry(space).or_default();
        add(&mut sum.allocations, 1);
        add(&mut sum.bytes, bytes);
        let Some(address) = address else { return };
        let place = self.place(call);
        if let Place::Device(_) = place {
            let references = self.references.entry((call.process, place)).or_default();
            // The context exists, so something has retained it.
            references.unseen |= references.seen == 0;
        }
        let key = (call.process, space.group(), address);
        if let Some(before) = self.live.insert(key, Live { space, bytes, time: call.end, place }) {
            add(&mut before.end(memory).missed_frees, 1);
            self.replaced.insert(key, Replaced { space: before.space, time: call.end });
            self.note(Change::Ended { group: key.1, address });
        }
        self.note(Change::Began { space, address, bytes, place });
        let sum = memory.entry(space).or_default();
        add(&mut sum.live, 1);
        add(&mut sum.live_bytes, bytes);
        sum.peak_bytes = sum.peak_bytes.max(sum.live_bytes);
    }

    /// Adds a free that returned. `space` is that of its function.
    pub fn freed(&mut self, call: &Call, space: Space, failed: bool, memory: &mut Spaces) {
        let Some(address) = call.words.first().copied().filter(|address| *address != 0) else { return };
        let key = (call.process, space.group(), address);
        // A free does not release what was allocated after it began.
        let live = self.live.get(&key).copied().filter(|live| live.time <= call.start);
        let replaced = self.replaced.get(&key).copied().filter(|replaced| live.is_none() && call.start < replaced.time);
        let space = live.map(|live| live.space).or(replaced.map(|replaced| replaced.space)).unwrap_or(space);
        let sum = memory.entry(space).or_default();
        if failed {
            add(&mut sum.failed_frees, 1);
            return;
        }
        add(&mut sum.frees, 1);
        if let Some(live) = live {
            self.live.remove(&key);
            live.end(memory);
            self.note(Change::Ended { group: key.1, address });
        } else if replaced.is_some() {
            // This is the free that seemed to be missing.
            self.replaced.remove(&key);
            sum.missed_frees = sum.missed_frees.saturating_sub(1);
        } else {
            add(&mut sum.unknown_frees, 1);
        }
    }

    /// Adds a successful call that affects contexts.
    pub fn context(&mut self, call: &Call, action: Action, memory: &mut Spaces) {
        let process = call.process;
        let word = |at: usize| call.words.get(at).copied().unwrap_or(0);
        let device = |at: usize| Place::Device(word(at) as u32);
        let known = |handle: u64| self.primaries.get(&(process, handle)).copied().unwrap_or(Place::Context(handle));
        let set = (word(0) != 0).then(|| known(word(0)));
        let thread = self.threads.entry((process, call.tid)).or_default();
        match action {
            Action::Alloc | Action::Free => {}
            Action::SetDevice => thread.place = Some(device(0)),
            Action::SetContext => thread.place = set,
            Action::PushContext => *thread = Current { place: set, below: thread.place },
            Action::PopContext => *thread = Current { place: thread.below, below: None },
            Action::CreateContext => {
                if let Some(handle) = call.out {
                    *thread = Current { place: Some(Place::Context(handle)), below: thread.place };
                }
            }
            Action::DestroyContext => {
                let place = Place::Context(word(0));
                if thread.place == Some(place) {
                    *thread = Current { place: thread.below, below: None };
                }
                self.release(call, place, memory);
            }
            Action::RetainPrimary => {
                add(&mut self.references.entry((process, device(1))).or_default().seen, 1);
                if let Some(handle) = call.out.filter(|handle| *handle != 0) {
                    self.primaries.insert((process, handle), device(1));
                }
            }
            Action::ReleasePrimary => {
                let references = self.references.entry((process, device(0))).or_default();
                let last = references.seen == 1 && !references.unseen;
                references.seen = references.seen.saturating_sub(1);
                if last {
                    self.release(call, device(0), memory);
                }
            }
            Action::ResetPrimary => self.release(call, device(0), memory),
            Action::ResetDevice => {
                let place = self.place(call);
                if let Place::Device(_) = place {
                    self.release(call, place, memory);
                }
            }
        }
    }

    /// Returns the current context of a call's thread.
    fn place(&self, call: &Call) -> Place {
        self.threads.get(&(call.process, call.tid)).and_then(|thread| thread.place).unwrap_or(Place::Device(0))
    }

    /// Releases everything that was allocated at a place before a call began.
    fn release(&mut self, call: &Call, place: Place, memory: &mut Spaces) {
        let changes = &mut self.changes;
        self.live.retain(|&(process, group, address), live| {
            let goes = process == call.process && live.place == place && live.time <= call.start;
            let goes = goes && group.has_context();
            if goes {
                add(&mut live.end(memory).released, 1);
                if let Some(changes) = changes {
                    changes.push(Change::Ended { group, address });
                }
            }
            !goes
        });
    }
}

impl Live {
    /// Marks it as no longer live, and returns the sum that contained it.
    fn end(self, memory: &mut Spaces) -> &mut Memory {
        let sum = memory.entry(self.space).or_default();
        sum.live = sum.live.saturating_sub(1);
        sum.live_bytes = sum.live_bytes.saturating_sub(self.bytes);
        sum
    }
}
