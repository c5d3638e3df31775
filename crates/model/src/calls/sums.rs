//! Sums up calls as they arrive: by function, and by their effect for the program.
//!
//! Memory grows with functions, kernels and live allocations, not with calls.

use std::collections::BTreeMap;

use cuda::{
    calls::{Direction, Facts, KernelRef, Role, Space, Way},
    memory::Action,
};
use rustc_hash::FxHashMap;

use super::{
    amounts::{CallSum, Moved, Switches, ThreadSum, add},
    facts::{captured, command, is_error, known},
    memory::{Accounts, Allocated, Spaces},
    names::{KernelNames, SeenHandle},
    nesting::Nesting,
    slowest::Slowest,
    tier::{Tier, TierSum},
};
use crate::event::{Call, ErrorSum, Function, FunctionId, KernelSum, Layer, MemorySum, ProcessId, Sum, Switch};

/// Commands that have sums of their own: there are about 2,000, but a program may pass any number.
const MOST_COMMANDS: usize = 4096;

/// The summed calls of a trace.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The functions that can be called.
    pub functions: BTreeMap<FunctionId, Function>,
    /// Calls by function and process.
    pub sums: FxHashMap<(ProcessId, FunctionId), CallSum>,
    /// Failed calls by function and result. If a call fails because a nested call failed, only the outer call counts.
    pub errors: BTreeMap<(FunctionId, u32), u64>,
    /// Failed calls nested in calls that return a status of their own.
    pub enclosed_errors: BTreeMap<(FunctionId, u32), u64>,
    /// Calls that had not returned when their thread or the trace ended.
    pub unfinished: u64,
    /// Memory by kind.
    pub memory: Spaces,
    /// Copies by direction.
    pub copies: BTreeMap<Direction, Moved>,
    /// Memsets.
    pub sets: Moved,
    /// Launches by process and kernel; `None` where the call does not identify the kernel.
    pub launches: FxHashMap<(ProcessId, Option<KernelRef>), u64>,
    /// Launches of whole graphs.
    pub graph_launches: u64,
    /// Off-CPU intervals of threads.
    pub switches: Switches,
    /// The slowest calls.
    pub slowest: Slowest,
    /// Names of kernels.
    pub names: KernelNames,
    /// Requests to the driver by function and command. `None`: without a command, or beyond [`MOST_COMMANDS`].
    pub requests: BTreeMap<(FunctionId, Option<u32>), CallSum>,
    /// Outermost calls by thread.
    pub threads: BTreeMap<(ProcessId, u32), ThreadSum>,
    /// When the first displayed call began.
    pub first: Option<u64>,
    /// Calls that launched GPU work, or tried to.
    pub launching: u64,
    /// How calls are nested.
    pub nesting: Nesting,
    /// Time in the calls of each tier, for calls that were summed up in the kernel.
    summed: [u64; Tier::ALL.len()],
    accounts: Accounts,
    known: FxHashMap<FunctionId, Known>,
}

/// Facts about a function, looked up once.
#[derive(Clone, Copy, Debug)]
struct Known {
    call: &'static cuda::calls::Call,
    action: Option<Action>,
    summed: bool,
    names_kernels: bool,
}

impl Calls {
    /// Whether nothing was traced.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the host functions that were launched as kernels and have no kernel name yet: (image, address).
    pub fn unnamed_stubs(&self) -> impl Iterator<Item = (ProcessId, u64)> {
        self.launches.keys().filter_map(|&(process, kernel)| match kernel? {
            KernelRef::HostStub(address) if self.names.get(process, KernelRef::HostStub(address)).is_none() => {
                Some((process, address))
            }
            _ => None,
        })
    }

    /// Returns the handles that were launched or looked up and have no kernel name yet: (image, handle).
    pub fn unnamed_handles(&self) -> impl Iterator<Item = (ProcessId, u64)> {
        let launched = self.launches.keys().filter_map(|&(process, kernel)| match kernel? {
            KernelRef::Handle(handle) if self.names.get(process, KernelRef::Handle(handle)).is_none() => {
                Some((process, handle))
            }
            _ => None,
        });
        launched.chain(self.names.unnamed())
    }

    /// Returns the handles of kernels in the calls of a process, at most this many.
    pub fn seen_handles(&self, process: ProcessId, most: usize) -> Vec<SeenHandle> {
        let launched = self.launches.keys().filter_map(|&(of, kernel)| match kernel? {
            KernelRef::Handle(handle) if of == process => Some(handle),
            _ => None,
        });
        self.names.seen(process, launched, most)
    }

    pub(crate) fn function(&mut self, function: &Function) {
        self.functions.insert(function.id, function.clone());
        // A corrupt recording may declare a function twice.
        self.known.remove(&function.id);
        if let Some(call) = known(function) {
            let (action, summed, names_kernels) = (call.action(), call.is_summed(), call.names_kernels());
            self.known.insert(function.id, Known { call, action, summed, names_kernels });
        }
    }

