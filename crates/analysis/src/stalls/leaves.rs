//! What is below each kernel in flame graphs: lines, instructions and stall reasons.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use model::{
    event::{Instruction, ProcessId, StackId},
    fold::divide,
    profile::{GpuKey, GpuWeight, Profile},
};

use super::{frame, instruction, line};

/// The most instructions and reasons below one kernel, and the most lines and reasons for the others.
const MOST_LEAVES: usize = 200;
/// The frame of what is left.
const OTHERS: &str = "[other instructions]";

/// One instruction or line, and a reason.
struct Leaf {
    /// Source lines, outermost first, then the instruction, then the reason.
    frames: Vec<String>,
    samples: u64,
}

/// A kernel of a process, by its index in the profile, and the stack that launched it; `None` for all stacks.
type Kernel = (ProcessId, u32, Option<StackId>);

/// The samples of one kernel: by lines, instruction and reason.
type Sums = BTreeMap<(Vec<String>, Option<String>, String), u64>;

/// What is below each kernel.
pub(crate) struct Leaves(HashMap<Kernel, Vec<Leaf>>);

impl Leaves {
    /// For the kernels of a profile.
    pub(crate) fn of(profile: &Profile) -> Self {
        let stalls = &profile.stalls;
        let mut sums: HashMap<Kernel, Sums> = HashMap::new();
        let mut add = |process: ProcessId, stack, (at, index): (&Instruction, u32), count: u64| {
            let Some(kernel) = stalls.functions.get(&(at.session, at.function)) else { return };
            let lines = stalls.lines.get(at).map(|lines| lines.iter().map(line).collect()).unwrap_or_default();
            let key = (lines, instruction(stalls, at), frame(stalls.reason(at.session, index)));
            let sum = sums.entry((process, *kernel, stack)).or_default().entry(key).or_default();
            *sum = sum.saturating_add(count);
        };
        for ((at, index), count) in &stalls.samples {
            let process = profile.sessions.get(&at.session).map_or(ProcessId(0), |session| session.process);
            add(process, None, (at, *index), *count);
        }
        for ((process, stack, at, index), count) in &stalls.by_stack {
            add(*process, Some(*stack), (at, *index), *count);
        }
        Self(sums.into_iter().map(|(kernel, sums)| (kernel, bounded(sums))).collect())
    }

    /// Divides a kernel's time and the number of its runs among what is below it. `None` if it has no samples.
    pub(crate) fn divide(
        &self,
        key: &GpuKey,
        weight: &GpuWeight,
    ) -> Option<impl Iterator<Item = (&[String], u64, u64)>> {
        let kernel = key.what.kernel()?;
        // The samples of its own launches, if kernels were serialised; otherwise those of all launches.
        let own = key.stack.and_then(|stack| self.0.get(&(key.process, kernel, Some(stack))));
        let leaves = own.or_else(|| self.0.get(&(key.process, kernel, None)))?;
        let samples: Vec<u64> = leaves.iter().map(|leaf| leaf.samples).collect();
        let both = divide(weight.ns, &samples).into_iter().zip(divide(weight.count, &samples));
        Some(leaves.iter().zip(both).map(|(leaf, (ns, count))| (&leaf.frames[..], ns, count)))
    }
}

/// Returns the most frequent instructions. The others are added up by line and reason, and what is still too much as one.
fn bounded(sums: Sums) -> Vec<Leaf> {
    let mut leaves = most(sums.into_iter().map(|((lines, instruction, reason), samples)| {
        let frames = lines.iter().cloned().chain(instruction).chain([reason.clone()]).collect();
        (Leaf { frames, samples }, (lines, reason))
    }));
    let rest = leaves.split_off(leaves.len().min(MOST_LEAVES));
    let mut leaves: Vec<Leaf> = leaves.into_iter().map(|(leaf, _)| leaf).collect();
    let mut by_line: BTreeMap<(Vec<String>, String), u64> = BTreeMap::new();
    for (leaf, line) in rest {
        let sum = by_line.entry(line).or_default();
        *sum = sum.saturating_add(leaf.samples);
    }
    let mut lines =
        most(by_line.into_iter().map(|((lines, reason), samples)| {
            (Leaf { frames: lines.into_iter().chain([reason]).collect(), samples }, ())
        }));
    let rest = lines.split_off(lines.len().min(MOST_LEAVES));
    leaves.extend(lines.into_iter().map(|(leaf, ())| leaf));
    if !rest.is_empty() {
        let samples = rest.iter().fold(0_u64, |sum, (leaf, ())| sum.saturating_add(leaf.samples));
        leaves.push(Leaf { frames: vec![OTHERS.to_owned()], samples });
    }
    leaves
}

/// Sorts leaves, those with the most samples first.
fn most<T>(leaves: impl Iterator<Item = (Leaf, T)>) -> Vec<(Leaf, T)> {
    let mut leaves: Vec<(Leaf, T)> = leaves.collect();
    leaves.sort_by_key(|(leaf, _)| Reverse(leaf.samples));
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the instructions beyond the limit are added up by line, and the lines beyond it as one, without a loss.
    #[test]
    fn the_rest_is_added_up() {
        let key = |line: usize, instruction: usize| {
            (vec![format!("a.cu:{line}")], Some(format!("NOP +{instruction:#x}")), "[stall: wait]".to_owned())
        };
        let frequent = (0..MOST_LEAVES).map(|index| (key(0, index), 100));
        let rare = (0..2 * MOST_LEAVES + 6).map(|index| (key(index / 2, 1000 + index), 1));
        let leaves = bounded(frequent.chain(rare).collect());
        assert_eq!(leaves.len(), 2 * MOST_LEAVES + 1);
        assert!(leaves[..MOST_LEAVES].iter().all(|leaf| leaf.frames.len() == 3 && leaf.samples == 100));
        assert!(leaves[MOST_LEAVES..2 * MOST_LEAVES].iter().all(|leaf| leaf.frames.len() == 2 && leaf.samples == 2));
        let last = leaves.last().expect("there are some");
        assert_eq!((last.frames.as_slice(), last.samples), (&[OTHERS.to_owned()][..], 6));
    }
}
