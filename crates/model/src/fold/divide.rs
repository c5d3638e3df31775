//! Exact division.

/// Divides `total` in proportion to `weights`; the parts add up to it exactly.
pub fn divide(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    // A recording may contain any numbers: the products must fit.
    let shift = (128 - sum.leading_zeros()).saturating_sub(64);
    let (mut before, mut given) = (0_u128, 0_u64);
    let part = |weight: &u64| {
        before += u128::from(*weight);
        let up_to = if sum == 0 { 0 } else { (u128::from(total) * (before >> shift) / (sum >> shift)) as u64 };
        let part = up_to - given;
        given = up_to;
        part
    };
    let mut parts: Vec<u64> = weights.iter().map(part).collect();
    if let (0, Some(first)) = (sum, parts.first_mut()) {
        *first = total;
    }
    parts
}