    pub(crate) fn call(&mut self, call: &Call) {
        let Some(function) = self.functions.get(&call.function) else { return };
        if function.shown {
            self.first = Some(self.first.map_or(call.start, |first| first.min(call.start)));
        }
        let inside_ns = match Tier::of(function).filter(|_| function.shown) {
            Some(tier) => self.place(call, tier),
            None if function.shown => self.nesting.moment((call.process, call.tid), call.around).inside_ns,
            None => 0,
        };
        let Some(function) = self.functions.get(&call.function) else { return };
        add(&mut self.launching, (call.launches && function.shown).into());
        let Some(ns) = call.duration() else {
            add(&mut self.unfinished, 1);
            return;
        };
        let failed = is_error(function, call.result);
        let known = self.known.get(&call.function).copied();
        let facts = known.filter(|known| known.summed).map(|known| known.call.facts(&captured(call)));
        let sum = self.sums.entry((call.process, call.function)).or_default();
        let self_ns = ns.saturating_sub(inside_ns);
        sum.add_call(call, ns, self_ns, failed);
        if failed {
            let errors = if call.enclosed { &mut self.enclosed_errors } else { &mut self.errors };
            add(errors.entry((call.function, call.result as u32)).or_default(), 1);
        } else if let Some(facts) = &facts {
            add(&mut sum.bytes, facts.bytes.unwrap_or(0));
        }
        if function.layer == Layer::Driver {
            let full = self.requests.len() >= MOST_COMMANDS;
            let key = (call.function, command(function, call));
            let key = if full && !self.requests.contains_key(&key) { (call.function, None) } else { key };
            self.requests.entry(key).or_default().add_call(call, ns, self_ns, failed);
        }
        if function.layer != Layer::Point && function.shown {
            self.slowest.offer(call, ns);
        }
        let Some(known) = known else { return };
        if known.names_kernels {
            self.names.learn_from(known.call, call);
            self.names.learn_objects(known.call, call);
        }
        if known.call.role == Role::Launch
            && !failed
            && let Some(kernel) = facts.as_ref().and_then(|facts| facts.kernel)
        {
            self.names.learn_from_launch(call, kernel);
        }
        match known.action {
            Some(Action::Alloc | Action::Free) | None => {}
            Some(action) if !failed => self.accounts.context(call, action, &mut self.memory),
            Some(_) => {}
        }
        if let Some(facts) = facts
            && !call.nested
        {
            self.add_effect(call, known.call, &facts, failed, ns);
        }
    }

    /// Places a call in the nesting of its thread. Returns the time in its nested calls.
    fn place(&mut self, call: &Call, tier: Tier) -> u64 {
        let before = self.nesting.outermost.ns;
        let thread = (call.process, call.tid);
        let placed = self.nesting.call(thread, tier, call.start, call.around, call.duration());
        let outermost = self.nesting.outermost.ns - before;
        if placed.parent.is_none() || outermost > 0 {
            let sum = self.threads.entry(thread).or_default();
            add(&mut sum.count, placed.parent.is_none().into());
            add(&mut sum.ns, outermost);
        }
        placed.inside_ns
    }

    /// Ends the input.
    pub(crate) fn finish(&mut self) {
        self.nesting.finish();
    }

    /// Returns the sums of each tier, from the program to the hardware; tiers without calls are omitted.
    pub fn tiers(&self) -> Vec<(Tier, TierSum)> {
        let mut sums = [TierSum::default(); Tier::ALL.len()];
        for (tier, sum) in sums.iter_mut().enumerate() {
            sum.total_ns = self.nesting.outermost.by_tier[tier].saturating_add(self.summed[tier]);
        }
        for ((_, id), part) in &self.sums {
            let function = self.functions.get(id).filter(|function| function.shown);
            let Some(tier) = function.and_then(Tier::of) else { continue };
            add(&mut sums[tier as usize].calls, part.count);
            add(&mut sums[tier as usize].self_ns, part.self_ns);
        }
        Tier::ALL.into_iter().zip(sums).filter(|(_, sum)| sum.calls > 0).collect()
    }

