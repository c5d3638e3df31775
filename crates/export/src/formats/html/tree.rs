//! The call tree of the page: every stack of the recording is a node, whose path to the root is the stack.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use analysis::{
    family::Family,
    flame_tree::Line,
    names::{self, GpuFrames},
    user_code::{self, UserCode},
    waits,
};
use model::{
    event::{CounterPoint, ProcessId, StackId},
    profile::{GpuKey, Profile, What},
};
use rustc_hash::FxHashMap;
use text::short::{short_frame, split_place};

use super::block::Column;

/// Maximum length of a label, in characters.
const LABEL_LENGTH: usize = 64;

/// The most distinct kinds of work under distinct stacks. What comes after them is shown under its process alone.
const MOST_WORK: usize = 1 << 20;

/// The frame of work beyond that.
const OTHER_WORK: &str = "[other GPU work]";

/// The root, above the processes.
pub const ROOT: u32 = 0;

/// The call tree. Parents precede their children.
pub struct Tree<'a> {
    profile: &'a Profile,
    code: UserCode<'a>,
    gpu_frames: GpuFrames<'a>,
    frames: Vec<(Arc<str>, Family)>,
    /// Frames of the user's own code.
    own: BTreeSet<u32>,
    frame_ids: HashMap<Arc<str>, u32>,
    /// The parent and the frame of each node.
    nodes: Vec<(u32, u32)>,
    children: FxHashMap<(u32, u32), u32>,
    /// By process, NVTX range and stack.
    stacks: FxHashMap<(ProcessId, u32, Option<StackId>), u32>,
    /// Of CPU samples.
    samples: FxHashMap<(ProcessId, StackId), u32>,
    work: FxHashMap<Work, u32>,
}

/// The process, the NVTX range, the stack, whether it is that of a graph's node, the device, and what ran.
type Work = (ProcessId, u32, Option<StackId>, bool, u32, What);

impl<'a> Tree<'a> {
    /// Creates a tree with the root only.
    pub fn new(profile: &'a Profile) -> Self {
        let mut tree = Self {
            profile,
            code: UserCode::new(profile),
            gpu_frames: GpuFrames::new(profile),
            frames: Vec::new(),
            own: BTreeSet::new(),
            frame_ids: HashMap::new(),
            nodes: Vec::new(),
            children: FxHashMap::default(),
            stacks: FxHashMap::default(),
            samples: FxHashMap::default(),
            work: FxHashMap::default(),
        };
        let root = tree.frame("", Family::Process);
        tree.nodes.push((ROOT, root));
        tree
    }

    /// Returns the number of a frame. Where families disagree, the first in their order is used.
    pub fn frame(&mut self, name: &str, family: Family) -> u32 {
        match self.frame_ids.get(name) {
            Some(&id) => {
                let known = &mut self.frames[id as usize].1;
                *known = family.min(*known);
                id
            }
            None => {
                let (name, id) = (Arc::<str>::from(name), self.frames.len() as u32);
                self.frames.push((name.clone(), family));
                self.frame_ids.insert(name, id);
                id
            }
        }
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let node = *self.children.entry((parent, frame)).or_insert(next);
        if node == next {
            self.nodes.push((parent, frame));
        }
        node
    }

    fn named_child(&mut self, parent: u32, name: &str, family: Family) -> u32 {
        let frame = self.frame(name, family);
        self.child(parent, frame)
    }

    /// Returns the node of a process, below its rank if there are several.
    pub fn process(&mut self, process: ProcessId) -> u32 {
        let rank = if self.profile.ranks.all.len() > 1 { self.profile.rank(process) } else { None };
        let above = rank.map_or(ROOT, |rank| self.named_child(ROOT, &names::rank(rank), Family::Process));
        let name = names::process(self.profile, process);
        self.named_child(above, &name, Family::Process)
    }

    /// Returns the node of a stack; without a stack, of a frame that says so.
    pub fn stack(&mut self, process: ProcessId, stack: Option<StackId>) -> u32 {
        self.ranged(process, 0, stack)
    }

    /// The same, with the NVTX ranges of a path between the process and its frames.
    fn ranged(&mut self, process: ProcessId, range: u32, stack: Option<StackId>) -> u32 {
        if let Some(&node) = self.stacks.get(&(process, range, stack)) {
            return node;
        }
        let mut node = self.process(process);
        for name in self.profile.ranges.path(range) {
            node = self.named_child(node, &names::range(name), Family::Range);
        }
        match stack {
            None => node = self.named_child(node, names::LAUNCH_NOT_SEEN, Family::Unknown),
            Some(id) => {
                let program = self.code.program(process);
                for frame in self.profile.frames(id) {
                    let number = self.frame(&names::frame(&frame), Family::of_frame(&frame));
                    if user_code::is_user(&frame, program) {
                        self.own.insert(number);
                    }
                    node = self.child(node, number);
                }
            }
        }
        self.stacks.insert((process, range, stack), node);
        node
    }

    /// Returns the node of a CPU sample.
    pub fn sample(&mut self, process: ProcessId, stack: StackId) -> u32 {
        if let Some(&node) = self.samples.get(&(process, stack)) {
            return node;
        }
        let mut node = self.stack(process, Some(stack));
        if let Some(reason) = waits::spinning(&self.profile.frames(stack)) {
            node = self.named_child(node, reason, Family::Wait);
        }
        self.samples.insert((process, stack), node);
        node
    }

