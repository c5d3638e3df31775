//! The key of a launch and of its activities.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;

use crate::event::SessionId;

#[inline]
pub fn key(session: SessionId, correlation: u32) -> u64 {
    u64::from(session.0) << 32 | u64::from(correlation)
}

#[inline]
pub fn hash(key: u64) -> u64 {
    FxBuildHasher.hash_one(key)
}
