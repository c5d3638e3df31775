//! Sampling: spreads the GPU time of launches without a stack over the stacks that were taken, and estimates the time
//! of launches that were only counted.
//!
//! A launch whose stack was taken stands for `2^rate` launches: itself, and others without a stack. So the work of
//! those others is divided among the stacks of the same kernel in proportion to `2^rate - 1` times the time of each
//! sampled launch. Launches that were only counted get the mean time of their kernel. All divisions are of integers and
//! keep the sums: the total of each kernel stays exact to the nanosecond.
//!
//! Copies, memsets and graphs that were only counted are counted by kind. What was never recorded has no time, and the
//! ledger says so. Busy and idle times cover the windows only.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::divide::divide;
use crate::{
    event::{LaunchKind, ProcessId, StackId},
    profile::{Estimated, GpuKey, GpuWeight, What},
};

/// Sampled launches by the places in which work without a stack looks for stacks: the same kernel in the same NVTX range
/// on the same device and stream, in the same range, in any range.
type Places = BTreeMap<(ProcessId, Option<StackId>, What, Lane), Vec<(GpuKey, GpuWeight)>>;
type Lane = Option<(u32, Option<(u32, u32)>)>;

/// The places of a key, the best first.
fn lanes(key: &GpuKey) -> [Lane; 3] {
    [Some((key.range, Some((key.device, key.stream)))), Some((key.range, None)), None]
}

/// Adds `work` to the sums of `keys`, in proportion to their weights: count by count, time and energy by time, bytes by
/// bytes.
fn add(weights: &mut FxHashMap<GpuKey, GpuWeight>, work: &GpuWeight, keys: &[(GpuKey, GpuWeight)]) {
    let by = |of: fn(&GpuWeight) -> u64| keys.iter().map(|(_, weight)| of(weight)).collect::<Vec<_>>();
    let counts = divide(work.count, &by(|weight| weight.count));
    let times = divide(work.ns, &by(|weight| weight.ns));
    let bytes = divide(work.bytes, &by(|weight| weight.bytes));
    let energies = divide(work.microjoules, &by(|weight| weight.ns));
    let longest = (0..keys.len()).max_by_key(|at| keys[*at].1.ns);
    for (at, (key, _)) in keys.iter().enumerate() {
        let sum = weights.entry(*key).or_default();
        sum.count = sum.count.saturating_add(counts[at]);
        sum.ns = sum.ns.saturating_add(times[at]);
        sum.bytes = sum.bytes.saturating_add(bytes[at]);
        sum.microjoules = sum.microjoules.saturating_add(energies[at]);
        if Some(at) == longest {
            sum.max_ns = sum.max_ns.max(work.max_ns);
        }
    }
}

/// Moves the work of launches without a stack to the stacks of the same kernel on the same stream or, if there are
/// none, in the same process; for nodes of graphs, to launches of the same node. `stands_for` is the work for which
/// sampled launches stand, besides their own. Work that finds no stack stays where it is.
pub fn spread(weights: &mut FxHashMap<GpuKey, GpuWeight>, stands_for: &FxHashMap<GpuKey, GpuWeight>) {
    let mut without: Vec<GpuKey> =
        weights.keys().filter(|key| key.stack == Some(StackId::NOT_SAMPLED)).copied().collect();
    if without.is_empty() {
        return;
    }
    without.sort();
    let mut places = Places::new();
    for (key, weight) in stands_for {
        for lane in lanes(key) {
            places.entry((key.process, key.capture, key.what, lane)).or_default().push((*key, *weight));
        }
    }
    places.values_mut().for_each(|keys| keys.sort_by_key(|(key, _)| *key));
    for key in without {
        let found = lanes(&key).iter().find_map(|lane| places.get(&(key.process, key.capture, key.what, *lane)));
        if let Some(keys) = found
            && let Some(work) = weights.remove(&key)
        {
            // The range of a launch is known even if its stack is not.
            let keys: Vec<_> =
                keys.iter().map(|(found, weight)| (GpuKey { range: key.range, ..*found }, *weight)).collect();
            add(weights, &work, &keys);
        }
    }
}

