//! Which loop a reader means by steps.
//!
//! Loops contain each other: micro-batches a step, layers a token, batches an epoch. Each is a level. The steps are those of
//! the outermost level that has most of the program's launches, unless an inner one has nearly all of them as well and runs for
//! long: epochs are few, and contain many batches.
//!
//! Two cases that launches alone do not distinguish are decided by how they usually look:
//!
//! ```text
//!   for step:  [log]  forward  backward        an optional launch at the beginning: iterations without it follow each
//!                                              other, as in an inner loop. It is one if it rarely runs only once.
//!   for step: (for micro: forward backward) optimizer
//!                                              both loops begin with `forward`. Iterations with `optimizer` end a step if
//!                                              their distance is always the same, and if it is an optimizer, or launches
//!                                              much where names do not say. Otherwise it may be a log of every tenth step.
//! ```
//!
//! Where names say what an optimizer is, the innermost loop that calls it is the step, whatever is around it.

use std::collections::BTreeMap;

use model::event::{ProcessId, StackId};
use rustc_hash::FxHashMap;

use super::{
    loops::{Code, Loop, Loops, Period},
    sequence::Pair,
};

/// The fewest iterations of a loop in each of its threads. Calls that are written out twice are rarely a loop.
const FEWEST: u64 = 3;
/// Steps have at least this part of the launches of their process.
const MAIN: f64 = 0.5;
/// A level below has nearly everything.
const NEARLY_ALL: f64 = 0.8;
/// An outer loop with fewer iterations rather runs over epochs than over steps.
const FEW: u64 = 10;
/// An inner loop with more iterations rather runs over steps than over their parts.
const MANY: f64 = 16.0;
/// The deepest loops of one function. A loop that calls its functions in any order looks like one in each other for each of them.
const MAX_NESTED: usize = 4;
/// What ends a step launches as much as an iteration divided by this at least, if its name does not say what it is.
const MUCH: f64 = 4.0;
/// If more runs of an inner loop have a single iteration, it is the same loop with an optional beginning.
const BRIEF: f64 = 0.1;

/// Iterations that can be steps.
#[derive(Clone, Debug)]
pub struct Level {
    /// The process.
    pub process: ProcessId,
    /// A stack through the place where iterations begin.
    pub stack: StackId,
    /// The number of its call sites up to that place, from the outermost.
    pub depth: usize,
    /// Iterations.
    pub iterations: u64,
    /// The threads that ran it.
    pub threads: u64,
    /// The level around it.
    pub within: Option<usize>,
    /// The part of the launches of its process that it has.
    pub share: f64,
    /// Where its iterations begin.
    pub begins: Begins,
    /// Its iterations may as well be several of the level in it, of which the last does something more.
    pub is_doubtful: bool,
}

/// Which launches begin iterations.
#[derive(Clone, Debug, Default)]
pub struct Begins {
    /// Those of these loops.
    pub loops: Vec<u32>,
    /// Loops in them whose iterations count as their own.
    pub also: Vec<u32>,
    /// Only iterations after one that ended with this site begin one.
    pub after: Option<u32>,
    /// The first launch of each call at these sites, by the node of the call that they are in.
    pub calls: FxHashMap<u32, Vec<u32>>,
}

