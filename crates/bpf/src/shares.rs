//! How many mapping records of one process are taken, so that one that maps code all the time cannot keep the reader busy.

use std::collections::HashMap;

/// The most processes whose use is remembered; those that have their whole burst left are forgotten first.
const MOST: usize = 16_384;
const SECOND: u64 = 1_000_000_000;

/// What a process may use: so many records at once, and so many more each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// At once. PyTorch maps some 400 files.
    pub burst: u32,
    /// Each second after that.
    pub each_second: u32,
    /// After records beyond a share, the reader rests this many times as long as it took to read them.
    pub rest: u32,
}

impl Share {
    /// For a recording, whose programs the user has chosen: as many as a process can have by default (`vm.max_map_count`).
    pub const RECORDING: Share = Share { burst: 65_536, each_second: 256, rest: 0 };
    /// For the daemon, which sees the processes of everybody.
    pub const DAEMON: Share = Share { burst: 4096, each_second: 64, rest: 20 };
}

/// What each process has used of its share.
#[derive(Debug)]
pub(crate) struct Shares {
    share: Share,
    /// How many records a process may still use, and when that was true.
    left: HashMap<u32, (u32, u64)>,
}

impl Shares {
    /// How many times as long as reading the reader rests.
    pub(crate) fn rest(&self) -> u32 {
        self.share.rest
    }

    pub(crate) fn new(share: Share) -> Self {
        Self { share, left: HashMap::new() }
    }

    /// Uses one record of a process at some time; `false` if it has used its share.
    pub(crate) fn take(&mut self, pid: u32, time: u64) -> bool {
        let Share { burst, each_second, .. } = self.share;
        if self.left.len() >= MOST && !self.left.contains_key(&pid) {
            let whole = SECOND * u64::from(burst) / u64::from(each_second.max(1));
            self.left.retain(|_, (_, since)| time.saturating_sub(*since) < whole);
            // More processes than that within a minute: nobody is known any more.
            if self.left.len() >= MOST {
                self.left.clear();
            }
        }
        let (left, since) = self.left.entry(pid).or_insert((burst, time));
        // Whole records only, so that the rest of a second is not lost.
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

    /// Check that a process has its burst, then its rate, and that others have their own.
    #[test]
    fn bursts_and_rates() {
        let mut shares = Shares::new(SHARE);
        let mut take = |pid, time| shares.take(pid, time);
        assert_eq!([0, 0, 0, 0, SECOND / 20].map(|time| take(1, time)), [true, true, true, false, false]);
        assert!(take(2, 0));
        assert_eq!([SECOND / 10, SECOND / 10 + 1].map(|time| take(1, time)), [true, false]);
        assert_eq!([SECOND * 9; 4].map(|time| take(1, time)), [true, true, true, false]);
        assert!(!take(1, SECOND), "records of several CPUs come out of order");
    }

    /// Check that many processes are remembered within a bound.
    #[test]
    fn many_processes() {
        let mut shares = Shares::new(SHARE);
        for pid in 0..3 * MOST as u32 {
            assert!(shares.take(pid, u64::from(pid)));
            assert!(shares.left.len() <= MOST);
        }
    }
}
