//! The time of day in UTC, so that the output of several machines can be compared.

/// `2026-11-15 07:51:32 UTC`.
pub fn stamp(unix_ns: u64) -> String {
    let seconds = (unix_ns / 1_000_000_000).cast_signed();
    // SAFETY: the C library fills a structure of integers and a pointer to a constant, for which zeros are valid.
    let time = unsafe {
        let mut time: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const seconds, &raw mut time);
        time
    };
    let (year, month, day) = (1900 + time.tm_year, 1 + time.tm_mon, time.tm_mday);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", time.tm_hour, time.tm_min, time.tm_sec)
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
