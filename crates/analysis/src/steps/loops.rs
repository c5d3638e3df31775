//! Loops in the order of launches.
//!
//! A launch and the one before it part at one function of their stacks: there, one call site was followed by another.
//! Within a call, a site is reached again only around a loop. So the sites of each function, and which followed which, give
//! the loops of that function exactly; no time and no statistics are involved.
//!
//! ```text
//!   train:31 > forward:7      │ train:31 > forward:8      │ train:32 > step:3        │ train:31 > forward:7
//!                 in forward: 7 -> 8        in train: 31 -> 32          in train: 32 -> 31, where it has been: a loop
//! ```
//!
//! What a stack does not tell: if a function is called around a loop from a single call site and nothing else is launched
//! there, its own sites repeat. Then the loop is found in that function, with the same iterations.

use std::collections::BTreeSet;

use model::event::{ProcessId, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    graph::{Around, Edge, Graph},
    sequence::{Pair, Sequence},
    tree::{Fork, NONE, Site, Tree},
};

/// What the detector needs to know about the code of a program.
pub trait Code {
    /// Returns the call sites of a stack, outermost first, up to the call that launched. None: the launch belongs to no step.
    fn sites(&self, process: ProcessId, stack: StackId) -> Vec<Site>;
    /// Whether a process was recorded from its first launch on.
    fn has_start(&self, process: ProcessId) -> bool;
    /// Whether what the call site at this depth of a stack calls ends a step, as an optimizer does; `None` if names do not say.
    fn ends_step(&self, _stack: StackId, _depth: usize) -> Option<bool> {
        None
    }
    /// Returns the depth of the outermost call site of a stack that is in an optimizer.
    fn optimizer(&self, _stack: StackId) -> Option<usize> {
        None
    }
}

/// What a launch means for a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It left the loop: the previous launch was its last.
    Left,
    /// It entered the loop.
    Entered,
    /// It began another iteration, after a launch at this call site.
    Next(u32),
}

/// A loop: the sites of one function that are reached again.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The process.
    pub process: ProcessId,
    /// The node of the call.
    pub at: u32,
    /// The site where iterations begin.
    pub header: u32,
    /// Its sites, sorted.
    pub body: Vec<u32>,
    /// Its iterations.
    pub iterations: u64,
    /// How often it was entered.
    pub entered: u64,
    /// The launches in it, and those in other threads that work for it.
    pub covered: u64,
    /// The iterations of its complete runs, in the first launches of each thread.
    pub runs: Vec<u64>,
    /// The most iterations of a run.
    pub longest: u64,
    /// The threads that ran it.
    pub threads: u64,
    /// How regularly an iteration follows one that ended with the same site.
    pub ends: FxHashMap<u32, Period>,
}

/// How regularly something occurs in the iterations of a loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Period {
    /// How often it occurred in the whole recording.
    pub count: u64,
    /// The iterations from one to the next, at first; 0 if it did not occur again.
    pub iterations: u64,
    /// It is always the same number.
    pub is_regular: bool,
    /// When it last occurred.
    last: Option<u64>,
}

impl Period {
    /// It occurs at the end of an iteration, by its number in the run.
    fn occurs(&mut self, iteration: u64) {
        let iterations = iteration - self.last.unwrap_or(0);
        match (self.last, self.iterations) {
            // The first part may be cut off.
            (None, 0) => self.is_regular = true,
            (None, _) => {}
            (Some(_), 0) => self.iterations = iterations,
            (Some(_), known) => self.is_regular &= known == iterations,
        }
        self.last = Some(iteration);
    }
}

impl Loop {
    /// Whether a site is one of its own.
    pub fn has(&self, site: u32) -> bool {
        self.body.binary_search(&site).is_ok()
    }

    /// Returns the share of runs that had a single iteration.
    pub fn brief(&self) -> f64 {
        self.runs.iter().filter(|iterations| **iterations == 1).count() as f64 / self.runs.len().max(1) as f64
    }
}

/// Loops with a smaller share of the launches of their process are not considered.
const LEAST: u64 = 50;