/// Returns the levels, outer before inner, and those that are the steps: at most one for each process.
pub fn levels(loops: &Loops, code: &dyn Code) -> (Vec<Level>, Vec<usize>) {
    let mut order: Vec<u32> = (0..loops.all.len() as u32).collect();
    let by_place = |id: &u32| {
        let around = &loops.all[*id as usize];
        (around.process, loops.tree.depth(around.at), around.at, std::cmp::Reverse(around.body.len()), *id)
    };
    order.sort_by_key(by_place);
    let parents: Vec<Option<u32>> = (0..loops.all.len()).map(|id| parent(loops, id as u32)).collect();
    // The loop that each one's iterations count for.
    let mut counts_for: Vec<u32> = (0..loops.all.len() as u32).collect();
    let mut also_of: Vec<Vec<u32>> = vec![Vec::new(); loops.all.len()];
    for id in &order {
        if let Some(outer) = parents[*id as usize].filter(|outer| is_same(loops, *outer, *id)) {
            counts_for[*id as usize] = counts_for[outer as usize];
            also_of[counts_for[outer as usize] as usize].push(*id);
        }
    }
    let mut levels: Vec<Level> = Vec::new();
    let mut level_of: Vec<Option<usize>> = vec![None; loops.all.len()];
    for id in order {
        let around = &loops.all[id as usize];
        if counts_for[id as usize] != id {
            level_of[id as usize] = level_of[counts_for[id as usize] as usize];
            continue;
        }
        let also = std::mem::take(&mut also_of[id as usize]);
        let more = |id: &u32| loops.all[*id as usize].iterations - loops.all[*id as usize].entered;
        let iterations = around.iterations + also.iter().map(more).sum::<u64>();
        let within = parents[id as usize].and_then(|outer| level_of[outer as usize]);
        level_of[id as usize] = within;
        let longest =
            if also.is_empty() && around.threads > 0 { around.longest } else { iterations / around.entered.max(1) };
        let fewest = if loops.tree.site(around.header).is_exact { FEWEST - 1 } else { FEWEST };
        if longest.max(around.longest) < fewest {
            continue;
        }
        let share = around.covered as f64 / loops.launches[&around.process].max(1) as f64;
        let level = Level {
            process: around.process,
            stack: loops.tree.stack(around.header),
            depth: depth(loops, around),
            iterations,
            threads: around.threads.max(1),
            within,
            share: share.min(1.0),
            begins: Begins { loops: vec![id], also, ..Begins::default() },
            is_doubtful: false,
        };
        let outer = around.ends.iter().filter(|_| level.begins.also.is_empty() && around.ends.len() > 1);
        let outer = outer.filter(|(_, ends)| ends.is_regular && ends.iterations > 1 && ends.count >= FEWEST);
        if let Some((site, ends)) = outer.max_by_key(|(site, ends)| (ends.count, **site)) {
            let begins = Begins { after: Some(*site), ..level.begins.clone() };
            let iterations = around.entered + ends.count;
            let is_doubtful = !ends_step(loops, around, (*site, ends), code);
            levels.push(Level { iterations, begins, is_doubtful, ..level.clone() });
            levels.push(Level { within: Some(levels.len() - 1), ..level });
        } else {
            levels.push(level);
        }
        level_of[id as usize] = Some(levels.len() - 1);
    }
    let mut processes: Vec<ProcessId> = levels.iter().map(|level| level.process).collect();
    processes.dedup();
    let steps = processes.iter().filter_map(|process| main(loops, &levels, *process, code)).collect();
    (levels, steps)
}

/// Whether what an iteration ended with now and then is the end of a step.
fn ends_step(loops: &Loops, around: &Loop, (site, ends): (u32, &Period), code: &dyn Code) -> bool {
    let per = |launches: u64, count: u64| launches as f64 / count.max(1) as f64;
    let is_much = || per(loops.below[site as usize], ends.count) * MUCH >= per(around.covered, around.iterations);
    code.ends_step(loops.tree.stack(site), loops.tree.depth(site) as usize).unwrap_or_else(is_much)
}

/// Returns the depth of the code that goes around: what a single line calls, one function after the other, does not go around
/// itself.
fn depth(loops: &Loops, around: &Loop) -> usize {
    let header = loops.tree.depth(around.header) as usize;
    let function = |site: &u32| loops.tree.site(*site).function;
    let first = function(&around.header);
    let is_called = first != 0 && around.body.iter().map(function).any(|other| other != 0 && other != first);
    if is_called && header > 1 { header - 1 } else { header }
}

/// Returns the loop around a loop.
fn parent(loops: &Loops, id: u32) -> Option<u32> {
    let inner = &loops.all[id as usize];
    let around =
        |other: &&(u32, &Loop)| other.1.at == inner.at && other.0 != id && other.1.body.len() > inner.body.len();
    let here: Vec<(u32, &Loop)> = loops.at(inner.at).collect();
    let mine = here.iter().filter(around).filter(|(_, other)| inner.body.iter().all(|site| other.has(*site)));
    if let Some((outer, _)) = mine.min_by_key(|(id, other)| (other.body.len(), *id)) {
        return Some(*outer);
    }
    let calls = loops.tree.up(inner.at).zip(loops.tree.up(inner.at).skip(1));
    calls.into_iter().find_map(|(site, at)| {
        let outer = loops.at(at).filter(|(_, other)| other.has(site));
        outer.min_by_key(|(id, other)| (other.body.len(), *id)).map(|(id, _)| id)
    })
}

/// Whether an inner loop may as well be one of the function around it: there is nothing else in between.
fn may_be_there(loops: &Loops, outer: u32, inner: u32) -> bool {
    let (outer, inner) = (&loops.all[outer as usize], &loops.all[inner as usize]);
    outer.at == inner.at
        || loops
            .tree
            .up(inner.at)
            .find(|site| loops.tree.parent(*site) == outer.at)
            .is_some_and(|site| loops.tree.leads_only_to(site, inner.at))
}

/// Whether two loops are one, whose iterations do not always begin alike.
fn is_same(loops: &Loops, outer: u32, inner: u32) -> bool {
    let (around, inside) = (&loops.all[outer as usize], &loops.all[inner as usize]);
    may_be_there(loops, outer, inner) && inside.entered <= around.iterations && inside.brief() >= BRIEF
}

