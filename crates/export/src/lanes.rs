//! Lanes of a track, for slices that overlap.

/// Maximum number of lanes of one stream, or of one process's waits.
pub(crate) const LANES: u32 = 16;

/// The lanes of one stream. Viewers drop slices that overlap without nesting, so work that begins before the last slice
/// of a lane has ended is put on the next lane: dependent launches, graph branches, records out of order.
#[derive(Default)]
pub(crate) struct Lanes {
    /// When each lane becomes free.
    free: Vec<u64>,
}

impl Lanes {
    /// Returns the track for work from `start` to `end`; the last lane accepts what fits in no other.
    pub fn place(&mut self, first: u32, start: u64, end: u64) -> u32 {
        let lane = self.free.iter().position(|&free| free <= start).unwrap_or(self.free.len()).min(LANES as usize - 1);
        match self.free.get_mut(lane) {
            Some(free) => *free = end.max(*free),
            None => self.free.push(end),
        }
        first + lane as u32
    }

    /// Returns the number of lanes in use.
    pub fn count(&self) -> u32 {
        self.free.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that overlapping work gets a separate lane.
    ///
    /// ```text
    ///   lane 0   ====    ====
    ///   lane 1     ====
    /// ```
    #[test]
    fn overlaps_get_their_own_lane() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.place(100, 0, 4), 100);
        assert_eq!(lanes.place(100, 2, 6), 101);
        assert_eq!(lanes.place(100, 8, 12), 100);
        assert_eq!(lanes.count(), 2);
    }

    /// Check that the number of lanes is bounded.
    #[test]
    fn lanes_are_bounded() {
        let mut lanes = Lanes::default();
        for _ in 0..100 {
            assert!(lanes.place(0, 5, 1_000) < LANES);
        }
        assert_eq!(lanes.count(), LANES);
    }
}
