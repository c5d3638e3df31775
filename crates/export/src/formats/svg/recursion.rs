//! Recursion as one frame, for drawing: `f [recursion x40]` instead of forty frames `f`.
//!
//! ```text
//!   main;f;f;f;g   3                               main;f [recursion x3];g   8
//!   main;f;f;g     5      calls of all depths ->   main;f [recursion x3]     1
//!   main;f         1      are under one frame
//! ```
//!
//! The number is that of the deepest recursion at this place. Only calls of a function by itself are folded, not those
//! through others.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use analysis::{
    flame_tree::{Flame, Frames, Line, Weight},
    names,
};

/// The number of a frame in the folded tree, by its caller's number and its name; and the deepest recursion there.
#[derive(Default)]
struct Tree {
    nodes: HashMap<(usize, Arc<str>), usize>,
    deepest: Vec<usize>,
}

impl Tree {
    /// Returns the node of a frame that is repeated `times` times.
    fn node(&mut self, caller: usize, name: &Arc<str>, times: usize) -> usize {
        let next = self.deepest.len();
        let node = *self.nodes.entry((caller, name.clone())).or_insert(next);
        if node == next {
            self.deepest.push(0);
        }
        self.deepest[node] = self.deepest[node].max(times);
        node
    }
}

/// Returns the same stacks with recursion folded.
pub fn folded(flame: &Flame) -> Flame {
    let mut tree = Tree { deepest: vec![0], ..Tree::default() };
    let nodes: Vec<Vec<usize>> = flame.lines.iter().map(|line| fold(&mut tree, &line.frames)).collect();
    let mut names: Vec<Arc<str>> = vec![Arc::from(""); tree.deepest.len()];
    let mut families = flame.families.clone();
    for ((_, name), node) in &tree.nodes {
        names[*node] = match tree.deepest[*node] {
            1 => name.clone(),
            times => {
                let folded: Arc<str> = format!("{name} [recursion x{times}]").into();
                if let Some(family) = flame.families.get(name) {
                    families.insert(folded.clone(), *family);
                }
                folded
            }
        };
    }
    let mut lines: BTreeMap<Frames, Weight> = BTreeMap::new();
    let mut launches: BTreeMap<Frames, BTreeMap<Frames, u64>> = BTreeMap::new();
    for (line, nodes) in flame.lines.iter().zip(nodes) {
        let frames: Frames = nodes.into_iter().map(|node| names[node].clone()).collect();
        for (stack, amount) in flame.launches.get(&line.frames).into_iter().flatten() {
            let sum = launches.entry(frames.clone()).or_default().entry(stack.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        lines.entry(frames).or_default().add(line.weight);
    }
    let lines = lines.into_iter().map(|(frames, weight)| Line { frames, weight }).collect();
    Flame { lines, families, own: flame.own, measure: flame.measure, launches }
}

/// Returns the nodes of a stack. The first frame is the process, possibly below its rank, which are not functions.
fn fold(tree: &mut Tree, frames: &[Arc<str>]) -> Vec<usize> {
    let outer = 1 + usize::from(frames.first().is_some_and(|name| names::is_rank(name)));
    let (process, functions) = frames.split_at(frames.len().min(outer));
    let runs = process.chunks(1).chain(functions.chunk_by(|a, b| a == b));
    let mut nodes = Vec::new();
    let mut caller = 0;
    for run in runs {
        caller = tree.node(caller, &run[0], run.len());
        nodes.push(caller);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flame(lines: &[(&str, u64)]) -> Flame {
        let line = |(frames, amount): &(&str, u64)| Line {
            frames: frames.split(';').map(Arc::from).collect(),
            weight: Weight { amount: *amount, ..Weight::default() },
        };
        Flame { lines: lines.iter().map(line).collect(), ..Flame::default() }
    }

    fn text(flame: &Flame) -> Vec<(String, u64)> {
        flame.lines.iter().map(|line| (line.frames.join(";"), line.weight.amount)).collect()
    }

    /// Check that recursion of every depth is one frame, whose number is the deepest, and that all weights are kept.
    #[test]
    fn recursion_becomes_one_frame() {
        let all = [("p;main;f;f;f;g", 3), ("p;main;f;f;g", 5), ("p;main;f", 1), ("p;other;f;g;f", 7)];
        let expected = [("p;main;f [recursion x3]", 1), ("p;main;f [recursion x3];g", 8), ("p;other;f;g;f", 7)];
        assert_eq!(text(&folded(&flame(&all))), expected.map(|(frames, weight)| (frames.to_owned(), weight)));
    }

    /// Check that a process with the name of its first function is not recursion, and that other stacks do not change.
    #[test]
    fn processes_are_not_functions() {
        let all = flame(&[("f;f;g", 1), ("f;g", 2)]);
        assert_eq!(text(&folded(&all)), text(&all));
    }
}
