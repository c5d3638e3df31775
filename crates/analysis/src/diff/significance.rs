//! Whether two sides differ by more than the recordings of a side.

/// Welch's t-test: whether two means differ, at 95 %.
pub fn significant(a: &[f64], b: &[f64]) -> bool {
    let error = |values: &[f64]| {
        let mean = mean(values);
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
        variance / values.len() as f64
    };
    let (ea, eb, difference) = (error(a), error(b), (mean(a) - mean(b)).abs());
    if ea + eb == 0.0 {
        return difference > 0.0;
    }
    // The degrees of freedom of Welch and Satterthwaite.
    let degrees = (ea + eb).powi(2) / (ea.powi(2) / (a.len() - 1) as f64 + eb.powi(2) / (b.len() - 1) as f64);
    difference / (ea + eb).sqrt() > critical(degrees)
}

/// Returns the two-sided 95 % quantile of Student's t-distribution, rounded up to the next lower tabulated degrees of freedom.
fn critical(degrees: f64) -> f64 {
    const QUANTILES: [(f64, f64); 14] = [
        (1.0, 12.706),
        (2.0, 4.303),
        (3.0, 3.182),
        (4.0, 2.776),
        (5.0, 2.571),
        (6.0, 2.447),
        (7.0, 2.365),
        (8.0, 2.306),
        (10.0, 2.228),
        (12.0, 2.179),
        (15.0, 2.131),
        (20.0, 2.086),
        (30.0, 2.042),
        (60.0, 2.000),
    ];
    QUANTILES.iter().rev().find(|(known, _)| degrees >= *known).map_or(QUANTILES[0].1, |(_, quantile)| *quantile)
}

/// Returns the mean of some values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
