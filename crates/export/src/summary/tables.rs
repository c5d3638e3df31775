//! Constants shared by the tables of a summary.

/// Maximum number of rows of each table.
pub(super) const TOP: usize = 10;

pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
