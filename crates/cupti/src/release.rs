//! The version numbers of each CUDA release's CUPTI, and the lengths of its records.

use crate::ids::kind;

/// One release of CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// CUDA's name for it, such as "12.8".
    pub name: &'static str,
    /// The result of `cuptiGetVersion`.
    pub version: u32,
    /// The result of `cuDriverGetVersion` for a driver of that release.
    pub driver: u32,
    kernel: usize,
    memcpy: usize,
    memset: usize,
    sync: usize,
}

const fn release(name: &'static str, version: u32, driver: u32, [kernel, memcpy, memset, sync]: [usize; 4]) -> Release {
    Release { name, version, driver, kernel, memcpy, memset, sync }
}

/// The releases, oldest first. 11.8, 12.0 and 12.1 have the same `version`.
pub const RELEASES: &[Release] = &[
    release("11.8", 18, 11080, [200, 88, 88, 40]),
    release("12.0", 18, 12000, [208, 88, 88, 40]),
    release("12.1", 18, 12010, [208, 88, 88, 40]),
    release("12.2", 20, 12020, [208, 88, 88, 40]),
    release("12.3", 21, 12030, [208, 88, 88, 40]),
    release("12.4", 22, 12040, [208, 88, 88, 40]),
    release("12.5", 23, 12050, [208, 88, 88, 40]),
    release("12.6", 24, 12060, [208, 88, 88, 40]),
    release("12.8", 26, 12080, [208, 96, 88, 56]),
    release("12.9", 28, 12090, [208, 96, 88, 56]),
    release("13.0", 130001, 13000, [216, 96, 88, 56]),
    release("13.1", 130101, 13010, [224, 96, 88, 56]),
    release("13.2", 130202, 13020, [224, 96, 88, 56]),
    release("13.3", 130301, 13030, [232, 96, 88, 56]),
    release("13.4", 130401, 13040, [248, 112, 104, 56]),
];

impl Release {
    /// Returns the release with this name, such as "13.0".
    pub fn named(name: &str) -> Option<&'static Release> {
        RELEASES.iter().find(|r| r.name == name)
    }

    /// Returns the length in bytes of a record of `kind`, for the kinds warpscope reads.
    pub fn stride(&self, kind: u32) -> Option<usize> {
        match kind {
            kind::CONCURRENT_KERNEL => Some(self.kernel),
            // The peer record is eight bytes longer than the plain one in every release.
            kind::MEMCPY2 => Some(self.memcpy + 8),
            kind::MEMCPY => Some(self.memcpy),
            kind::MEMSET => Some(self.memset),
            kind::SYNCHRONIZATION => Some(self.sync),
            kind::GRAPH_TRACE => Some(if self.driver < 12030 { 48 } else { 56 }),
            _ => None,
        }
    }
}
