//! Predicts a thread's next stack: loops repeat, so it is likely the one that followed the last two before.
//!
//! The way through the tree of [`wire::known::tree`] takes as long as the comparison of a stack where many begin alike: each step waits for
//! the one before. The predicted one is compared first, as every other would be, so a wrong prediction costs a little time
//! and nothing else.

use core::cell::Cell;

/// The number of predictions, a power of two.
const PLACES: usize = 512;

/// The stacks of one thread, as the places of their entries.
pub struct Successors {
    /// The memory that the places belong to, and its generation.
    epoch: Cell<u64>,
    /// The last stack and the one before it.
    last: Cell<[u32; 2]>,
    /// What followed two stacks, in the place that they are assigned to; 0 for nothing.
    next: [Cell<u32>; PLACES],
}

impl Successors {
    /// Predicts nothing.
    pub const fn new() -> Self {
        Self { epoch: Cell::new(0), last: Cell::new([0; 2]), next: [const { Cell::new(0) }; PLACES] }
    }

    fn place(&self) -> &Cell<u32> {
        let [last, before] = self.last.get().map(u64::from);
        let mixed = (last << 32 | before).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.next[(mixed >> 48) as usize % PLACES]
    }

    /// Returns the stack to expect in this memory; 0 for none.
    #[inline]
    pub fn expected(&self, epoch: u64) -> u32 {
        if self.epoch.replace(epoch) != epoch {
            self.forget();
        }
        self.place().get()
    }

    /// Says which stack it was.
    #[inline]
    pub fn was(&self, stack: u32) {
        let [last, _] = self.last.get();
        let place = self.place();
        if place.get() != stack {
            place.set(stack);
        }
        self.last.set([stack, last]);
    }

    #[cold]
    fn forget(&self) {
        self.last.set([0; 2]);
        for next in &self.next {
            next.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop is predicted from its second time on, even where a stack has different successors.
    #[test]
    fn a_loop_is_predicted() {
        let successors = Successors::new();
        let mut unexpected = 0;
        for stack in [7, 8, 7, 9, 10, 8, 11].repeat(50) {
            unexpected += u32::from(successors.expected(1) != stack);
            successors.was(stack);
        }
        assert!(unexpected <= 9, "{unexpected}");
    }

    /// Places in other memory are never used.
    #[test]
    fn nothing_of_other_memory_is_expected() {
        let successors = Successors::new();
        for stack in [7, 8].repeat(9) {
            successors.was(stack);
        }
        assert_eq!(successors.expected(2), 0);
        successors.was(11);
        assert_eq!(successors.expected(2), 0);
    }
}
