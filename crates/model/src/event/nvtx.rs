//! Ranges and marks with which a program annotates itself (NVTX).

use super::SessionId;

/// Declares a path: a range within others, or a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeName {
    /// The CUDA process.
    pub session: SessionId,
    /// The path's number in that process, from 1.
    pub id: u32,
    /// The path around it; 0 if there is none.
    pub parent: u32,
    /// The name of its category; empty if it has none.
    pub category: String,
    /// The name, after that of its domain and a colon, if it has one.
    pub name: String,
}

/// A range ended, or a mark was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The CUDA process.
    pub session: SessionId,
    /// The path.
    pub path: u32,
    /// The thread that ended it.
    pub tid: u32,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// It is a mark, which has no duration.
    pub mark: bool,
}

/// A launch within a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangedLaunch {
    /// The CUDA process.
    pub session: SessionId,
    /// The launch.
    pub correlation: u32,
    /// The path of the innermost range.
    pub path: u32,
}
