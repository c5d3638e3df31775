//! A set of launches. Correlation ids of a session are dense, so a bit each takes little memory for millions.

use std::collections::HashMap;

use crate::event::SessionId;

/// Correlation ids in one block.
const BLOCK: u32 = 4096;

/// A set of launches, by session and correlation id.
#[derive(Debug, Default)]
pub struct Launches {
    blocks: HashMap<(SessionId, u32), Box<[u64; (BLOCK / 64) as usize]>>,
}

impl Launches {
    /// Adds a launch.
    pub fn insert(&mut self, session: SessionId, correlation: u32) {
        let block =
            self.blocks.entry((session, correlation / BLOCK)).or_insert_with(|| Box::new([0; (BLOCK / 64) as usize]));
        block[(correlation % BLOCK / 64) as usize] |= 1 << (correlation % 64);
    }

    /// Whether a launch was added.
    pub fn contains(&self, session: SessionId, correlation: u32) -> bool {
        let block = self.blocks.get(&(session, correlation / BLOCK));
        block.is_some_and(|block| block[(correlation % BLOCK / 64) as usize] & (1 << (correlation % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that launches of different sessions and blocks are distinguished.
    #[test]
    fn launches_are_distinguished() {
        let mut launches = Launches::default();
        for id in [0, 63, 64, 4_095, 4_096, u32::MAX] {
            assert!(!launches.contains(SessionId(1), id));
            launches.insert(SessionId(1), id);
            assert!(launches.contains(SessionId(1), id) && !launches.contains(SessionId(2), id));
        }
        assert!(!launches.contains(SessionId(1), 1));
    }
}
