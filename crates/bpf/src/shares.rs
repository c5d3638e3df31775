//! Limits the mapping records per process, so that one that maps code all the time cannot keep the reader busy.

use std::collections::HashMap;

/// The most processes remembered; those with a full burst left are removed first.
const MOST: usize = 16_384;
const SECOND: u64 = 1_000_000_000;

/// The limit of a process: a burst of records, and a rate per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The burst. PyTorch maps about 400 files.
    pub burst: u32,
    /// The rate per second after that.
    pub each_second: u32,
    /// After records beyond a share, the reader pauses for this many times as long as reading them took.
    pub rest: u32,
}

impl Share {
    /// For a recording, whose programs the user has chosen: as many as a process can have by default
    /// (`vm.max_map_count`).
    pub const RECORDING: Share = Share { burst: 65_536, each_second: 256, rest: 0 };
    /// For the daemon, which sees the processes of all users.
    pub const DAEMON: Share = Share { burst: 4096, each_second: 64, rest: 20 };
}

/// The use of each process.
#[derive(Debug)]
pub(crate) struct Shares {
    share: Share,
    /// The remaining records of a process, and when that was computed.
    left: HashMap<u32, (u32, u64)>,
}

impl Shares {
    /// Returns the factor of the pause relative to the reading time.
    pub(crate) fn rest(&self) -> u32 {
        self.share.rest
    }

    pub(crate) fn new(share: Share) -> Self {
        Self { share, left: HashMap::new() }
    }

    /// Uses one record of a process at `time`; returns `false` if its share is used up.
    pub(crate) fn take(&mut self, pid: u32, time: u64) -> bool {
        let Share { burst, each_second, .. } = self.share;
        if self.left.len() >= MOST && !self.left.contains_key(&pid) {
            let whole = SECOND * u64::from(burst) / u64::from(each_second.max(1));
            self.left.retain(|_, (_, since)| time.saturating_sub(*since) < whole);
            // More processes than that within a minute: start over.
            if self.left.len() >= MOST {
                self.left.clear();
            }
        }
        let (left, since) = self.left.entry(pid).or_insert((burst, time));
        // Whole records only, so that fractions of a second are not lost.
        let gained = u128::from(time.saturating_sub(*since)) * u128::from(each_second) / u128::from(SECOND);
        if gained > 0 {
            *left = u128::from(*left).saturating_add(gained).min(burst.into()) as u32;
            *since = time;
        }
        let taken = *left > 0;
        *left -= u32::from(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: Share = Share { burst: 3, each_second: 10, rest: 0 };

    /// Check that a process has its burst, then its rate, and that others are not affected.
    #[test]
    fn a_process_has_a_burst_and_a_rate() {
        let mut shares = Shares::new(SHARE);
        let mut take = |pid, time| shares.take(pid, time);
        assert_eq!([0, 0, 0, 0, SECOND / 20].map(|time| take(1, time)), [true, true, true, false, false]);
        assert!(take(2, 0));
        assert_eq!([SECOND / 10, SECOND / 10 + 1].map(|time| take(1, time)), [true, false]);
        assert_eq!([SECOND * 9; 4].map(|time| take(1, time)), [true, true, true, false]);
        assert!(!take(1, SECOND), "records of several CPUs come out of order");
    }

    /// Check that the number of remembered processes is bounded.
    #[test]
    fn remembered_processes_are_bounded() {
        let mut shares = Shares::new(SHARE);
        for pid in 0..3 * MOST as u32 {
            assert!(shares.take(pid, u64::from(pid)));
            assert!(shares.left.len() <= MOST);
        }
    }
}