/// Launches that were only counted, by process, kind and kernel (an index of names; 0 for other kinds).
pub type Counted = BTreeMap<(ProcessId, LaunchKind, u32), u64>;

/// What is known of launches like those that were only counted.
pub struct Known<'a> {
    /// Work launched by graphs.
    pub graphs: &'a FxHashMap<GpuKey, GpuWeight>,
    /// Recorded launches of graphs, by process.
    pub graph_launches: &'a FxHashMap<ProcessId, u64>,
}

/// Adds the estimated time of launches that were only counted.
pub fn estimate(weights: &mut FxHashMap<GpuKey, GpuWeight>, known: &Known<'_>, counted: &Counted) -> Estimated {
    let mut result = Estimated::default();
    let before = kernels(weights);
    for (&(process, kind, name), &count) in counted {
        result.launches = result.launches.saturating_add(count);
        let like = |what: What| match kind {
            LaunchKind::Kernel => what == What::Kernel(name),
            LaunchKind::Copy => matches!(what, What::Copy(..)),
            LaunchKind::Memset => what == What::Memset,
            LaunchKind::Graph => true,
        };
        let of = if kind == LaunchKind::Graph { known.graphs } else { &*weights };
        let alike = of.iter().filter(|(key, _)| key.process == process && like(key.what));
        let mut keys: Vec<(GpuKey, GpuWeight)> = alike.map(|(key, weight)| (*key, *weight)).collect();
        keys.sort_by_key(|(key, _)| *key);
        let sum = |of: fn(&GpuWeight) -> u64| keys.iter().map(|(_, weight)| u128::from(of(weight))).sum::<u128>();
        let launches = match kind {
            LaunchKind::Graph => known.graph_launches.get(&process).map_or(0, |launches| u128::from(*launches)),
            _ => sum(|weight| weight.count),
        };
        if launches == 0 || keys.is_empty() {
            result.timeless = result.timeless.saturating_add(count);
            continue;
        }
        let scaled = |of| u64::try_from(u128::from(count).saturating_mul(sum(of)) / launches).unwrap_or(u64::MAX);
        let work = GpuWeight {
            count: scaled(|w| w.count),
            ns: scaled(|w| w.ns),
            bytes: scaled(|w| w.bytes),
            ..GpuWeight::default()
        };
        add(weights, &work, &keys);
    }
    let after = kernels(weights);
    Estimated { kernels: after.0.saturating_sub(before.0), kernel_ns: after.1.saturating_sub(before.1), ..result }
}

