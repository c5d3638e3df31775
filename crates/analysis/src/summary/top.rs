//! The first rows of a table.

use std::{cmp::Reverse, collections::BTreeMap};

/// The most rows of the tables that have only the first ones.
pub const TOP: usize = 10;

/// Returns the first rows, sorted by time; entries with equal times, by name.
pub(super) fn top<K: Ord, W>(weights: BTreeMap<K, W>, ns: impl Fn(&W) -> u64) -> impl Iterator<Item = (K, W)> {
    let mut rows: Vec<(K, W)> = weights.into_iter().collect();
    rows.sort_by_key(|(_, weight)| Reverse(ns(weight)));
    rows.into_iter().take(TOP)
}
