//! The frames as drawn, and their tooltips.

use std::{collections::BTreeMap, sync::Arc};

use analysis::{
    flame_tree::{Flame, Measure, Weight},
    stalls,
};
use text::{
    short::short_frame,
    units::{counted, percent},
};

/// Maximum length of a label, where it can be shortened to that: no frame is wider than about 170 characters.
pub(super) const LABEL_LENGTH: usize = 100;

/// A frame of the graph, with everything above it.
pub(super) struct Node<'a> {
    pub(super) name: &'a str,
    pub(super) weight: Weight,
    /// Its amount as drawn: shifted so that sums are exact in the script's numbers.
    pub(super) width: u64,
    /// For the work of graphs: the stacks that launched the graphs, with their amounts.
    pub(super) launches: BTreeMap<&'a [Arc<str>], u64>,
}

/// The most launching stacks in a tool tip, and the most frames of each.
const TIP_LAUNCHES: usize = 3;
const TIP_FRAMES: usize = 8;

/// `launched by main > replay [train.py:31] > cudaGraphLaunch`: the stacks that launched a graph, by time. The text after
/// the last opening parenthesis is not part of the name, so there are none in it.
fn launched_by(launches: &BTreeMap<&[Arc<str>], u64>) -> String {
    let mut stacks: Vec<_> = launches.iter().collect();
    stacks.sort_by_key(|(_, amount)| std::cmp::Reverse(**amount));
    let path = |frames: &[Arc<str>]| {
        // What the CUDA libraries call inside the launch says nothing.
        let inner = frames.iter().rev().take_while(|frame| frame.starts_with("[lib")).count();
        let frames = &frames[..frames.len() - inner];
        let left_out = frames.len().saturating_sub(TIP_FRAMES);
        let shown = frames[left_out..].iter().map(|frame| short_frame(frame, LABEL_LENGTH)).collect::<Vec<_>>();
        let path = format!("{}{}", if left_out > 0 { "… > " } else { "" }, shown.join(" > "));
        path.replace('(', "[").replace(')', "]")
    };
    let shown: Vec<String> = stacks.iter().take(TIP_LAUNCHES).map(|(frames, _)| path(frames)).collect();
    let more = stacks.len().saturating_sub(TIP_LAUNCHES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("launched by {}{more}", shown.join(" and by "))
}

impl Node<'_> {
    /// `name (12.3 ms, 45.6 %, 1,234 GPU operations, 56 CPU samples)`. The script in the file uses the text before the
    /// last bracket as the name.
    pub(super) fn tip(&self, total: u64, measure: Measure, names: (&str, &str)) -> String {
        let Weight { amount, samples, operations, hits } = self.weight;
        let mut tip = format!("{} ({}, {}", self.name, measure.text(amount), percent(amount, total));
        if let Some(meaning) = stalls::frame_meaning(self.name) {
            return format!("{tip}: {})", meaning.replace('(', "[").replace(')', "]"));
        }
        if operations > 0 {
            tip += &format!(", {}", counted(operations, "GPU operation", "GPU operations"));
        }
        if samples > 0 {
            tip += &format!(", {}", counted(samples, "CPU sample", "CPU samples"));
        }
        if hits > 0 {
            tip += &format!(", {}", counted(hits, names.0, names.1));
        }
        if !self.launches.is_empty() {
            tip += &format!(", {}", launched_by(&self.launches));
        }
        tip + ")"
    }
}

/// Returns the frames of the graph by start and depth. Lines are sorted, so equal prefixes are adjacent.
pub(super) fn nodes(flame: &Flame, shift: u32) -> BTreeMap<(u64, usize), Node<'_>> {
    let mut nodes: BTreeMap<(u64, usize), Node<'_>> = BTreeMap::new();
    let mut open: Vec<(&str, u64)> = vec![("all", 0)];
    let mut now = 0;
    for line in &flame.lines {
        let same = line.frames.iter().zip(&open[1..]).take_while(|(name, (known, _))| ***name == **known).count();
        open.truncate(1 + same);
        open.extend(line.frames[same..].iter().map(|name| (&**name, now)));
        let width = line.weight.amount >> shift;
        for (depth, &(name, start)) in open.iter().enumerate() {
            let new = || Node { name, weight: Weight::default(), width: 0, launches: BTreeMap::new() };
            let node = nodes.entry((start, depth)).or_insert_with(new);
            node.weight.add(line.weight);
            node.width += width;
        }
        // The boundary and the work within.
        for (stack, amount) in flame.launches.get(&line.frames).into_iter().flatten() {
            for (depth, (_, start)) in open.iter().enumerate().skip(open.len() - 2) {
                if let Some(node) = nodes.get_mut(&(*start, depth)) {
                    let sum = node.launches.entry(stack).or_default();
                    *sum = sum.saturating_add(*amount);
                }
            }
        }
        now += width;
    }
    nodes
}