/// All loops, and what each pair of launches means for them.
#[derive(Debug)]
pub struct Loops {
    /// The call sites.
    pub tree: Tree,
    /// The innermost node of each stack.
    leaves: FxHashMap<(ProcessId, StackId), Option<u32>>,
    /// The loops; an outer one of the same function comes before the loops in it.
    pub all: Vec<Loop>,
    /// The loops of each call.
    by_node: FxHashMap<u32, Vec<u32>>,
    /// Launches of each process.
    pub launches: FxHashMap<ProcessId, u64>,
    /// Launches with each node.
    pub below: Vec<u64>,
}

impl Loops {
    /// Finds the loops of all processes.
    pub fn find(sequence: &Sequence, code: &dyn Code) -> Self {
        let mut found = Self {
            tree: Tree::default(),
            leaves: FxHashMap::default(),
            all: Vec::new(),
            by_node: FxHashMap::default(),
            launches: FxHashMap::default(),
            below: Vec::new(),
        };
        for (pair, count) in &sequence.pairs {
            let Self { tree, leaves, launches, .. } = &mut found;
            let add = || tree.add(pair.process, pair.to, &code.sites(pair.process, pair.to));
            if leaves.entry((pair.process, pair.to)).or_insert_with(add).is_some() {
                *launches.entry(pair.process).or_default() += count;
            }
        }
        let graphs = found.graphs(sequence, code);
        let below = found.launches_below(sequence);
        for (at, process, nodes, graph) in graphs {
            let loops = graph.loops();
            let looping: FxHashSet<usize> = loops.iter().flat_map(|around| around.body.iter().copied()).collect();
            // Other threads work for the call at sites where its own threads have not launched.
            let apart: FxHashSet<usize> = graph.edges.iter().flat_map(|edge| [edge.from, edge.to]).collect();
            let helpers: u64 = (0..nodes.len()).filter(|i| !apart.contains(i)).map(|i| below[nodes[i] as usize]).sum();
            for Around { header, body } in loops {
                let is_outermost = body.len() == looping.len();
                let mut sites: Vec<u32> = body.iter().map(|index| nodes[*index]).collect();
                sites.sort_unstable();
                let own: u64 = sites.iter().map(|site| below[*site as usize]).sum();
                let covered = own + if is_outermost { helpers } else { 0 };
                if covered.saturating_mul(LEAST) < found.launches[&process] {
                    continue;
                }
                found.by_node.entry(at).or_default().push(found.all.len() as u32);
                found.all.push(Loop {
                    process,
                    at,
                    header: nodes[header],
                    body: sites,
                    iterations: 0,
                    entered: 0,
                    covered,
                    runs: Vec::new(),
                    longest: 0,
                    threads: 0,
                    ends: FxHashMap::default(),
                });
            }
        }
        found.below = below;
        found.count(sequence);
        found
    }

    /// Returns the innermost node of a stack.
    pub fn leaf(&self, process: ProcessId, stack: StackId) -> Option<u32> {
        self.leaves.get(&(process, stack)).copied().flatten()
    }

    /// Returns the graph of each function call whose sites follow each other, with their nodes.
    fn graphs(&self, sequence: &Sequence, code: &dyn Code) -> Vec<(u32, ProcessId, Vec<u32>, Graph)> {
        let mut graphs: Vec<(u32, ProcessId, Vec<u32>, Graph)> = Vec::new();
        let mut of_node: FxHashMap<u32, usize> = FxHashMap::default();
        let mut places: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut forks = Vec::with_capacity(sequence.pairs.len());
        for (pair, count) in &sequence.pairs {
            let to = self.leaf(pair.process, pair.to);
            let from = pair.from.and_then(|from| self.leaf(pair.process, from));
            let fork = from.zip(to).map(|(from, to)| self.tree.fork(from, to));
            forks.push((fork, to));
            let Some(Fork { at, sites }) = fork else { continue };
            let index = *of_node.entry(at).or_insert_with(|| {
                let from_start = code.has_start(pair.process);
                graphs.push((at, pair.process, Vec::new(), Graph { from_start, ..Graph::default() }));
                graphs.len() - 1
            });
            let (_, _, nodes, graph) = &mut graphs[index];
            let [from, to] = sites.map(|site| self.vertex(at, site, nodes, graph, &mut places));
            graph.edges.push(Edge { from, to, count: *count, first: (forks.len() - 1) as u32 });
        }
        // Where each call was entered: at all nodes below the one where the stacks part.
        for (number, (fork, leaf)) in (0_u32..).zip(forks) {
            let Some(leaf) = leaf else { continue };
            let outermost = fork.map_or(NONE, |fork| fork.at);
            for (site, at) in self.tree.below(outermost, leaf) {
                if let Some(index) = of_node.get(&at) {
                    let (_, _, nodes, graph) = &mut graphs[*index];
                    let place = self.vertex(at, site, nodes, graph, &mut places);
                    graph.entered[place] = graph.entered[place].min(number);
                }
            }
        }
        graphs
    }