/// Returns how many loops of its function a loop contains in each other, with itself.
fn nested(loops: &Loops, id: u32) -> usize {
    let mut depth = 1;
    let mut outer = &loops.all[id as usize];
    let inside = |outer: &Loop| {
        let within = |(_, inner): &(u32, &Loop)| {
            inner.body.len() < outer.body.len() && inner.body.iter().all(|site| outer.has(*site))
        };
        loops.at(outer.at).filter(within).max_by_key(|(id, inner)| (inner.body.len(), *id)).map(|(id, _)| id)
    };
    while let Some(inner) = inside(outer) {
        outer = &loops.all[inner as usize];
        depth += 1;
    }
    depth
}

/// Returns the level that is the steps of a process.
fn main(loops: &Loops, levels: &[Level], process: ProcessId, code: &dyn Code) -> Option<usize> {
    let of_process = |level: &Level| {
        let is_main = level.process == process && level.share >= MAIN && level.iterations / level.threads >= FEWEST;
        is_main && !level.is_doubtful && nested(loops, level.begins.loops[0]) <= MAX_NESTED
    };
    let candidates: Vec<usize> = (0..levels.len()).filter(|index| of_process(&levels[*index])).collect();
    let mut chosen = *candidates.first()?;
    for &index in &candidates[1..] {
        let (outer, inner) = (&levels[chosen], &levels[index]);
        let is_within = std::iter::successors(inner.within, |outer| levels[*outer].within).any(|outer| outer == chosen);
        let is_long = inner.iterations as f64 / outer.iterations as f64 > MANY;
        let nearly_all = inner.share >= outer.share * NEARLY_ALL;
        let is_few = outer.iterations / outer.threads < FEW;
        if is_within && is_long && nearly_all && is_few {
            chosen = index;
        }
    }
    // A step of training has one optimizer, at its end: what contains several such steps is an epoch, or a log of every tenth.
    let loop_of = |index: usize| levels[index].begins.loops[0];
    let optimizers = |index: usize| loops.optimizers(&loops.all[loop_of(index) as usize], code);
    let within = |index: usize| std::iter::successors(levels[index].within, |outer| levels[*outer].within);
    let all = optimizers(chosen);
    let is_step = |index: &&usize| {
        loop_of(**index) != loop_of(chosen)
            && within(**index).any(|outer| outer == chosen)
            && optimizers(**index) == all
    };
    if all.is_empty() { Some(chosen) } else { candidates.iter().rfind(is_step).copied().or(Some(chosen)) }
}

/// Returns the calls of functions as levels, one for each process: of a function that its threads call once or twice, the
/// iterations of its loop. `is` says whether the site at a depth of a stack is in such a function.
pub fn of_functions(
    loops: &Loops,
    pairs: &[(Pair, u64)],
    is: &dyn Fn(ProcessId, StackId, usize) -> bool,
) -> Vec<Level> {
    let mut of_process: BTreeMap<ProcessId, Level> = BTreeMap::new();
    for (process, node) in loops.outermost(is) {
        let level = of_process.entry(process).or_insert_with(|| Level {
            process,
            stack: loops.tree.stack(node),
            depth: loops.tree.depth(node) as usize,
            iterations: 0,
            threads: 0,
            within: None,
            share: 1.0,
            begins: Begins::default(),
            is_doubtful: false,
        });
        level.begins.calls.entry(loops.tree.parent(node)).or_default().push(node);
    }
    for level in of_process.values_mut() {
        let of_process = || pairs.iter().filter(|(pair, _)| pair.process == level.process);
        let calls: Vec<_> =
            of_process().filter_map(|(p, n)| Some((loops.called(p, &level.begins.calls)?, *n))).collect();
        let times: u64 = calls.iter().map(|(_, count)| count).sum();
        let threads: u64 = of_process().filter(|(pair, _)| pair.from.is_none()).map(|(_, count)| count).sum();
        // The outermost loop of each call. If it begins where the call does, calls may also follow each other.
        for at in level.begins.calls.keys() {
            let around = loops.at(*at).max_by_key(|(_, around)| around.body.len());
            let Some((id, around)) = around else { continue };
            if calls.iter().any(|((_, entered), _)| *entered == around.header) {
                level.begins.also.push(id);
            }
            level.begins.loops.extend((around.longest >= FEWEST).then_some(id));
        }
        level.begins.loops.sort_unstable();
        if times > 2 * threads || level.begins.loops.is_empty() {
            level.begins.loops.clear();
        } else {
            let header = loops.all[level.begins.loops[0] as usize].header;
            (level.stack, level.depth) = (loops.tree.stack(header), loops.tree.depth(header) as usize);
            level.begins = Begins { loops: std::mem::take(&mut level.begins.loops), ..Begins::default() };
        }
    }
    of_process.into_values().collect()
}
