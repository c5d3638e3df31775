//! Which steps count, and what is usual for them.

use model::steps::{Series, Step};

/// A step that takes longer than the median by this factor is slow; the first ones that do belong to the warm-up.
pub const SLOWER: f64 = 1.5;
/// At most this part of the steps is warm-up.
const MOST_WARM_UP: usize = 4;

/// Returns the steps that count: not those of the warm-up, and not those after which the loop was left.
pub fn measured_of(series: &Series) -> impl Iterator<Item = &Step> {
    series.steps[warm_up_of(series)..].iter().filter(|step| step.is_followed)
}

/// Returns the number of first steps that are slower than the others, until two in a row are not: one may be quick, as the first
/// token of a request.
pub fn warm_up_of(series: &Series) -> usize {
    let followed: Vec<u64> = series.steps.iter().filter(|step| step.is_followed).map(Step::ns).collect();
    let limit = median(&followed) as f64 * SLOWER;
    let first = (1..=series.steps.len() / MOST_WARM_UP).zip(&series.steps);
    let slow = first.filter(|(_, step)| step.is_followed && step.ns() as f64 > limit).map(|(number, _)| number);
    slow.fold(0, |warm_up, number| if number <= warm_up + 2 { number } else { warm_up })
}

/// Returns the median of some values; 0 if there are none.
pub fn median(values: &[u64]) -> u64 {
    percentile(values, 50)
}

/// Returns the smallest value that is not exceeded by this part of the values; 0 if there are none.
pub fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}