    /// Returns the index of a site in a graph.
    fn vertex(
        &self,
        at: u32,
        site: u32,
        nodes: &mut Vec<u32>,
        graph: &mut Graph,
        places: &mut FxHashMap<(u32, u32), usize>,
    ) -> usize {
        *places.entry((at, site)).or_insert_with(|| {
            nodes.push(site);
            // The stack ends in this call: it has no site in it.
            graph.sites.push(if site == at { Site::default() } else { *self.tree.site(site) });
            graph.entered.push(u32::MAX);
            nodes.len() - 1
        })
    }

    /// Returns the number of launches with each node.
    fn launches_below(&self, sequence: &Sequence) -> Vec<u64> {
        let mut below = vec![0_u64; self.tree.len()];
        for (pair, count) in &sequence.pairs {
            if let Some(leaf) = self.leaf(pair.process, pair.to) {
                below[leaf as usize] += count;
            }
        }
        // Children have larger numbers than their parents.
        for node in (0..below.len()).rev() {
            let parent = self.tree.parent(node as u32);
            if parent != NONE {
                below[parent as usize] += below[node];
            }
        }
        below
    }

    /// Returns the innermost nodes of the launches in optimizers that the iterations of a loop call.
    pub fn optimizers(&self, around: &Loop, code: &dyn Code) -> BTreeSet<u32> {
        let depth = self.tree.depth(around.at) as usize;
        let all = self.leaves.iter().filter(|((process, _), _)| *process == around.process);
        let own = all.filter_map(|((_, stack), leaf)| Some((*stack, (*leaf)?)));
        let inside = own.filter(|(_, leaf)| self.tree.up(*leaf).any(|node| around.has(node)));
        let called = inside.filter(|(stack, _)| code.optimizer(*stack).is_some_and(|at| at > depth));
        called.map(|(_, leaf)| leaf).collect()
    }

    /// Returns the loops of a call.
    pub fn at(&self, node: u32) -> impl Iterator<Item = (u32, &Loop)> {
        self.by_node.get(&node).into_iter().flatten().map(|id| (*id, &self.all[*id as usize]))
    }

    /// Returns the outermost nodes for which something is true of the site at that depth of a stack.
    pub fn outermost(&self, is: &dyn Fn(ProcessId, StackId, usize) -> bool) -> Vec<(ProcessId, u32)> {
        let mut process_of = vec![ProcessId(0); self.tree.len()];
        let mut is_below = vec![false; self.tree.len()];
        let mut found = Vec::new();
        for ((process, _), leaf) in &self.leaves {
            leaf.iter().flat_map(|leaf| self.tree.up(*leaf)).for_each(|node| process_of[node as usize] = *process);
        }
        // Parents have smaller numbers than their children.
        for node in 0..self.tree.len() as u32 {
            let (process, parent) = (process_of[node as usize], self.tree.parent(node));
            let depth = self.tree.depth(node) as usize;
            if parent != NONE && is_below[parent as usize] {
                is_below[node as usize] = true;
            } else if depth > 0 && is(process, self.tree.stack(node), depth - 1) {
                is_below[node as usize] = true;
                found.push((process, node));
            }
        }
        found
    }

    /// Returns where two launches part, with their innermost nodes.
    pub fn fork(&self, pair: &Pair) -> Option<(Option<u32>, u32, Option<Fork>)> {
        let to = self.leaf(pair.process, pair.to)?;
        let from = pair.from.and_then(|from| self.leaf(pair.process, from));
        Some((from, to, from.map(|from| self.tree.fork(from, to))))
    }

