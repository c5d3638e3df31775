//! Limits the time the daemon spends on inspecting the files of each user, so that no user can keep it busy with new
//! files.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The time for the files of one user: this much at once, and this share of the time after that.
const BURST: Duration = Duration::from_millis(250);
const SHARE: f64 = 0.03;
/// The same for all users except root together: one user may own many user ids (subordinate ids, containers).
const BURST_OF_ALL: Duration = Duration::from_secs(1);
const SHARE_OF_ALL: f64 = 0.08;
/// The most users tracked separately. Beyond it, users with a full allowance are dropped.
const MOST_USERS: usize = 1024;
const ROOT: u32 = 0;

/// An allowance of time, refilled as time passes. It may become negative: the cost of a file is not known in advance.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: f64,
    since: Instant,
}

impl Allowance {
    fn full(burst: Duration, now: Instant) -> Self {
        Self { left: burst.as_secs_f64(), since: now }
    }

    fn refill(&mut self, burst: Duration, share: f64, now: Instant) {
        let gained = now.saturating_duration_since(self.since).as_secs_f64() * share;
        *self = Self { left: (self.left + gained).min(burst.as_secs_f64()), since: now };
    }
}

/// Time spent on the files of each user. Files of root are always inspected at once: no other user can create them.
#[derive(Debug)]
pub struct Effort {
    users: HashMap<u32, Allowance>,
    all: Allowance,
}

impl Effort {
    /// Creates full allowances.
    pub fn new(now: Instant) -> Self {
        Self { users: HashMap::new(), all: Allowance::full(BURST_OF_ALL, now) }
    }

    /// Whether a file of this user may be inspected now.
    pub fn allows(&mut self, user: u32, now: Instant) -> bool {
        if user == ROOT {
            return true;
        }
        self.all.refill(BURST_OF_ALL, SHARE_OF_ALL, now);
        self.of(user, now).left > 0.0 && self.all.left > 0.0
    }

    /// Charges the user for a file that took this long.
    pub fn spend(&mut self, user: u32, took: Duration, now: Instant) {
        if user != ROOT {
            self.of(user, now).left -= took.as_secs_f64();
            self.all.left -= took.as_secs_f64();
        }
    }

    fn of(&mut self, user: u32, now: Instant) -> &mut Allowance {
        if self.users.len() >= MOST_USERS && !self.users.contains_key(&user) {
            self.users.retain(|_, allowance| {
                allowance.refill(BURST, SHARE, now);
                allowance.left < BURST.as_secs_f64()
            });
            // The allowance of all users together still applies.
            if self.users.len() >= MOST_USERS {
                self.users.clear();
            }
        }
        let allowance = self.users.entry(user).or_insert_with(|| Allowance::full(BURST, now));
        allowance.refill(BURST, SHARE, now);
        allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(300);

    /// Check that a user has a burst, then a share of the time, and that root and other users are not affected.
    #[test]
    fn a_user_has_a_burst_and_a_share() {
        let start = Instant::now();
        let mut effort = Effort::new(start);
        assert!(effort.allows(1000, start));
        effort.spend(1000, LONG, start);
        assert!(!effort.allows(1000, start), "the burst is used up");
        assert!(effort.allows(1001, start) && effort.allows(ROOT, start));
        assert!(!effort.allows(1000, start + Duration::from_secs(1)), "50 ms were spent too many");
        assert!(effort.allows(1000, start + Duration::from_secs(2)));
    }

    /// Check that the time for many users together is bounded, and so is the number of users remembered.
    #[test]
    fn many_users_together_are_bounded() {
        let start = Instant::now();
        let mut effort = Effort::new(start);
        let allowed = (1..5000).filter(|user| {
            let allowed = effort.allows(*user, start);
            if allowed {
                effort.spend(*user, LONG, start);
            }
            assert!(effort.users.len() <= MOST_USERS);
            allowed
        });
        assert_eq!(allowed.count(), 4);
        assert!(effort.allows(ROOT, start));
        assert!(effort.allows(7, start + Duration::from_secs(60)));
    }
}
