//! The time of day in UTC, so that the output of several machines can be compared.

/// A calendar date and time.
struct Civil {
    year: i64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

/// Days are counted from 1 March, so that the leap day is a year's last (Howard Hinnant, "chrono-compatible low-level
/// date algorithms").
fn civil(unix_seconds: u64) -> Civil {
    let days = unix_seconds / 86_400;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = (year_of_era + era * 400) as i64 + i64::from(month <= 2);
    Civil { year, month, day, second_of_day: unix_seconds % 86_400 }
}

/// `2026-11-15 07:51:32 UTC`.
pub fn stamp(unix_ns: u64) -> String {
    let Civil { year, month, day, second_of_day: second } = civil(unix_ns / 1_000_000_000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check dates around leap days and at the turn of a century.
    #[test]
    fn dates_are_formatted() {
        assert_eq!(stamp(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(stamp(951_782_399_000_000_000), "2000-02-28 23:59:59 UTC");
        assert_eq!(stamp(951_868_799_999_999_999), "2000-02-29 23:59:59 UTC");
        assert_eq!(stamp(4_107_542_400_000_000_000), "2100-03-01 00:00:00 UTC");
        assert_eq!(stamp(u64::MAX).len(), "2554-07-21 23:34:33 UTC".len());
    }
}