    /// If a launch is the first of a call, which the launch before it is not in, returns the call's node and the site in it.
    pub fn called(&self, pair: &Pair, calls: &FxHashMap<u32, Vec<u32>>) -> Option<(u32, u32)> {
        let (from, to, fork) = self.fork(pair)?;
        let is_call = |(at, site): &(u32, u32)| calls.get(at).is_some_and(|sites| sites.contains(site));
        if let Some(Fork { at, sites: [left, entered] }) = fork
            && is_call(&(at, entered))
        {
            return (!is_call(&(at, left))).then_some((at, entered));
        }
        let outermost = fork.map_or(NONE, |fork| fork.at);
        let below = self.tree.below(outermost, to).filter(|_| from != Some(to));
        below.map(|(site, at)| (at, site)).find(is_call)
    }

    /// Whether the launch before a launch was the last of a call.
    pub fn has_returned(&self, pair: &Pair, calls: &FxHashMap<u32, Vec<u32>>) -> bool {
        let Pair { process, from: Some(from), to } = *pair else { return false };
        self.called(&Pair { process, from: Some(to), to: from }, calls).is_some()
    }

    /// Reports what a launch means for each loop: first those that it leaves.
    pub fn marks(&self, pair: &Pair, mut on: impl FnMut(u32, Mark)) {
        let Some((from, to, fork)) = self.fork(pair) else { return };
        if pair.from.is_some() && from.is_none() {
            // After launches that belong to no step, the one before these decides.
            return;
        }
        let outermost = fork.map_or(NONE, |fork| fork.at);
        if let Some(from) = from
            && from != to
        {
            for (site, at) in self.tree.below(outermost, from) {
                self.at(at).filter(|(_, around)| around.has(site)).for_each(|(id, _)| on(id, Mark::Left));
            }
        }
        if let Some(Fork { at, sites: [before, site] }) = fork {
            for (id, around) in self.at(at) {
                match (around.has(before), around.has(site)) {
                    (true, false) => on(id, Mark::Left),
                    (false, true) => on(id, Mark::Entered),
                    (true, true) if site == around.header => on(id, Mark::Next(before)),
                    _ => {}
                }
            }
        }
        if from != Some(to) {
            for (site, at) in self.tree.below(outermost, to) {
                self.at(at).filter(|(_, around)| around.has(site)).for_each(|(id, _)| on(id, Mark::Entered));
            }
        }
    }

    /// Counts the iterations of all loops, and how they ran at first.
    fn count(&mut self, sequence: &Sequence) {
        let mut sums = vec![(0_u64, 0_u64); self.all.len()];
        let mut marks: Vec<Vec<(u32, Mark)>> = Vec::with_capacity(sequence.pairs.len());
        for (pair, count) in &sequence.pairs {
            let mut of_pair = Vec::new();
            self.marks(pair, |id, mark| of_pair.push((id, mark)));
            for (id, mark) in &of_pair {
                let id = *id as usize;
                match mark {
                    Mark::Left => {}
                    Mark::Entered => sums[id] = (sums[id].0 + count, sums[id].1 + count),
                    Mark::Next(site) => {
                        sums[id].0 += count;
                        self.all[id].ends.entry(*site).or_default().count += count;
                    }
                }
            }
            marks.push(of_pair);
        }
        for (around, (iterations, entered)) in self.all.iter_mut().zip(sums) {
            (around.iterations, around.entered) = (iterations, entered);
        }
        let mut running = vec![0_u64; self.all.len()];
        for launches in sequence.kept() {
            let mut ran = FxHashSet::default();
            for number in launches {
                for (id, mark) in &marks[*number as usize] {
                    let (run, around) = (&mut running[*id as usize], &mut self.all[*id as usize]);
                    match mark {
                        Mark::Left if *run == 0 => {}
                        Mark::Left => {
                            around.runs.push(std::mem::take(run));
                            around.ends.values_mut().for_each(|period| period.last = None);
                        }
                        Mark::Entered => *run = 1,
                        Mark::Next(site) => {
                            around.ends.entry(*site).or_default().occurs(*run);
                            *run += 1;
                        }
                    }
                    ran.insert(*id);
                    around.longest = around.longest.max(*run);
                }
            }
            ran.iter().for_each(|id| self.all[*id as usize].threads += 1);
            running.fill(0);
            self.all.iter_mut().flat_map(|around| around.ends.values_mut()).for_each(|period| period.last = None);
        }
    }
}
