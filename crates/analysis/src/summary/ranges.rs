//! The ranges and marks of a program (NVTX), by name.

use model::profile::Profile;
use serde::Serialize;
use text::units::share;

/// The ranges with one name.
#[derive(Clone, Debug, Serialize)]
pub struct Range {
    /// The name, after that of its domain and a colon, if it has one.
    pub name: String,
    /// How often the range occurred.
    pub count: u64,
    /// Its time in all, on the threads that were in it.
    pub ns: u64,
    /// How often a mark of this name was set.
    pub marks: u64,
    /// Kernels, copies and memsets that were launched in it.
    pub operations: u64,
    /// Their time.
    pub gpu_ns: u64,
    /// The same as a share of `gpu_time_ns`, 0 to 1.
    pub gpu_share: f64,
}

impl Range {
    /// Sorted by GPU time, then by time.
    pub(super) fn of(profile: &Profile, gpu_time_ns: u64) -> Vec<Self> {
        let range = |(name, named): (&str, model::ranges::NamedRange)| Self {
            name: name.to_owned(),
            count: named.count,
            ns: named.ns,
            marks: named.marks,
            operations: named.operations,
            gpu_ns: named.gpu_ns,
            gpu_share: share(named.gpu_ns, gpu_time_ns),
        };
        let mut ranges: Vec<Self> = profile.ranges.by_name().into_iter().map(range).collect();
        ranges.sort_by_key(|range| std::cmp::Reverse((range.gpu_ns, range.ns, range.count)));
        ranges
    }
}
