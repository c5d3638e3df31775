//! Formats numbers for people.

use std::fmt::Write as _;

/// Formats three significant digits: `1.23`, `12.3`, `123`.
fn three_digits(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Formats a time: `850 ns`, `12.3 µs`, `98.2 ms`, `3.27 s`, `2 min 05 s`.
pub fn time(ns: u64) -> String {
    let value = ns as f64;
    if ns < 1_000 {
        format!("{ns} ns")
    } else if value < 999.5e3 {
        format!("{} µs", three_digits(value / 1e3))
    } else if value < 999.5e6 {
        format!("{} ms", three_digits(value / 1e6))
    } else if value < 119.5e9 {
        format!("{} s", three_digits(value / 1e9))
    } else {
        let seconds = (value / 1e9).round() as u64;
        if seconds < 3600 {
            format!("{} min {:02} s", seconds / 60, seconds % 60)
        } else {
            format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60)
        }
    }
}

/// Formats an energy in microjoules: `850 µJ`, `12.3 mJ`, `98.2 J`, `3.27 kJ`.
pub fn energy(microjoules: u64) -> String {
    let value = microjoules as f64;
    if microjoules < 1_000 {
        format!("{microjoules} µJ")
    } else if value < 999.5e3 {
        format!("{} mJ", three_digits(value / 1e3))
    } else if value < 999.5e6 {
        format!("{} J", three_digits(value / 1e6))
    } else if value < 999.5e9 {
        format!("{} kJ", three_digits(value / 1e9))
    } else {
        format!("{} MJ", three_digits(value / 1e12))
    }
}

/// Formats a number of bytes, in powers of 1024: `512 B`, `4 MiB`, `2.31 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// Formats the range of sizes that begins at a power of two and ends below the next: `4-8 MiB`, `512-1024 KiB`; `0 B` for 0.
pub fn size_range(from: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = from.checked_ilog2().unwrap_or(0) / 10;
    let (least, unit) = (from >> (10 * power), UNITS[power as usize]);
    if least == 0 { format!("0 {unit}") } else { format!("{least}-{} {unit}", 2 * least) }
}

/// Formats a count with thousands separators: `92,732`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its unit: `1 launch`, `2,000 launches`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Returns a part as a share of the whole, 0 to 1.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Formats a share to one decimal: `95.1 %`. A nonzero share is never shown as 0.0 %, and a partial one never as 100.0
/// %.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0.0 %".to_owned();
    }
    let share = 100.0 * part as f64 / whole as f64;
    if part > 0 && share < 0.05 {
        "<0.1 %".to_owned()
    } else if part < whole && share >= 99.95 {
        "99.9 %".to_owned()
    } else {
        format!("{share:.1} %")
    }
}

/// Returns a share rounded down to hundredths of a percent, so that 100 means all: (10000, or 9987 for 99.87 %).
pub fn hundredths(part: u64, whole: u64) -> u64 {
    if whole == 0 { 10_000 } else { (u128::from(part.min(whole)) * 10_000 / u128::from(whole)) as u64 }
}

/// Formats hundredths of a percent without trailing zeros: `100 %`, `99.87 %`, `50 %`.
pub fn percent_of_hundredths(hundredths: u64) -> String {
    let mut text = (hundredths / 100).to_string();
    if !hundredths.is_multiple_of(100) {
        let _ = write!(text, ".{:02}", hundredths % 100);
    }
    text + " %"
}

/// Parses a time, such as `0.5s`, `10us` or `2m`, and returns its nanoseconds. The number may be negative, infinite or not a
/// number: callers check the range.
pub fn parse_time(text: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("m", 60e9), ("h", 3600e9)];
    let in_unit = |(unit, ns): (&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * ns);
    units.into_iter().find_map(in_unit)
}

/// Parses a time like [`parse_time`]; a number without a unit is in seconds.
pub fn parse_seconds(text: &str) -> Option<f64> {
    parse_time(text).or_else(|| Some(text.parse::<f64>().ok()? * 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed() {
        let parsed = ["5ns", "10us", "1.5ms", "2s", "2min", "2m", "1h", "-1s"].map(parse_time);
        assert_eq!(parsed, [5.0, 1e4, 1.5e6, 2e9, 120e9, 120e9, 3600e9, -1e9].map(Some));
        assert_eq!((parse_seconds("0.5"), parse_seconds("3ns")), (Some(5e8), Some(3.0)));
        for text in ["", "s", "abc", "10x", "1 s", "10us5"] {
            assert_eq!(parse_seconds(text), None, "{text}");
        }
        assert_eq!(parse_time("10"), None);
    }

    /// Check that times keep three digits and change their unit where rounding would show 1000.
    #[test]
    fn times_keep_three_digits() {
        let expected = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (99_960, "100 µs"),
            (999_400, "999 µs"),
            (999_500, "1.00 ms"),
            (3_270_000_000, "3.27 s"),
            (125_000_000_000, "2 min 05 s"),
            (3_725_000_000_000, "1 h 02 min"),
        ];
        for (ns, text) in expected {
            assert_eq!(time(ns), text);
        }
    }

    /// Check sizes, classes and counts at the limits of units.
    #[test]
    fn sizes_and_counts_are_formatted() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4 << 20), "4.00 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(size_range(0), "0 B");
        assert_eq!(size_range(512), "512-1024 B");
        assert_eq!(size_range(4 << 20), "4-8 MiB");
        assert_eq!(size_range(1 << 63), "8-16 EiB");
        assert_eq!(count(92_732), "92,732");
        assert_eq!(count(100), "100");
        assert_eq!(counted(1, "launch", "launches"), "1 launch");
    }

    /// Check that a share is never rounded up to all or down to nothing.
    #[test]
    fn shares_are_honest() {
        assert_eq!(percent(1, 1_000_000), "<0.1 %");
        assert_eq!(percent(999_999, 1_000_000), "99.9 %");
        assert_eq!(percent(5, 5), "100.0 %");
        assert_eq!(hundredths(999_999, 1_000_000), 9_999);
        assert_eq!(percent_of_hundredths(hundredths(u64::MAX - 1, u64::MAX)), "99.99 %");
        assert_eq!(percent_of_hundredths(hundredths(7, 7)), "100 %");
        assert_eq!(percent_of_hundredths(hundredths(1, 2)), "50 %");
        assert_eq!(percent_of_hundredths(hundredths(0, 0)), "100 %");
    }
}
