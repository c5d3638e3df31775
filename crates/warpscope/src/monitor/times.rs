//! When the daemon last did its rounds, and what it found then.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::health::HealthCheck;

/// How often processes that have ended are forgotten.
pub const OFTEN: Duration = Duration::from_secs(1);
/// How often all else is looked at.
pub const SELDOM: Duration = Duration::from_secs(10);

/// When something was last done, and what was found.
pub struct Times {
    pub often: Instant,
    pub seldom: Instant,
    /// Launches at the last look, by process and kernel.
    pub kernels: HashMap<(u32, u64), u64>,
    /// Call stacks under which nothing was live at the last look.
    pub empty_sites: HashSet<(u32, u64, u64)>,
    /// What was lost up to the last look.
    pub lost: Vec<(&'static str, u64)>,
    /// Maps of the kernel that were full in the last snapshot.
    pub full: Vec<&'static str>,
    pub check: HealthCheck,
}

impl Times {
    /// Nothing was done yet.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            often: now,
            seldom: now,
            kernels: HashMap::new(),
            empty_sites: HashSet::new(),
            lost: Vec::new(),
            full: Vec::new(),
            check: HealthCheck::default(),
        }
    }

    /// When there is something to do.
    pub fn next(&self) -> Instant {
        self.often + OFTEN
    }
}
