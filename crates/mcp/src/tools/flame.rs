//! `flame`: a part of a flame graph, from any frame inwards (top-down) or outwards (bottom-up).

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
    sync::Arc,
};

use analysis::{
    Flames, MemoryView, View,
    flame_tree::{Flame, Measure},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    frames::{StackHash, frame_id, is_frame},
    tool::{About, Tool, arguments, cursor, properties},
};
use crate::answer::{Answer, share, text};

/// Levels below the first frame, if not given, and at most.
const DEPTH: usize = 12;
const MOST_DEPTH: usize = 64;
/// Frames that are a smaller share of what is shown are left out, if not given.
const LEAST: f64 = 0.005;
/// The most frames of which a tree is built.
const MOST_NODES: usize = 200_000;

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    view: Shown,
    #[serde(default)]
    direction: Direction,
    from: Option<String>,
    depth: Option<usize>,
    least_share: Option<f64>,
    cursor: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shown {
    #[default]
    Time,
    Cpu,
    Gpu,
    Idle,
    MemoryPeak,
    MemoryEnd,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Direction {
    #[default]
    TopDown,
    BottomUp,
}

pub fn tool() -> Tool {
    Tool::new(
        "flame",
        "Returns a part of a flame graph as rows in depth-first order, the largest first. top_down: what a frame calls; bottom_up: \
         who calls it. `from` is a frame_id (wherever the frame is), a frame as it is shown, or a stack_id of an earlier answer.",
        properties(json!({
            "view": {"type": "string", "enum": ["time", "cpu", "gpu", "idle", "memory_peak", "memory_end"]},
            "direction": {"type": "string", "enum": ["top_down", "bottom_up"]},
            "from": {"type": "string"},
            "depth": {"type": "integer"},
            "least_share": {"type": "number", "description": "leave out smaller shares; 0.005 if not given"},
            "cursor": {"type": "string"},
        })),
        &["recording"],
        |library, given, _| {
            let known =
                ["recording", "filter", "max_bytes", "view", "direction", "from", "depth", "least_share", "cursor"];
            let asked: About<Asked> = arguments(given, &known)?;
            let opened = asked.open(library)?;
            let wanted = &asked.more;
            let flame = flame(&Flames::new(&opened.profile), wanted.view);
            let depth = wanted.depth.unwrap_or(DEPTH).clamp(1, MOST_DEPTH);
            let tree = Tree::of(&flame, wanted.direction, wanted.from.as_deref(), depth);
            if tree.nodes.len() < 2 {
                return Err(match wanted.from {
                    Some(_) => "no stack has this frame in this view".to_owned(),
                    None => "nothing was recorded for this view".to_owned(),
                });
            }
            let from = cursor(wanted.cursor.as_deref())?;
            let unit = match flame.measure {
                Measure::Time => "ns",
                Measure::Bytes => "bytes",
                Measure::Number => "count",
            };
            let rows = tree.rows(unit, wanted.least_share.unwrap_or(LEAST).clamp(0.0, 1.0));
            let mut answer = Answer::about(&opened.profile);
            answer.say(&format!("shown_{unit}"), tree.nodes[0].total);
            answer.say("share_is_of", format!("shown_{unit}"));
            answer.say("is_truncated", tree.is_truncated);
            let all = rows.len();
            answer.rows("frames", rows.into_iter().skip(from).collect(), (from, all));
            Ok(answer.text(asked.most()))
        },
    )
}

fn flame(flames: &Flames<'_>, view: Shown) -> Rc<Flame> {
    let shown = View::default();
    match view {
        Shown::Time => flames.of(shown),
        Shown::Cpu => flames.of(View { gpu: false, ..shown }),
        Shown::Gpu => flames.of(View { cpu: false, waits: false, ..shown }),
        Shown::Idle => flames.of(View { idle: true, ..shown }),
        Shown::MemoryPeak => flames.of(View { memory: Some(MemoryView::Peak), ..shown }),
        Shown::MemoryEnd => flames.of(View { memory: Some(MemoryView::End), ..shown }),
    }
}

/// A frame of the tree; the first one stands for all.
struct Node {
    frame: Arc<str>,
    stack: StackHash,
    depth: usize,
    total: u64,
    itself: u64,
    children: BTreeMap<Arc<str>, usize>,
}

struct Tree {
    nodes: Vec<Node>,
    is_truncated: bool,
}

impl Tree {
    fn of(flame: &Flame, direction: Direction, from: Option<&str>, depth: usize) -> Self {
        let root = Node {
            frame: "".into(),
            stack: StackHash::EMPTY,
            depth: 0,
            total: 0,
            itself: 0,
            children: BTreeMap::new(),
        };
        let mut tree = Self { nodes: vec![root], is_truncated: false };
        let mut known = HashMap::new();
        for line in &flame.lines {
            let mut frames: Vec<Arc<str>> = line.frames.clone();
            if direction == Direction::BottomUp {
                frames.reverse();
            }
            if let Some(start) = start(&frames, from, direction, &mut known) {
                tree.add(&frames, start, depth, line.weight.amount);
            }
        }
        tree
    }

    /// Adds a stack from one of its frames on.
    fn add(&mut self, frames: &[Arc<str>], start: usize, depth: usize, amount: u64) {
        let mut at = 0;
        let mut stack = frames[..start].iter().fold(StackHash::EMPTY, |stack, frame| stack.with(frame));
        self.nodes[0].total = self.nodes[0].total.saturating_add(amount);
        for (level, frame) in frames[start..].iter().take(depth).enumerate() {
            stack = stack.with(frame);
            let next = match self.nodes[at].children.get(frame) {
                Some(next) => *next,
                None if self.nodes.len() >= MOST_NODES => {
                    self.is_truncated = true;
                    break;
                }
                None => {
                    let next = self.nodes.len();
                    let children = BTreeMap::new();
                    self.nodes.push(Node {
                        frame: frame.clone(),
                        stack,
                        depth: level + 1,
                        total: 0,
                        itself: 0,
                        children,
                    });
                    self.nodes[at].children.insert(frame.clone(), next);
                    next
                }
            };
            at = next;
            self.nodes[at].total = self.nodes[at].total.saturating_add(amount);
        }
        if frames.len() - start <= depth {
            self.nodes[at].itself = self.nodes[at].itself.saturating_add(amount);
        }
    }

    /// Returns the frames in depth-first order, the largest first.
    fn rows(&self, unit: &str, least: f64) -> Vec<Value> {
        let whole = self.nodes[0].total;
        let (mut rows, mut open) = (Vec::new(), vec![0]);
        while let Some(at) = open.pop() {
            let node = &self.nodes[at];
            if at > 0 {
                rows.push(json!({
                    "depth": node.depth,
                    "frame": text(&node.frame),
                    format!("total_{unit}"): node.total,
                    format!("self_{unit}"): node.itself,
                    "share": share(node.total, whole),
                    "children": node.children.len(),
                    "frame_id": frame_id(&node.frame),
                    "stack_id": node.stack.id(),
                }));
            }
            let is_large = |at: &&usize| self.nodes[**at].total as f64 >= least * whole as f64;
            let mut children: Vec<usize> = node.children.values().filter(is_large).copied().collect();
            // The last one is taken first. Names decide between equal ones.
            children.sort_by(|a, b| {
                self.nodes[*a].total.cmp(&self.nodes[*b].total).then(self.nodes[*b].frame.cmp(&self.nodes[*a].frame))
            });
            open.extend(children);
        }
        rows
    }
}

/// Returns where a stack begins to be shown; `None` if it has not the frame that is asked for.
fn start(
    frames: &[Arc<str>],
    from: Option<&str>,
    direction: Direction,
    known: &mut HashMap<Arc<str>, bool>,
) -> Option<usize> {
    let Some(from) = from else { return Some(0) };
    if from.starts_with('s') && from.len() == 17 {
        let mut stack = StackHash::EMPTY;
        let is = |frame: &Arc<str>| {
            stack = stack.with(frame);
            stack.id() == from
        };
        return frames.iter().position(is);
    }
    let mut is = |frame: &Arc<str>| *known.entry(frame.clone()).or_insert_with(|| is_frame(frame, from));
    // The outermost one, so that recursion is counted once.
    match direction {
        Direction::TopDown => frames.iter().position(&mut is),
        Direction::BottomUp => frames.iter().rposition(&mut is),
    }
}

#[cfg(test)]
mod tests {
    use analysis::flame_tree::{Line, Weight};

    use super::*;

    fn flame(lines: &[(&str, u64)]) -> Flame {
        let line = |(frames, amount): &(&str, u64)| Line {
            frames: frames.split(';').map(Arc::from).collect(),
            weight: Weight { amount: *amount, ..Weight::default() },
        };
        Flame { lines: lines.iter().map(line).collect(), ..Flame::default() }
    }

    fn names(tree: &Tree) -> Vec<(usize, String, u64)> {
        let row = |row: &Value| {
            (
                row["depth"].as_u64().unwrap_or(0) as usize,
                row["frame"].as_str().unwrap_or("").to_owned(),
                row["total_ns"].as_u64().unwrap_or(0),
            )
        };
        tree.rows("ns", 0.0).iter().map(row).collect()
    }

    /// Check both directions, from the root, from a frame and from a stack: totals are those of the stacks below.
    #[test]
    fn trees_begin_at_any_frame() {
        let flame = flame(&[("p;main;a;k", 5), ("p;main;b;a;k", 7), ("p;main;b", 1)]);
        let all = Tree::of(&flame, Direction::TopDown, None, 3);
        let expected = [(1, "p", 13), (2, "main", 13), (3, "b", 8), (3, "a", 5)];
        assert_eq!(names(&all), expected.map(|(depth, name, total)| (depth, name.to_owned(), total)));
        let of_a = Tree::of(&flame, Direction::TopDown, Some(&frame_id("a")), 9);
        assert_eq!(names(&of_a), [(1, "a".to_owned(), 12), (2, "k".to_owned(), 12)]);
        let callers = Tree::of(&flame, Direction::BottomUp, Some("a"), 2);
        assert_eq!(names(&callers), [(1, "a".into(), 12), (2, "b".into(), 7), (2, "main".into(), 5)]);
        let rows = all.rows("ns", 0.0);
        let stack = rows[2]["stack_id"].as_str().expect("an id");
        let below = Tree::of(&flame, Direction::TopDown, Some(stack), 9);
        assert_eq!(names(&below)[0], (1, "b".into(), 8));
        assert_eq!(below.rows("ns", 0.0)[0]["stack_id"], rows[2]["stack_id"]);
        assert_eq!(Tree::of(&flame, Direction::TopDown, Some("nothing"), 9).nodes.len(), 1);
    }
}
