//! Limits on what processes can make warpscope keep or do: memory, entries, descriptors, probes, time.
//!
//! A recorded process is not trusted, and may start any number of others. So everything that is kept on behalf of processes
//! has a [`Budget`], with a limit for each process and one for all. What is refused is counted.

use rustc_hash::FxHashMap;

use crate::event::ProcessId;

/// A process has used little up to this part of its share.
const LITTLE: u64 = 16;
/// The part of the total that is left to processes that have used little.
const RESERVED: u64 = 4;

/// How much of one thing processes may use, and how much they do.
///
/// The last quarter of the total is left to processes that have used at most a sixteenth of their share: a few that take all
/// they can get take nothing from the others.
#[derive(Clone, Debug)]
pub struct Budget {
    of_one: u64,
    in_all: u64,
    used: FxHashMap<ProcessId, u64>,
    total: u64,
    refused: u64,
}

impl Budget {
    /// Creates a budget with a limit for each process, and one for all.
    pub fn new(of_one: u64, in_all: u64) -> Self {
        Self { of_one, in_all, used: FxHashMap::default(), total: 0, refused: 0 }
    }

    /// Takes an amount for a process; counts a refusal if there is too little left.
    #[must_use]
    pub fn take(&mut self, process: ProcessId, amount: u64) -> bool {
        let full = self.is_full(process, amount);
        if full {
            self.refused += 1;
        } else {
            self.spend(process, amount);
        }
        !full
    }

    /// Whether there is too little left for this amount.
    pub fn is_full(&self, process: ProcessId, amount: u64) -> bool {
        let used = self.used.get(&process).copied().unwrap_or(0).saturating_add(amount);
        let reserved = if used <= (self.of_one / LITTLE).max(1) { 0 } else { self.in_all / RESERVED };
        used > self.of_one || self.total.saturating_add(amount) > self.in_all - reserved
    }

    /// Adds an amount that a process has already used, such as time. It may exceed the limits; nothing is left then.
    pub fn spend(&mut self, process: ProcessId, amount: u64) {
        if amount > 0 {
            let used = self.used.entry(process).or_default();
            *used = used.saturating_add(amount);
            self.total = self.total.saturating_add(amount);
        }
    }

    /// Gives back an amount that a process has taken.
    pub fn give_back(&mut self, process: ProcessId, amount: u64) {
        let Some(used) = self.used.get_mut(&process) else { return };
        let amount = amount.min(*used);
        *used -= amount;
        self.total = self.total.saturating_sub(amount);
        if *used == 0 {
            self.used.remove(&process);
        }
    }

    /// Gives back everything that a process has taken.
    pub fn give_back_all(&mut self, process: ProcessId) {
        self.total = self.total.saturating_sub(self.used.remove(&process).unwrap_or(0));
    }

    /// Returns how often something was refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a process gets its share, and that what it gives back is there again.
    #[test]
    fn processes_have_a_share() {
        let mut budget = Budget::new(100, 1_000);
        assert!(budget.take(ProcessId(1), 100) && !budget.take(ProcessId(1), 1));
        budget.give_back(ProcessId(1), 40);
        assert!(budget.take(ProcessId(1), 40) && !budget.take(ProcessId(1), 1));
        budget.give_back_all(ProcessId(1));
        assert!(budget.take(ProcessId(1), 100) && !budget.take(ProcessId(1), u64::MAX));
        assert_eq!((budget.refused(), budget.total), (3, 100));
    }

    /// Check that many processes together stay within the total, and that those who take all they can leave some to the others.
    #[test]
    fn the_greedy_leave_some_to_others() {
        let mut budget = Budget::new(160, 1_600);
        let greedy = (0..100).filter(|process| budget.take(ProcessId(*process), 160)).count();
        assert_eq!(greedy, 7, "three quarters");
        let modest = (100..1_000).filter(|process| budget.take(ProcessId(*process), 10)).count();
        assert_eq!((modest, budget.total), (48, 1_600));
        budget.give_back(ProcessId(5_000), 7);
        assert_eq!(budget.total, 1_600);
    }

    /// Check that nothing is left after more was used than there was.
    #[test]
    fn what_was_used_counts() {
        let mut budget = Budget::new(100, 1_000);
        budget.spend(ProcessId(1), 99);
        assert!(budget.take(ProcessId(1), 0));
        budget.spend(ProcessId(1), 50);
        assert!(!budget.take(ProcessId(1), 0) && budget.take(ProcessId(2), 0));
        budget.spend(ProcessId(1), u64::MAX);
        assert!(!budget.take(ProcessId(2), 0));
    }
}
