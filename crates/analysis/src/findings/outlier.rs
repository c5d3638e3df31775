//! The one of several GPUs that differs from the others.

/// A smaller distance from the others is noise: shares are as exact as their samples.
const LEAST: f64 = 0.03;
/// One differs if it is as many times as far from the others as these are from each other.
const TIMES: f64 = 2.0;

/// Returns the index of the share that differs from at least two others, which are alike. `None`: none does, or several do.
pub(super) fn outlier(shares: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| shares[*a].total_cmp(&shares[*b]));
    let [least, second, .., before, most] = order[..] else {
        // The second of three is the one before the last.
        let [least, middle, most] = order[..] else { return None };
        return first([(least, middle, most), (most, middle, least)], shares);
    };
    first([(least, second, most), (most, before, least)], shares)
}

/// Returns the first of each three if it differs from all between the other two.
fn first(candidates: [(usize, usize, usize); 2], shares: &[f64]) -> Option<usize> {
    let distance = |a: usize, b: usize| (shares[a] - shares[b]).abs();
    let differs = |(one, next, last): &(usize, usize, usize)| {
        distance(*one, *next) >= LEAST && distance(*one, *next) >= TIMES * distance(*next, *last)
    };
    candidates.into_iter().find(differs).map(|(one, ..)| one)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one is named only if it is far from all others, and these are close to each other.
    #[test]
    fn one_differs_from_the_others() {
        for (shares, expected) in [
            (&[0.40, 0.40, 0.30, 0.40][..], Some(2)),
            (&[0.31, 0.32, 0.31, 0.30, 0.38], Some(4)),
            (&[0.35, 0.30, 0.30], Some(0)),
            (&[0.30, 0.33, 0.30], Some(1)),
            // Too close to the others, two that differ, all different, and too few to know.
            (&[0.30, 0.31, 0.31, 0.329], None),
            (&[0.30, 0.30, 0.38, 0.38], None),
            (&[0.30, 0.30, 0.30, 0.37, 0.38], None),
            (&[0.30, 0.33, 0.36, 0.39], None),
            (&[0.30, 0.34, 0.40], None),
            (&[0.30, 0.40], None),
            (&[0.30], None),
            (&[], None),
        ] {
            assert_eq!(outlier(shares), expected, "{shares:?}");
        }
    }
}