/// Returns the number of kernels and their time.
fn kernels(weights: &FxHashMap<GpuKey, GpuWeight>) -> (u64, u64) {
    let kernels = weights.iter().filter(|(key, _)| matches!(key.what, What::Kernel(_)));
    kernels.fold((0, 0), |(count, ns), (_, w)| (count.saturating_add(w.count), ns.saturating_add(w.ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(stack: StackId, kernel: u32) -> GpuKey {
        GpuKey {
            process: ProcessId(1),
            stack: Some(stack),
            capture: None,
            what: What::Kernel(kernel),
            device: 0,
            stream: 7,
            range: 0,
        }
    }

    fn weight(count: u64, ns: u64) -> GpuWeight {
        GpuWeight { count, ns, max_ns: ns / count.max(1), ..GpuWeight::default() }
    }

    /// Parts add up to the whole, whatever the weights.
    #[test]
    fn parts_add_up() {
        for (total, weights) in
            [(100, vec![1, 1, 1]), (1, vec![5, 5]), (u64::MAX, vec![u64::MAX, 1, 7]), (9, vec![0, 0]), (7, vec![0, 3])]
        {
            assert_eq!(divide(total, &weights).iter().sum::<u64>(), total, "{weights:?}");
        }
        assert_eq!(divide(100, &[1, 3]), [25, 75]);
        assert_eq!(divide(7, &[0, 3]), [0, 7]);
    }

    /// The time of a kernel without stacks goes to the kernel's own stacks, in proportion to what they stand for, and
    /// the kernel's total stays the same.
    #[test]
    fn time_goes_to_the_stacks_of_the_same_kernel() {
        let (a, b) = (StackId(1), StackId(2));
        let mut weights = FxHashMap::from_iter([
            (key(a, 1), weight(10, 1000)),
            (key(b, 1), weight(30, 3001)),
            (key(StackId::NOT_SAMPLED, 1), weight(280, 28_003)),
            (key(b, 2), weight(5, 50)),
            (key(StackId::NOT_SAMPLED, 3), weight(1, 9)),
        ]);
        // Stack a was taken while every launch had a stack: it stands for itself only.
        let stands_for = FxHashMap::from_iter([(key(b, 1), weight(210, 21_007)), (key(b, 2), weight(35, 350))]);
        spread(&mut weights, &stands_for);
        assert_eq!(weights[&key(a, 1)], weight(10, 1000));
        assert_eq!((weights[&key(b, 1)].count, weights[&key(b, 1)].ns), (310, 31_004));
        assert_eq!(weights[&key(b, 2)], weight(5, 50));
        assert_eq!(weights[&key(StackId::NOT_SAMPLED, 3)], weight(1, 9), "no stack of this kernel is known");
        assert_eq!(weights.len(), 4);
    }

    /// Counted launches get the mean time of their kernel, under its stacks; without any there is no time.
    #[test]
    fn counted_launches_get_the_mean_time_of_their_kernel() {
        let (a, b) = (StackId(1), StackId(2));
        let mut weights = FxHashMap::from_iter([(key(a, 1), weight(1, 100)), (key(b, 1), weight(3, 500))]);
        let counted = Counted::from([
            ((ProcessId(1), LaunchKind::Kernel, 1), 8),
            ((ProcessId(1), LaunchKind::Kernel, 2), 5),
            ((ProcessId(2), LaunchKind::Kernel, 1), 2),
        ]);
        let none = Known { graphs: &FxHashMap::default(), graph_launches: &FxHashMap::default() };
        let estimated = estimate(&mut weights, &none, &counted);
        assert_eq!(estimated, Estimated { launches: 15, timeless: 7, kernels: 8, kernel_ns: 1200 });
        assert_eq!((weights[&key(a, 1)].count, weights[&key(a, 1)].ns), (3, 300));
        assert_eq!((weights[&key(b, 1)].count, weights[&key(b, 1)].ns), (9, 1500));
    }

    /// A launch of a graph that was only counted adds the mean work of a launch of a graph.
    #[test]
    fn counted_graphs_get_the_mean_work_of_graphs() {
        let graphs =
            FxHashMap::from_iter([(key(StackId(1), 1), weight(20, 2000)), (key(StackId(1), 2), weight(10, 30))]);
        let mut weights = graphs.clone();
        let graph_launches = FxHashMap::from_iter([(ProcessId(1), 10)]);
        let known = Known { graphs: &graphs, graph_launches: &graph_launches };
        let estimated = estimate(&mut weights, &known, &Counted::from([((ProcessId(1), LaunchKind::Graph, 0), 30)]));
        assert_eq!(estimated, Estimated { launches: 30, timeless: 0, kernels: 90, kernel_ns: 6090 });
        assert_eq!((weights[&key(StackId(1), 1)].count, weights[&key(StackId(1), 1)].ns), (80, 8000));
        assert_eq!((weights[&key(StackId(1), 2)].count, weights[&key(StackId(1), 2)].ns), (40, 120));
    }
}
