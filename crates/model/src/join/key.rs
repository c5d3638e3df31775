//! The key of a launch and of its activities.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;

use crate::event::SessionId;

#[inline]
pub fn key(session: SessionId, correlation: u32) -> u64 {
    u64::from(session.0) << 32 | u64::from(correlation)
}

/// Consecutive ids get adjacent places in a hash table, in runs of 16, which is a cache line of slots: calls are numbered in
/// sequence, and each place on its own would be fetched from memory. Runs are scattered, so other patterns of ids are as good
/// as any.
#[inline]
pub fn hash(key: u64) -> u64 {
    const RUN: u32 = 4;
    let within = key & ((1 << RUN) - 1);
    // The table compares the highest 7 bits before it compares keys. They must differ within a run.
    FxBuildHasher.hash_one(key >> RUN) << RUN ^ within ^ within << 57
}
