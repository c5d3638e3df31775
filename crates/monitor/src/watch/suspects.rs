//! Memory suspects: live allocations, by the call stack that made them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bpf::calls::Site;
use collect::{Collector, sink::Sink as _};
use model::event::{ProcessId, StackId};

use super::{namer::Namer, state::State};
use crate::snapshot::{Frame, Process, Suspect, nanoseconds};

/// The maximum number of suspects of one process.
const MAX_SUSPECTS: usize = 32;

/// How long a stack that was reported by its id may take to arrive from the kernel. After that, its line is unknown.
const TO_ARRIVE_NS: u64 = 60_000_000_000;

/// The remark on memory that PyTorch allocates from CUDA and reuses.
const PYTORCH: &str = "held by PyTorch's caching allocator for reuse: see torch.cuda.memory_stats";

/// A call stack that allocates: process, function, and the first stack with its frames.
pub type Key = (u32, u32, StackId);

/// Bytes at an earlier time, to detect growth.
#[derive(Default)]
pub struct Growth {
    before: HashMap<Key, u64>,
    marked: u64,
}

/// Live allocations of one process with the same frames, regardless of how many stack ids they have.
#[derive(Default)]
pub struct Held {
    bytes: u64,
    count: u64,
    since: u64,
}

impl Growth {
    /// Sets the baseline for growth, once in each interval.
    pub fn mark(&mut self, held: &BTreeMap<Key, Held>, now: u64, interval: Duration) {
        if now.saturating_sub(self.marked) >= nanoseconds(interval) {
            self.before = held.iter().map(|(key, held)| (*key, held.bytes)).collect();
            self.marked = now;
        }
    }

    fn of(&self, key: &Key, bytes: u64) -> i64 {
        bytes.cast_signed() - self.before.get(key).copied().unwrap_or(0).cast_signed()
    }
}

/// Sums sites that have the same call stack.
pub fn held(sites: &[Site], collector: &mut Collector<State>) -> BTreeMap<Key, Held> {
    let mut all = BTreeMap::<Key, Held>::new();
    for site in sites.iter().filter(|site| site.count > 0) {
        let whole = collector.whole_stack(site.image, site.stack, site.python, site.since);
        let stack = collector.sink.canonical(whole);
        let held = all.entry((site.image, site.function, stack)).or_insert(Held { since: u64::MAX, ..Held::default() });
        held.bytes += site.bytes;
        held.count += site.count;
        held.since = held.since.min(site.since);
    }
    all
}

/// Adds the suspects of one process to its part of the snapshot, ordered by bytes plus growth, largest first.
pub fn add(
    process: &mut Process,
    id: ProcessId,
    all: &BTreeMap<Key, Held>,
    growth: &Growth,
    state: &mut State,
    namer: &Namer,
) {
    let mut own: Vec<_> = all.range((id.0, 0, StackId(0))..=(id.0, u32::MAX, StackId(u64::MAX))).collect();
    own.sort_by_key(|(key, held)| {
        let grown = growth.of(key, held.bytes).max(0).unsigned_abs();
        std::cmp::Reverse((held.bytes.saturating_add(grown), **key))
    });
    own.truncate(MAX_SUSPECTS);
    request(id, own.iter().map(|((_, _, stack), _)| *stack), state, namer);
    let now = bpf::now();
    for (key, held) in own {
        let (_, function, stack) = *key;
        let late = stack.0 == 0 || now.saturating_sub(held.since) >= TO_ARRIVE_NS;
        let lost = late && state.stack(stack).is_none();
        let Some(known) = state.processes.get_mut(&id) else { return };
        // Once its line has been reported as unknown, it stays so: another label would be another time series.
        if lost && !known.requested_stacks.contains(&stack) {
            known.requested_stacks.insert(stack);
            known.stack_names.insert(stack, Arc::new([]));
        }
        let named: Option<Arc<[Frame]>> = known.stack_names.get(&stack).cloned();
        let resolving = named.is_none();
        let stack = named.unwrap_or_default();
        merge(
            &mut process.suspects,
            Suspect {
                bytes: held.bytes,
                count: held.count,
                growth: growth.of(key, held.bytes),
                oldest: Duration::from_nanos(now.saturating_sub(held.since)),
                function: state.functions.get(&function).map_or_else(|| "".into(), |function| function.name.clone()),
                remark: remark(&stack, !known.uncached),
                stack,
                resolving,
            },
        );
    }
}

