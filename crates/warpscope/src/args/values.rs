//! Parses values of options. Errors say what is expected.

/// Parses a duration in seconds, such as `10`, `0.5`, `500ms` or `2m`.
pub fn seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("min", 60.0), ("m", 60.0), ("s", 1.0), ("h", 3600.0), ("", 1.0)];
    let in_unit = |(unit, scale)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale);
    let expected = || "expected a time such as 10, 0.5, 500ms, 10s or 2m".to_owned();
    units.into_iter().find_map(in_unit).ok_or_else(expected)
}

/// Parses a frequency, such as `99`.
pub fn hertz(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a whole number of samples per second, such as 99".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, expected) in
            [("10", 10.0), ("0.5", 0.5), ("10s", 10.0), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "abc", "10x", "1 s", "10us5"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
