//! Call stacks, kept as a tree: stacks that begin alike share their outermost frames.
//!
//! ```text
//!   main ── train ── step ── launch      a stack is its innermost node
//!                └── load ── read
//! ```
//!
//! A program has many more distinct stacks than distinct frames, and most of a new stack is known already: a tree needs a
//! fraction of the memory of one list for each.

use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use crate::event::{Frame, ProcessId, Stack, StackEnd, StackId};

/// The parent of the outermost frames.
const ROOT: u32 = u32::MAX;

/// Distinct stacks by id.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    nodes: Vec<Node>,
    /// The number of each node, by its contents.
    numbers: HashTable<u32>,
    known: FxHashMap<StackId, Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    frame: Frame,
    parent: u32,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    process: ProcessId,
    time: u64,
    end: StackEnd,
    innermost: u32,
}

/// One of the stacks.
#[derive(Clone, Copy, Debug)]
pub struct KnownStack<'a> {
    /// Its id.
    pub id: StackId,
    /// The image whose addresses these are.
    pub process: ProcessId,
    /// When it was first seen.
    pub time: u64,
    /// How the walk ended.
    pub end: StackEnd,
    innermost: u32,
    nodes: &'a [Node],
}

impl Stacks {
    /// Adds a stack, or replaces the one with the same id.
    pub fn insert(&mut self, stack: &Stack) {
        let mut innermost = ROOT;
        for frame in stack.frames.iter().rev() {
            let Some(number) = self.add(Node { frame: *frame, parent: innermost }) else { break };
            innermost = number;
        }
        let Stack { id, process, time, end, .. } = *stack;
        self.known.insert(id, Known { process, time, end, innermost });
    }

    /// Returns how many frames of a stack would be new nodes.
    pub fn new_nodes(&self, frames: &[Frame]) -> usize {
        let mut innermost = ROOT;
        for (place, frame) in frames.iter().enumerate().rev() {
            let Some(number) = self.number(&Node { frame: *frame, parent: innermost }) else { return place + 1 };
            innermost = number;
        }
        0
    }

    /// Returns the stack with this id.
    pub fn get(&self, id: StackId) -> Option<KnownStack<'_>> {
        self.known.get(&id).map(|known| self.show(id, known))
    }

    /// Whether there is a stack with this id.
    pub fn contains(&self, id: StackId) -> bool {
        self.known.contains_key(&id)
    }

    /// Returns the number of stacks.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns all stacks, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = KnownStack<'_>> {
        self.known.iter().map(|(id, known)| self.show(*id, known))
    }

    fn show(&self, id: StackId, &Known { process, time, end, innermost }: &Known) -> KnownStack<'_> {
        KnownStack { id, process, time, end, innermost, nodes: &self.nodes }
    }

    fn number(&self, node: &Node) -> Option<u32> {
        self.numbers.find(hash(node), |number| self.nodes[*number as usize] == *node).copied()
    }

    /// Returns the number of a node. `None` if there are too many.
    fn add(&mut self, node: Node) -> Option<u32> {
        if let Some(number) = self.number(&node) {
            return Some(number);
        }
        let number = u32::try_from(self.nodes.len()).ok().filter(|number| *number != ROOT)?;
        self.nodes.push(node);
        let nodes = &self.nodes;
        self.numbers.insert_unique(hash(&node), number, |number| hash(&nodes[*number as usize]));
        Some(number)
    }
}

impl<'a> KnownStack<'a> {
    /// Returns the frames, innermost first.
    pub fn frames(&self) -> impl Iterator<Item = Frame> + use<'a> {
        self.nodes().map(|(_, frame)| frame)
    }

    /// The same, each with the number that it shares with all stacks that are the same from there on outwards.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, Frame)> + use<'a> {
        let (nodes, mut next) = (self.nodes, self.innermost);
        std::iter::from_fn(move || {
            let node = nodes.get(next as usize)?;
            let number = std::mem::replace(&mut next, node.parent);
            Some((number, node.frame))
        })
    }

    /// Returns a copy.
    pub fn to_stack(&self) -> Stack {
        let Self { id, process, time, end, .. } = *self;
        Stack { id, process, time, frames: self.frames().collect(), end }
    }
}

fn hash(node: &Node) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(id: u64, frames: &[u64]) -> Stack {
        let frames = frames.iter().copied().map(Frame::User).collect();
        Stack { id: StackId(id), process: ProcessId(7), time: 10, frames, end: StackEnd::Truncated }
    }

    /// Check that stacks come back as they were, and share what is the same from the outermost frame on.
    #[test]
    fn stacks_share_their_outermost_frames() {
        let all = [stack(1, &[3, 2, 1]), stack(2, &[4, 2, 1]), stack(3, &[2, 1]), stack(4, &[3, 2, 9]), stack(5, &[])];
        let mut stacks = Stacks::default();
        let new: Vec<usize> = all
            .iter()
            .map(|stack| {
                let new = stacks.new_nodes(&stack.frames);
                stacks.insert(stack);
                new
            })
            .collect();
        assert_eq!((new, stacks.nodes.len()), (vec![3, 1, 0, 3, 0], 7));
        for stack in &all {
            assert_eq!(stacks.get(stack.id).map(|known| known.to_stack()).as_ref(), Some(stack));
        }
        assert_eq!((stacks.len(), stacks.iter().count(), stacks.contains(StackId(6))), (5, 5, false));
    }

    /// Check that a stack with a known id replaces it.
    #[test]
    fn stacks_are_replaced() {
        let mut stacks = Stacks::default();
        stacks.insert(&stack(1, &[3, 2, 1]));
        stacks.insert(&stack(1, &[5, 1]));
        assert_eq!(stacks.get(StackId(1)).map(|known| known.to_stack()), Some(stack(1, &[5, 1])));
        assert_eq!(stacks.len(), 1);
    }
}