/// Adds a suspect. Stacks whose frames have the same names, such as those of two calls in one function without lines, are
/// one suspect.
fn merge(suspects: &mut Vec<Suspect>, new: Suspect) {
    let is_same = |known: &&mut Suspect| {
        (&known.function, &known.stack, known.resolving) == (&new.function, &new.stack, new.resolving)
    };
    match suspects.iter_mut().find(is_same) {
        Some(known) => {
            known.bytes = known.bytes.saturating_add(new.bytes);
            known.count = known.count.saturating_add(new.count);
            known.growth = known.growth.saturating_add(new.growth);
            known.oldest = known.oldest.max(new.oldest);
        }
        None => suspects.push(new),
    }
}

/// Requests the names of stacks that were not requested before.
pub fn request(id: ProcessId, stacks: impl Iterator<Item = StackId>, state: &mut State, namer: &Namer) {
    let Some(known) = state.processes.get(&id) else { return };
    let new: Vec<_> = stacks
        .filter(|stack| !known.requested_stacks.contains(stack))
        .filter_map(|stack| state.stack(stack).map(Cow::into_owned))
        .collect();
    if !new.is_empty()
        && namer.request_stacks(id, &new, state)
        && let Some(known) = state.processes.get_mut(&id)
    {
        known.requested_stacks.extend(new.iter().map(|stack| stack.id));
    }
}

/// Returns the remark for a stack. `cached` says whether PyTorch's caching allocator is enabled.
fn remark(stack: &[Frame], cached: bool) -> &'static str {
    let pytorch = |frame: &Frame| frame.name.contains("CUDACachingAllocator") || frame.name.contains("c10_cuda");
    if cached && stack.iter().any(pytorch) { PYTORCH } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that suspects with the same names are one, and that one whose names are not known yet is not the one without.
    #[test]
    fn suspects_with_the_same_names_are_one() {
        let suspect = |resolving, bytes: u64, frames: &[&str]| Suspect {
            bytes,
            count: 1,
            growth: bytes.cast_signed(),
            oldest: Duration::from_secs(bytes),
            function: "cudaMalloc".into(),
            stack: frames.iter().copied().map(Frame::from).collect(),
            resolving,
            ..Suspect::default()
        };
        let mut all = Vec::new();
        for (resolving, bytes, frames) in
            [(false, 1, &["main"][..]), (true, 2, &[]), (false, 4, &["main"]), (false, 8, &[]), (true, 16, &[])]
        {
            merge(&mut all, suspect(resolving, bytes, frames));
        }
        let found: Vec<_> = all.iter().map(|s| (s.bytes, s.count, s.growth, s.oldest.as_secs())).collect();
        assert_eq!(found, [(5, 2, 5, 4), (18, 2, 18, 16), (8, 1, 8, 8)]);
    }

    /// Check that memory held by PyTorch is distinguished from memory held by the program.
    #[test]
    fn memory_held_by_pytorch_is_recognised() {
        let stack = |frames: &[&str]| frames.iter().copied().map(Frame::from).collect::<Vec<_>>();
        let allocator = stack(&["main", "c10::cuda::CUDACachingAllocator::Native::malloc(void**)"]);
        assert_eq!(remark(&allocator, true), PYTORCH);
        assert_eq!(remark(&allocator, false), "", "its allocator keeps nothing");
        assert_eq!(remark(&stack(&["main", "[libc10_cuda.so]"]), true), PYTORCH);
        assert_eq!(remark(&stack(&["main", "load(Model*)"]), true), "");
    }
}
