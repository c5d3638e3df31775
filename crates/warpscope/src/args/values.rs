//! Parses values of options. Errors say what is expected.

use text::units;

/// Parses a duration in seconds, such as `10`, `0.5`, `500ms` or `2m`.
pub fn seconds(text: &str) -> Result<f64, String> {
    let expected = || "expected a time such as 10, 0.5, 500ms, 10s or 2m".to_owned();
    units::parse_seconds(text).map(|ns| ns / 1e9).ok_or_else(expected)
}

/// Parses a size in bytes, such as `1000000`, `64M` or `1G`.
pub fn size(text: &str) -> Result<usize, String> {
    let expected = || "expected a size of at least 1M, such as 64M or 1G".to_owned();
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("", 1)];
    let text = text.trim_end_matches("iB").trim_end_matches('B');
    let in_unit = |(unit, scale): (&str, usize)| text.strip_suffix(unit)?.parse::<usize>().ok()?.checked_mul(scale);
    let bytes = units.into_iter().find_map(in_unit).ok_or_else(expected)?;
    if bytes >= 1 << 20 { Ok(bytes) } else { Err(expected()) }
}

/// Parses a frequency, such as `99`.
pub fn hertz(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a whole number of samples per second, such as 99".to_owned())
}

/// Parses a process id.
pub fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected the id of a process, such as 1234".to_owned())
}

/// Parses a percentage, such as `2` or `2%`.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    number.parse().map_err(|_| "expected a percentage, such as 2 or 2%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_explained() {
        assert_eq!((pid("1234"), percent("2"), percent("0.5 %")), (Ok(1234), Ok(2.0), Ok(0.5)));
        for text in ["", "python3", "-1", "1.5"] {
            assert!(pid(text).is_err_and(|error| error.contains("such as 1234")), "{text}");
        }
        assert!(percent("two").is_err() && percent("%").is_err());
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [("1048576", 1 << 20), ("64M", 64 << 20), ("2GiB", 2 << 30), ("2048K", 2 << 20)] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in ["", "M", "1", "64X", "99999999999999999999G", "-1M"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in
            [("10", 10.0), ("0.5", 0.5), ("10s", 10.0), ("500ms", 0.5), ("20us", 2e-5), ("2m", 120.0), ("1h", 3600.0)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "abc", "10x", "1 s", "10us5"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
