//! Names that nobody can guess.

use std::{
    hash::{BuildHasher, RandomState},
    time::Instant,
};

/// A number that nobody can guess.
pub fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}
