//! When the daemon last did its periodic work, and what it found then.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::health::HealthCheck;

/// How often ended processes are removed.
pub const OFTEN: Duration = Duration::from_secs(1);
/// How often everything else is checked.
pub const SELDOM: Duration = Duration::from_secs(10);

/// When each periodic task last ran, and its results.
pub struct Periodic {
    pub often: Instant,
    pub seldom: Instant,
    /// Launches at the last check, by process and kernel.
    pub kernels: HashMap<(u32, u64), u64>,
    /// Call stacks without live allocations at the last check.
    pub empty_sites: HashSet<(u32, u64, u64)>,
    /// What was lost up to the last check.
    pub lost: Vec<(&'static str, u64)>,
    /// Kernel maps that were full in the last snapshot.
    pub full: Vec<&'static str>,
    pub check: HealthCheck,
}

impl Periodic {
    /// Creates the state before the first round.
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

    /// Returns when the next task is due.
    pub fn next(&self) -> Instant {
        self.often + OFTEN
    }
}
