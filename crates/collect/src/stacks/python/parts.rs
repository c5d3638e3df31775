//! The Python parts of the stacks of one process image. Most frames occur on many stacks, and are kept once.

use std::collections::{HashMap, HashSet};

use bpf::{PythonCode, PythonFrame, PythonStack};

/// What each costs, in bytes of memory: with the indexes that find it.
const CODE: usize = 192;
const FRAME: usize = 96;
const STACK: usize = 96;
const NUMBER: usize = size_of::<u32>();

/// Code objects, frames, and stacks of frames.
#[derive(Default)]
pub struct Parts {
    codes: HashMap<(u64, u64), PythonCode>,
    frames: Vec<PythonFrame>,
    numbers: HashMap<PythonFrame, u32>,
    stacks: HashMap<u64, Kept>,
}

struct Kept {
    frames: Box<[u32]>,
    whole: Whole,
}

/// Whether a stack is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    Yes,
    /// There were more frames than are read.
    Truncated,
    /// The outermost frames could not be read.
    Broken,
}

impl Parts {
    /// Returns what a stack would cost.
    pub fn cost(&self, stack: &PythonStack) -> u64 {
        let new = stack.frames.iter().filter(|frame| !self.numbers.contains_key(frame)).count();
        (STACK + NUMBER * stack.frames.len() + FRAME * new) as u64
    }

    /// Adds a stack.
    pub fn add(&mut self, stack: &PythonStack) {
        let Self { frames, numbers, .. } = self;
        let number = |frame: &PythonFrame| {
            *numbers.entry(*frame).or_insert_with(|| {
                frames.push(*frame);
                frames.len() as u32 - 1
            })
        };
        let whole = match stack {
            PythonStack { truncated: true, .. } => Whole::Truncated,
            PythonStack { broken: true, .. } => Whole::Broken,
            _ => Whole::Yes,
        };
        let kept = Kept { frames: stack.frames.iter().map(number).collect(), whole };
        self.stacks.insert(stack.id, kept);
    }

    /// Whether a stack is there.
    pub fn has(&self, stack: u64) -> bool {
        self.stacks.contains_key(&stack)
    }

    /// Returns the frames of a stack, innermost first, and whether these are all.
    pub fn stack(&self, id: u64) -> Option<(impl Iterator<Item = PythonFrame>, Whole)> {
        let kept = self.stacks.get(&id)?;
        Some((kept.frames.iter().map(|number| self.frames[*number as usize]), kept.whole))
    }

    /// Returns what a code object would cost; 0 if it is known.
    pub fn cost_of_code(&self, code: &PythonCode) -> u64 {
        let bytes = CODE + code.name.len() + code.file.len() + code.lines.len();
        if self.codes.contains_key(&(code.code, code.tag)) { 0 } else { bytes as u64 }
    }

    /// Adds a code object. One that could not be read completely is sent again.
    pub fn add_code(&mut self, code: PythonCode) {
        let known = self.codes.entry((code.code, code.tag)).or_insert_with(|| code.clone());
        if known.name.is_empty() || known.file.is_empty() {
            *known = code;
        }
    }

    /// Returns the code object of a frame.
    pub fn code(&self, frame: &PythonFrame) -> Option<&PythonCode> {
        self.codes.get(&(frame.code, frame.tag))
    }

    /// Removes the stacks except these. Returns them, and what they cost.
    pub fn forget(&mut self, keep: &HashSet<u64>) -> (Vec<u64>, u64) {
        let mut bytes = 0;
        let gone = self.stacks.extract_if(|id, _| !keep.contains(id)).map(|(id, kept)| {
            bytes += STACK + NUMBER * kept.frames.len();
            id
        });
        let gone = gone.collect();
        if self.stacks.is_empty() {
            bytes += FRAME * self.frames.len();
            self.frames.clear();
            self.numbers.clear();
        }
        (gone, bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(id: u64, instructions: &[u32]) -> PythonStack {
        let frame = |&instruction: &u32| PythonFrame { code: 1, tag: 2, instruction, entry: false };
        let frames = instructions.iter().map(frame).collect();
        PythonStack { id, image: 7, frames, truncated: id == 2, broken: false }
    }

    /// Check that stacks come back as they were, and that frames are kept once.
    #[test]
    fn stacks_share_frames() {
        let mut parts = Parts::default();
        let all = [stack(1, &[1, 2, 3]), stack(2, &[4, 2, 3]), stack(3, &[])];
        let mut cost = 0;
        for stack in &all {
            cost += parts.cost(stack);
            parts.add(stack);
        }
        assert_eq!(parts.frames.len(), 4);
        for (stack, whole) in all.iter().zip([Whole::Yes, Whole::Truncated, Whole::Yes]) {
            let (frames, is) = parts.stack(stack.id).expect("it was added");
            assert_eq!((frames.collect::<Vec<_>>(), is), (stack.frames.clone(), whole));
        }
        assert!(parts.cost(&stack(4, &[1, 2, 3])) < parts.cost(&stack(4, &[7, 8, 9])));
        let (gone, given_back) = parts.forget(&HashSet::from([1]));
        assert!(gone.len() == 2 && parts.has(1) && !parts.has(2));
        let rest = parts.forget(&HashSet::new()).1;
        assert_eq!(given_back + rest, cost);
        assert!(parts.frames.is_empty() && parts.stack(1).is_none());
    }
}