    /// Returns the node of some work on a GPU; the stream does not matter.
    pub fn work(&mut self, work: &GpuKey) -> u32 {
        let &GpuKey { process, stack, capture, device, what, range, .. } = work;
        let key = (process, range, capture.or(stack), capture.is_some(), device, what);
        if let Some(&node) = self.work.get(&key) {
            return node;
        }
        if self.work.len() >= MOST_WORK {
            let node = self.process(process);
            return self.named_child(node, OTHER_WORK, Family::Unknown);
        }
        let mut node = self.ranged(process, range, capture.or(stack));
        if capture.is_some() {
            node = self.named_child(node, names::GRAPH_REPLAY, Family::Graph);
        }
        let name = self.gpu_frames.name(device, what);
        node = self.named_child(node, &name, Family::of_work(what));
        self.work.insert(key, node);
        node
    }

    /// Returns the node of a counted event, or of a wait.
    pub fn hit(
        &mut self,
        counter: &model::event::Counter,
        point: &CounterPoint,
        process: ProcessId,
        stack: StackId,
    ) -> u32 {
        if !waits::is_off_cpu(counter) {
            let node = self.stack(process, Some(stack));
            return self.named_child(node, &names::event(counter, point), Family::Event);
        }
        if waits::without_stack(point) {
            let node = self.process(process);
            return self.named_child(node, &point.function, Family::Wait);
        }
        let reason = waits::reason(point, &self.profile.frames(stack)).to_owned();
        self.wait(process, stack, &reason)
    }

    /// Returns the node of a wait with a stack.
    pub fn wait(&mut self, process: ProcessId, stack: StackId, reason: &str) -> u32 {
        let node = self.stack(process, Some(stack));
        self.named_child(node, reason, Family::Wait)
    }

    /// Returns the node of idle time: under its GPU, and the phase if that is not between operations, the path of another node and
    /// what was done there.
    pub fn idle(&mut self, outer: &[(&str, Family)], path: u32, doing: Option<(&str, Family)>) -> u32 {
        let mut frames = Vec::new();
        let mut at = path;
        while at != ROOT {
            let (parent, frame) = self.nodes[at as usize];
            frames.push(frame);
            at = parent;
        }
        let top = outer.iter().fold(ROOT, |node, (name, family)| self.named_child(node, name, *family));
        let node = frames.into_iter().rev().fold(top, |node, frame| self.child(node, frame));
        doing.map_or(node, |(name, family)| self.named_child(node, name, family))
    }

    /// Returns the frame of the user's line in a stack.
    pub fn place(&mut self, process: ProcessId, stack: StackId) -> u32 {
        let place = self.code.place(process, stack);
        self.frame(&place.frame, Family::Unknown)
    }

    /// Notes which frames of a stack are the user's own code. Lines of a flame graph have only their names.
    pub fn note(&mut self, process: ProcessId, stack: StackId) {
        let program = self.code.program(process);
        for frame in self.profile.frames(stack) {
            if user_code::is_user(&frame, program) {
                let number = self.frame(&names::frame(&frame), Family::of_frame(&frame));
                self.own.insert(number);
            }
        }
    }

    /// Returns the node of a line of a flame graph.
    pub fn line(&mut self, line: &Line, families: &BTreeMap<Arc<str>, Family>) -> u32 {
        line.frames.iter().fold(ROOT, |node, frame| {
            self.named_child(node, frame, families.get(frame).copied().unwrap_or(Family::Unknown))
        })
    }

    /// Returns the frames of kernels, with the names of the kernels.
    pub fn kernels(&self) -> impl Iterator<Item = (u32, &str)> {
        let frames = (0_u32..).zip(&self.frames).filter(|(_, (_, family))| *family == Family::GpuKernel);
        frames.filter_map(|(number, (name, _))| Some((number, name.split_once("_Kernel] ")?.1)))
    }

    /// Returns the columns of the tree, and its names: first those of the frames, then the texts that frames refer to.
    pub fn columns(self) -> (Vec<Column>, Vec<String>) {
        let mut names: Vec<String> = self.frames.iter().map(|(name, _)| name.to_string()).collect();
        let mut ids = self.frame_ids;
        let mut id = |text: &str| {
            *ids.entry(Arc::from(text)).or_insert_with_key(|text| {
                names.push(text.to_string());
                names.len() as u32 - 1
            })
        };
        let mut functions = Vec::with_capacity(self.frames.len());
        let mut labels = Vec::with_capacity(self.frames.len());
        for (name, family) in &self.frames {
            let (function, place) = split_place(name);
            let has_place = !place.is_empty() && matches!(family, Family::Python | Family::Native | Family::OsKernel);
            functions.push(u64::from(id(if has_place { function } else { name })));
            labels.push(u64::from(id(&short_frame(name, LABEL_LENGTH))));
        }
        let columns = vec![
            Column::plain("frame.family", self.frames.iter().map(|(_, family)| *family as u64)),
            Column::delta("frame.own", self.own.into_iter().map(u64::from)),
            Column::delta("frame.function", functions),
            Column::delta("frame.label", labels),
            Column::delta("node.parent", self.nodes.iter().map(|(parent, _)| u64::from(*parent))),
            Column::plain("node.frame", self.nodes.iter().map(|(_, frame)| u64::from(*frame))),
        ];
        (columns, names)
    }
}
