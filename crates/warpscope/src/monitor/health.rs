//! How warpscope itself fares: its own time and memory, and what the kernel's programs could not do.

use std::{
    collections::HashMap,
    fs,
    mem::MaybeUninit,
    time::{Duration, Instant},
};

use bpf::Losses;

/// CPU time that we have used, in seconds.
pub fn cpu_seconds() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a plain system call with a place for its answer; all zeroes is one too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Bytes that we have resident.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Few heaps for our few threads: each would keep what it once had.
pub fn keep_heaps_few() {
    // SAFETY: a setting of the allocator, made before there are other threads.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
}

/// What was freed goes back to the system.
pub fn give_memory_back() {
    // SAFETY: takes no pointers, and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

/// What was lost, by what it was.
pub fn lost(losses: &Losses, mappings: u64, stacks: u64, names: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("sums", losses.sums),
        ("deep_calls", losses.deep_calls),
        ("names", losses.calls + names),
        ("stacks", losses.stacks + losses.walks + stacks),
        ("processes", losses.processes),
        ("mappings", mappings),
        ("reads", losses.unread),
    ]
}

/// What it means for the reader that something of this kind was lost.
pub fn meaning(what: &str) -> &'static str {
    match what {
        "sums" => {
            "calls found no room in a map of the kernel and are not counted: warpscope_map_entries says which is full"
        }
        "deep_calls" => "calls within calls within calls, deeper than can be followed, are not counted",
        "names" => "names of kernels were lost: those kernels are shown by address",
        "stacks" => "call stacks were lost: memory that was allocated there has no line",
        "processes" => "processes found no room in a map of the kernel: their calls are not counted",
        "reads" => "a map of the kernel could not be read completely: numbers were too low or absent for that time",
        _ => "records of mapped files were lost: a library that was loaded just then may not be watched",
    }
}

/// For how long a loss counts as happening now.
const LATELY: Duration = Duration::from_secs(60);

/// Whether anything can be watched, as far as the monitor can tell.
#[derive(Default)]
pub struct HealthCheck {
    lost: HashMap<&'static str, (u64, Option<Instant>)>,
}

/// What there is to be told.
pub struct Findings<'a> {
    /// Libraries that are watched.
    pub libraries: u64,
    /// Why the last one that was refused was.
    pub refused: Option<&'a str>,
    /// No more functions can be told apart.
    pub functions_full: bool,
    /// What was lost so far.
    pub lost: &'a [(&'static str, u64)],
    /// Maps of the kernel that are full.
    pub full: Vec<&'static str>,
}

impl HealthCheck {
    /// What keeps the monitor from its work at this moment, in one sentence.
    pub fn problem(&mut self, findings: &Findings<'_>, now: Instant) -> Option<String> {
        for (what, count) in findings.lost {
            let (known, grew) = self.lost.entry(what).or_default();
            if *count > *known {
                (*known, *grew) = (*count, Some(now));
            }
        }
        let lately = |what: &str| {
            let grew = self.lost.get(what).and_then(|(_, grew)| *grew);
            grew.is_some_and(|grew| now.duration_since(grew) < LATELY)
        };
        if lately("processes") {
            return Some("new processes are not counted: there is no room in the kernel's map of processes".to_owned());
        }
        if lately("sums") && !findings.full.is_empty() {
            return Some(format!("calls are not counted: the kernel's maps are full ({})", findings.full.join(", ")));
        }
        if findings.libraries > 0 {
            return None;
        }
        match findings.refused {
            Some(reason) => Some(format!("no CUDA library is watched: {reason}")),
            None if findings.functions_full => {
                Some("no CUDA library is watched: there are too many functions to tell apart".to_owned())
            }
            None if self.lost.get("mappings").is_some_and(|(count, _)| *count > 0) => {
                Some("no CUDA library is watched: the kernel's records of loaded files were lost".to_owned())
            }
            // Nobody uses CUDA yet.
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each way of watching nothing is told, that a machine without CUDA is well, and that what is over is
    /// over.
    #[test]
    fn problems() {
        let start = Instant::now();
        let check = |libraries, refused, functions_full, lost: &[(&'static str, u64)], full: &[&'static str]| {
            let findings = Findings { libraries, refused, functions_full, lost, full: full.to_vec() };
            HealthCheck::default().problem(&findings, start).unwrap_or_default()
        };
        assert_eq!(check(0, None, false, &[("mappings", 0)], &[]), "");
        assert_eq!(check(1, Some("x.so is not watched"), true, &[("mappings", 5)], &["calls"]), "");
        assert_eq!(check(2, None, false, &[("sums", 9)], &[]), "", "one process has used up its share");
        assert!(
            check(0, Some("x.so is not watched: no"), false, &[], &[]).ends_with("watched: x.so is not watched: no")
        );
        assert!(check(0, None, true, &[], &[]).contains("too many functions"));
        assert!(check(0, None, false, &[("mappings", 1)], &[]).contains("records of loaded files"));
        assert!(check(2, None, false, &[("processes", 1)], &[]).contains("new processes are not counted"));
        assert!(check(2, None, false, &[("sums", 1)], &["calls"]).contains("are full (calls)"));

        let mut check = HealthCheck::default();
        let mut at = |seconds, count| {
            let lost = [("processes", count)];
            let findings =
                Findings { libraries: 1, refused: None, functions_full: false, lost: &lost, full: Vec::new() };
            check.problem(&findings, start + Duration::from_secs(seconds)).is_some()
        };
        assert_eq!([at(0, 0), at(1, 3), at(30, 3), at(62, 3), at(63, 4)], [false, true, true, false, true]);
    }
}
