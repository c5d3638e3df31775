//! Placeholders in the names of outputs: `{host}`, `{pid}`, `{rank}`, `{time}`.

use std::{
    env,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::bail;

/// The variables in which launchers pass the rank, in the order in which they count.
const RANKS: [&str; 5] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// Replaces the placeholders of a path. Other text in braces stays.
pub fn expand(path: &Path) -> anyhow::Result<PathBuf> {
    let value = |name: &[u8]| -> anyhow::Result<Option<String>> {
        Ok(Some(match name {
            b"host" => {
                let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                // A host name has no slash, but nobody checks.
                host.trim().replace('/', "_")
            }
            b"pid" => std::process::id().to_string(),
            b"time" => stamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
            b"rank" => {
                let rank = RANKS.into_iter().find_map(|name| env::var(name).ok()?.parse::<u32>().ok());
                match rank {
                    Some(rank) => rank.to_string(),
                    None => bail!("{}: there is no rank: none of {} is set", path.display(), RANKS.join(", ")),
                }
            }
            _ => return Ok(None),
        }))
    };
    let (mut expanded, mut rest) = (Vec::new(), path.as_os_str().as_bytes());
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        let close = rest[open..].iter().position(|byte| *byte == b'}').map(|length| open + length);
        expanded.extend_from_slice(&rest[..open]);
        match close.map(|close| Ok::<_, anyhow::Error>((close, value(&rest[open + 1..close])?))).transpose()? {
            Some((close, Some(value))) => {
                expanded.extend_from_slice(value.as_bytes());
                rest = &rest[close + 1..];
            }
            _ => {
                expanded.push(b'{');
                rest = &rest[open + 1..];
            }
        }
    }
    expanded.extend_from_slice(rest);
    Ok(OsString::from_vec(expanded).into())
}

/// Formats a time in UTC, such as `20261116-151233`.
fn stamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Count years from 1 March 0000, so that a leap day is the last day of its year: 146,097 days are 400 years.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let year = era * 400 + year;
    format!("{year:04}{month:02}{day_of_month:02}-{:02}{:02}{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check dates around leap days and the end of a year.
    #[test]
    fn times_are_formatted() {
        for (seconds, text) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (1_709_251_200, "20240301-000000"),
            (1_767_225_599, "20251231-235959"),
            (1_794_842_400, "20261116-152000"),
        ] {
            assert_eq!(stamp(seconds), text);
        }
    }

    /// Check that known placeholders are replaced wherever they are, and that other braces stay.
    #[test]
    fn placeholders_are_replaced() {
        let pid = std::process::id();
        let expanded = |path: &str| expand(Path::new(path)).expect("no rank in it").display().to_string();
        assert_eq!(expanded("a/{pid}-{pid}.wscope"), format!("a/{pid}-{pid}.wscope"));
        for path in ["plain.html", "{other}.html", "{.html", "}{.html", "{{}}"] {
            assert_eq!(expanded(path), path);
        }
        assert_eq!(expanded("{{pid}}.html"), format!("{{{pid}}}.html"));
        assert!(!expanded("{host}-{time}.html").contains(['{', '/']));
    }
}
