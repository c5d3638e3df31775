//! The memory of one process: driver allocations, the tensors in them, and what each allocation is used for.

use std::collections::BTreeMap;

use cuda::{calls::Space, memory::Group};
use rustc_hash::FxHashMap;

use super::{blocks, moment::Use, sums::Sums};
use crate::event::{Call, StackId, Tensor};

/// The most allocations of a thread that are not decided yet.
const MOST_FRESH: usize = 1 << 12;

/// The memory of a process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) devices: BTreeMap<u32, Sums>,
    /// Driver allocations by group and address or handle.
    holdings: FxHashMap<Key, Holding>,
    /// The addresses of those that have some.
    regions: BTreeMap<u64, Region>,
    tensors: BTreeMap<u64, Block>,
    /// Allocations of each thread that are not decided yet.
    pub(super) fresh: FxHashMap<u32, Vec<Key>>,
    has_tensors: bool,
    /// When it began to shut down; nothing counts from then on.
    pub(super) shut_down: Option<u64>,
}

/// A group and an address or handle.
type Key = (Group, u64);

/// A driver allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    bytes: u64,
    device: u32,
    stack: StackId,
    /// When it was allocated.
    since: u64,
    class: Class,
    /// The bytes of the tensors in it.
    used: u64,
    /// How often it is mapped, and whether its handle was released: it lives until neither holds it.
    mappings: u32,
    released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Fresh,
    Segment,
    Other,
}

/// Addresses of a driver allocation.
#[derive(Clone, Copy, Debug)]
struct Region {
    end: u64,
    owner: Key,
}

impl Region {
    /// The part of an expandable segment.
    fn is_expandable(&self) -> bool {
        self.owner.0 == Group::Physical
    }
}

/// A tensor.
#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    device: u32,
    stack: StackId,
}

impl Process {
    /// Adds a driver allocation; false if it is not GPU memory of its own.
    pub(super) fn began(&mut self, call: &Call, space: Space, address: u64, holding: Holding) -> bool {
        let key = (space.group(), address);
        match space {
            Space::Device | Space::Managed => {
                self.regions.insert(address, Region { end: address.saturating_add(holding.bytes), owner: key });
            }
            Space::Array | Space::Physical => {}
            Space::Mapped => {
                let owner = (Group::Physical, call.words.get(3).copied().unwrap_or(0));
                self.regions.insert(address, Region { end: address.saturating_add(holding.bytes), owner });
                if let Some(owner) = self.holdings.get_mut(&owner) {
                    owner.mappings = owner.mappings.saturating_add(1);
                }
                return false;
            }
            Space::Host | Space::Registered | Space::Reserved | Space::Imported => return false,
        }
        let fresh = self.fresh.entry(call.tid).or_default();
        let decided = space == Space::Array || fresh.len() >= MOST_FRESH;
        if !decided {
            fresh.push(key);
        }
        let class = if decided { Class::Other } else { Class::Fresh };
        let holding = Holding { class, ..holding };
        self.holdings.insert(key, holding);
        self.charge(&holding, call.end, true);
        true
    }

    /// Removes a driver allocation or a mapping. Returns the number of tensors that were still in it.
    pub(super) fn ended(&mut self, key: Key, time: u64) -> usize {
        let (group, address) = key;
        if self.holdings.get(&key).is_some_and(|holding| holding.class == Class::Fresh) {
            self.decide(key, Class::Other, None);
            self.settle();
        }
        let mut missed = 0;
        match group {
            Group::Address => missed = self.leave(address, time),
            Group::Mapped => {
                missed = self.leave(address, time);
                let Some(region) = self.regions.remove(&address) else { return missed };
                let Some(owner) = self.holdings.get_mut(&region.owner) else { return missed };
                owner.mappings = owner.mappings.saturating_sub(1);
                if owner.mappings == 0 && owner.released {
                    self.drop_holding(region.owner, time);
                }
                return missed;
            }
            Group::Physical => {
                if let Some(holding) = self.holdings.get_mut(&key).filter(|holding| holding.mappings > 0) {
                    holding.released = true;
                    return 0;
                }
            }
            Group::Array => {}
            Group::Registered | Group::Reserved => return 0,
        }
        if group == Group::Address {
            self.regions.remove(&address);
        }
        self.drop_holding(key, time);
        missed
    }

    fn drop_holding(&mut self, key: Key, time: u64) {
        if let Some(holding) = self.holdings.remove(&key) {
            self.charge(&holding, time, false);
        }
    }

    /// Removes the tensors in a region; returns their number.
    fn leave(&mut self, start: u64, time: u64) -> usize {
        let Some(region) = self.regions.get(&start).copied() else { return 0 };
        self.free_between(start, region.end, time)
    }

    /// Adds a tensor. Returns the number of earlier ones whose memory it uses.
    pub(super) fn tensor(&mut self, tensor: &Tensor) -> usize {
        let &Tensor { tid, time, device, address, bytes, stack, .. } = tensor;
        let rounded = blocks::size(bytes, None);
        let within = |region: &Region, start: u64| start < address.saturating_add(rounded) && address < region.end;
        let owners: Vec<Key> = self.regions_at(address, rounded).map(|(_, region)| region.owner).collect();
        if !self.has_tensors {
            self.first_tensor(&owners, time);
        }
        self.decide_fresh(tid, &owners, Some(device));
        for key in owners {
            self.decide(key, Class::Segment, Some(device));
        }
        self.settle();
        let missed = self.free_between(address, address.saturating_add(rounded), time);
        let room = self.regions.range(..=address).next_back().filter(|(start, region)| within(region, **start));
        let room = room.filter(|(_, region)| !region.is_expandable()).map(|(_, region)| {
            let next = self.tensors.range(address..).next().map_or(region.end, |(next, _)| *next);
            next.min(region.end).saturating_sub(address)
        });
        let block = Block { bytes: blocks::size(bytes, room), device, stack };
        self.tensors.insert(address, block);
        self.sums(device).add(Use::Tensor, stack, block.bytes, time);
        self.occupy(address, block.bytes, time, true);
        missed
    }

