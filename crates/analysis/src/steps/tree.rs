//! The call sites of all stacks as a tree: stacks that begin alike share their outermost nodes.

use model::event::{ProcessId, StackId};
use rustc_hash::FxHashMap;

/// No node.
pub const NONE: u32 = u32::MAX;

/// One frame of a stack: the place of a call in a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Identifies it among the call sites of its caller.
    pub id: u64,
    /// Identifies its function; 0 if that is not known.
    pub function: u64,
    /// Its place in the function: code further down has a larger number, in most cases.
    pub place: u64,
    /// Different calls have different ids. Those of a line of Python share theirs.
    pub is_exact: bool,
}

/// The tree. The root of each process is its image.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    known: FxHashMap<(u32, u64), u32>,
    stacks: Vec<StackId>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    depth: u32,
    site: Site,
    /// The number of its children: 0, 1, or more.
    children: u8,
}

/// Where two stacks part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The innermost node that both have.
    pub at: u32,
    /// The call site there of the first, and of the second. A stack that ends there has the node itself.
    pub sites: [u32; 2],
}

impl Tree {
    /// Adds a stack, outermost site first, and returns its innermost node; `None` if it is empty.
    pub fn add(&mut self, process: ProcessId, stack: StackId, sites: &[Site]) -> Option<u32> {
        let root = Site { id: u64::from(process.0), ..Site::default() };
        let mut node = self.child(NONE, root, stack);
        for site in sites {
            node = self.child(node, *site, stack);
        }
        (!sites.is_empty()).then_some(node)
    }

    fn child(&mut self, parent: u32, site: Site, stack: StackId) -> u32 {
        if let Some(known) = self.known.get(&(parent, site.id)) {
            return *known;
        }
        let node = self.nodes.len() as u32;
        let mut depth = 0;
        if let Some(above) = self.nodes.get_mut(parent as usize) {
            depth = above.depth + 1;
            above.children = above.children.saturating_add(1);
        }
        self.nodes.push(Node { parent, depth, site, children: 0 });
        self.stacks.push(stack);
        self.known.insert((parent, site.id), node);
        node
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the node around a node; [`NONE`] around a root.
    pub fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// Returns the number of sites from the outermost one to this.
    pub fn depth(&self, node: u32) -> u32 {
        self.nodes[node as usize].depth
    }

    /// Returns the call site of a node.
    pub fn site(&self, node: u32) -> &Site {
        &self.nodes[node as usize].site
    }

    /// Returns the first stack that has a node.
    pub fn stack(&self, node: u32) -> StackId {
        self.stacks[node as usize]
    }

    /// Returns a node and all around it, innermost first.
    pub fn up(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(node), |node| Some(self.parent(*node)).filter(|parent| *parent != NONE))
    }

    /// Returns the call sites of a stack below a node, innermost first, and the node of the call that each is in. The launch
    /// itself is a site of the innermost call.
    pub fn below(&self, node: u32, leaf: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let launch = (leaf != node).then_some((leaf, leaf));
        let calls = self.up(leaf).take_while(move |site| *site != node).map(|site| (site, self.parent(site)));
        launch.into_iter().chain(calls.take_while(move |(_, at)| *at != node && *at != NONE))
    }

    /// Whether all stacks through a node go on through `inner`, which is below it.
    pub fn leads_only_to(&self, node: u32, inner: u32) -> bool {
        self.up(inner).skip(1).take_while(|above| *above != node).all(|above| self.nodes[above as usize].children == 1)
            && (node == inner || self.nodes[node as usize].children == 1)
    }

    /// Returns where two stacks of a process part. Equal ones part at their innermost call site.
    pub fn fork(&self, first: u32, second: u32) -> Fork {
        if first == second {
            return Fork { at: self.parent(first), sites: [first; 2] };
        }
        let (mut a, mut b) = (first, second);
        let mut sites = [NONE; 2];
        while self.depth(a) > self.depth(b) {
            (sites[0], a) = (a, self.parent(a));
        }
        while self.depth(b) > self.depth(a) {
            (sites[1], b) = (b, self.parent(b));
        }
        while a != b {
            sites = [a, b];
            (a, b) = (self.parent(a), self.parent(b));
        }
        Fork { at: a, sites: sites.map(|site| if site == NONE { a } else { site }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that stacks part where their call sites differ, also where one ends, and where they are equal.
    #[test]
    fn stacks_part() {
        let mut tree = Tree::default();
        let mut add = |sites: &[u64]| {
            let sites: Vec<Site> = sites.iter().map(|id| Site { id: *id, ..Site::default() }).collect();
            tree.add(ProcessId(1), StackId(1), &sites)
        };
        let all = [add(&[1, 2, 3]), add(&[1, 4]), add(&[1]), add(&[])];
        let [Some(deep), Some(other), Some(short), None] = all else { panic!("{all:?}") };
        let two = tree.parent(deep);
        assert_eq!(tree.fork(deep, other), Fork { at: short, sites: [two, other] });
        assert_eq!(tree.fork(short, deep), Fork { at: short, sites: [short, two] });
        assert_eq!(tree.fork(deep, deep), Fork { at: two, sites: [deep, deep] });
        assert_eq!([deep, other, short].map(|node| tree.depth(node)), [3, 2, 1]);
        assert_eq!(tree.below(short, deep).collect::<Vec<_>>(), [(deep, deep), (deep, two)]);
        assert_eq!(tree.below(deep, deep).count(), 0);
        assert!(tree.leads_only_to(two, deep) && !tree.leads_only_to(short, deep));
    }
}
