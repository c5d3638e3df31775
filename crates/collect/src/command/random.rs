//! Unpredictable names.

use std::{
    hash::{BuildHasher, RandomState},
    time::Instant,
};

/// Returns an unpredictable number.
pub fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}