    /// From now on, allocations that are not decided do not count. Until now they did: a peak that includes a segment is
    /// none.
    fn first_tensor(&mut self, segments: &[Key], time: u64) {
        let since = segments.iter().filter_map(|key| Some(self.holdings.get(key)?.since)).min();
        for sums in self.devices.values_mut() {
            sums.forget_peak(since.unwrap_or(u64::MAX));
        }
        for key in self.fresh.values().flatten().copied().collect::<Vec<_>>() {
            if let Some(holding) = self.holdings.get(&key).copied() {
                self.charge(&holding, time, false);
            }
        }
        self.has_tensors = true;
    }

    /// Decides what the last allocations of a thread are: segments, or something else.
    pub(super) fn decide_fresh(&mut self, tid: u32, segments: &[Key], device: Option<u32>) {
        for key in self.fresh.remove(&tid).unwrap_or_default() {
            let class = if segments.contains(&key) { Class::Segment } else { Class::Other };
            self.decide(key, class, device);
        }
    }

    /// Frees a tensor; false if there is none at this address.
    pub(super) fn free_tensor(&mut self, address: u64, time: u64) -> bool {
        let Some(block) = self.tensors.remove(&address) else { return false };
        self.sums(block.device).remove(Use::Tensor, block.stack, block.bytes, time);
        self.occupy(address, block.bytes, time, false);
        true
    }

    /// Frees all tensors that overlap a range; returns their number.
    fn free_between(&mut self, start: u64, end: u64, time: u64) -> usize {
        let before = self.tensors.range(..start).next_back();
        let before = before.filter(|(address, block)| address.saturating_add(block.bytes) > start);
        let within = self.tensors.range(start..end.max(start));
        let all: Vec<u64> = before.into_iter().chain(within).map(|(address, _)| *address).collect();
        for address in &all {
            self.free_tensor(*address, time);
        }
        all.len()
    }

    /// Returns the regions that overlap a range.
    fn regions_at(&self, start: u64, bytes: u64) -> impl Iterator<Item = (u64, Region)> + '_ {
        let end = start.saturating_add(bytes);
        let first = self.regions.range(..=start).next_back().map_or(start, |(first, _)| *first);
        let all = self.regions.range(first..end.max(first)).map(|(start, region)| (*start, *region));
        all.filter(move |(at, region)| *at < end && start < region.end)
    }

    /// Marks a part of the segments at an address as used by a tensor, or as free again.
    fn occupy(&mut self, start: u64, bytes: u64, time: u64, used: bool) {
        let end = start.saturating_add(bytes);
        for (at, region) in self.regions_at(start, bytes).collect::<Vec<_>>() {
            let overlap = end.min(region.end).saturating_sub(start.max(at));
            let Some(mut holding) = self.holdings.get(&region.owner).copied() else { continue };
            self.charge(&holding, time, false);
            holding.used =
                if used { holding.used.saturating_add(overlap) } else { holding.used.saturating_sub(overlap) };
            self.charge(&holding, time, true);
            self.holdings.insert(region.owner, holding);
        }
    }

    /// Decides what an allocation is. A segment belongs to the device of its tensors.
    fn decide(&mut self, key: Key, class: Class, device: Option<u32>) {
        let Some(mut holding) = self.holdings.get(&key).copied().filter(|holding| holding.class != class) else {
            return;
        };
        self.charge(&holding, holding.since, false);
        holding.class = class;
        if let (Class::Segment, Some(device)) = (class, device) {
            holding.device = device;
        }
        self.charge(&holding, holding.since, true);
        self.holdings.insert(key, holding);
    }

    /// Adds a driver allocation to the sums, or removes it.
    fn charge(&mut self, holding: &Holding, time: u64, add: bool) {
        let (what, bytes) = match holding.class {
            Class::Fresh if self.has_tensors => return,
            Class::Fresh | Class::Other => (Use::Other, holding.bytes),
            Class::Segment if holding.used >= holding.bytes => return,
            Class::Segment => (Use::Cached, holding.bytes - holding.used),
        };
        let sums = self.sums(holding.device);
        if add {
            sums.add(what, holding.stack, bytes, time);
        } else {
            sums.remove(what, holding.stack, bytes, time);
        }
    }

    fn sums(&mut self, device: u32) -> &mut Sums {
        self.devices.entry(device).or_default()
    }

    /// Returns the sums of each device if what is not decided yet is used by something else than tensors.
    pub(super) fn decided(&self) -> BTreeMap<u32, Sums> {
        let mut devices = self.devices.clone();
        let fresh = self.fresh.values().flatten().filter_map(|key| self.holdings.get(key));
        for holding in fresh.filter(|holding| holding.class == Class::Fresh && self.has_tensors) {
            devices.entry(holding.device).or_default().add(Use::Other, holding.stack, holding.bytes, holding.since);
        }
        devices
    }

    /// Returns the number of tensors.
    pub(super) fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// Makes the current state final: it may be a peak.
    pub(super) fn settle(&mut self) {
        self.devices.values_mut().for_each(Sums::settle);
    }
}

impl Holding {
    /// Creates a holding that is not decided yet.
    pub(super) fn new(bytes: u64, device: u32, stack: StackId, since: u64) -> Self {
        Self { bytes, device, stack, since, class: Class::Fresh, used: 0, mappings: 0, released: false }
    }
}