    /// Adds the effect of a call that is the outermost of its role.
    fn add_effect(&mut self, call: &Call, known: &cuda::calls::Call, facts: &Facts, failed: bool, ns: u64) {
        let bytes = facts.bytes.unwrap_or(0);
        match (known.role, known.space) {
            (Role::Alloc, Some(space)) if failed => add(&mut self.memory.entry(space).or_default().failed, 1),
            (Role::Alloc, Some(space)) => {
                self.accounts.allocated(call, &Allocated { space, address: facts.address, bytes }, &mut self.memory);
            }
            (Role::Free, Some(space)) => self.accounts.freed(call, space, failed, &mut self.memory),
            _ if failed => {}
            (Role::Copy, _) => {
                self.copies.entry(facts.direction.unwrap_or(Direction::Default)).or_default().add(bytes, ns);
            }
            (Role::Set, _) => self.sets.add(bytes, ns),
            (Role::Launch, _) => add(self.launches.entry((call.process, facts.kernel)).or_default(), 1),
            (Role::GraphLaunch, _) => add(&mut self.graph_launches, 1),
            _ => {}
        }
    }

    /// Learns names from a call in a trace of sums, whose sums already include the call.
    pub(crate) fn learn_names(&mut self, call: &Call) {
        if let Some(known) = self.known.get(&call.function) {
            self.names.learn_from(known.call, call);
            self.names.learn_objects(known.call, call);
        }
    }

    pub(crate) fn switch(&mut self, switch: &Switch) {
        self.nesting.moment((switch.process, switch.tid), switch.around);
        let ns = switch.end.saturating_sub(switch.start);
        let sums = &mut self.switches;
        add(&mut sums.count, 1);
        add(&mut sums.ns, ns);
        if switch.preempted {
            add(&mut sums.preempted, 1);
            add(&mut sums.preempted_ns, ns);
        }
        if switch.depth > 0 {
            add(&mut sums.in_calls, 1);
            add(&mut sums.in_calls_ns, ns);
        }
    }

    pub(crate) fn sum(&mut self, sum: &Sum) {
        let Some(function) = self.functions.get(&sum.function) else { return };
        if let Some(tier) = Tier::of(function).filter(|_| function.shown) {
            add(&mut self.summed[tier as usize], sum.outer_ns);
        }
        let nested = if sum.nested { sum.count } else { 0 };
        let mut part = CallSum {
            count: sum.count,
            errors: sum.errors,
            nested,
            inner: nested,
            ns: sum.ns,
            self_ns: sum.self_ns,
            max_ns: sum.max_ns,
            bytes: sum.bytes,
            ..CallSum::default()
        };
        part.histogram.merge(&sum.buckets, sum.min_ns, sum.max_ns);
        self.sums.entry((sum.process, sum.function)).or_default().merge(&part);
        if function.layer == Layer::Driver {
            self.requests.entry((sum.function, None)).or_default().merge(&part);
        }
        let Some(known) = cuda::call(&function.name).filter(|_| !sum.nested) else { return };
        let done = sum.count.saturating_sub(sum.errors);
        let moved = Moved { count: done, bytes: sum.bytes, ns: sum.ns };
        match known.role {
            Role::Copy => {
                let direction = match known.sums().and_then(|s| s.direction) {
                    Some(Way::Fixed(direction)) => Some(direction),
                    Some(Way::Word(_)) => Direction::from_kind(sum.class.into()),
                    None => None,
                };
                self.copies.entry(direction.unwrap_or(Direction::Default)).or_default().merge(moved);
            }
            Role::Set => self.sets.merge(moved),
            // Launches of kernels that the call identifies have sums of their own.
            Role::Launch if known.launches().is_none() => {
                add(self.launches.entry((sum.process, None)).or_default(), done);
            }
            Role::GraphLaunch => add(&mut self.graph_launches, done),
            _ => {}
        }
    }

    pub(crate) fn error_sum(&mut self, sum: ErrorSum) {
        let errors = if sum.enclosed { &mut self.enclosed_errors } else { &mut self.errors };
        add(errors.entry((sum.function, sum.code)).or_default(), sum.count);
    }

    pub(crate) fn memory_sum(&mut self, sum: &MemorySum) {
        let space = Space::ALL.get(usize::from(sum.space)).copied().unwrap_or(Space::Device);
        let (memory, part) = (self.memory.entry(space).or_default(), &sum.memory);
        add(&mut memory.allocations, part.allocations);
        add(&mut memory.bytes, part.bytes);
        add(&mut memory.failed, part.failed);
        add(&mut memory.frees, part.frees);
        add(&mut memory.failed_frees, part.failed_frees);
        add(&mut memory.unknown_frees, part.unknown_frees);
        add(&mut memory.missed_frees, part.missed_frees);
        add(&mut memory.released, part.released);
        add(&mut memory.untracked, part.untracked);
        add(&mut memory.live, part.live);
        add(&mut memory.live_bytes, part.live_bytes);
        // The peaks of several processes need not coincide: it is only known that one process reached this much.
        memory.peak_bytes = memory.peak_bytes.max(part.peak_bytes);
    }

    pub(crate) fn kernel_sum(&mut self, sum: KernelSum) {
        add(self.launches.entry((sum.process, sum.kernel)).or_default(), sum.count);
    }
}
