//! The monitor's own health: its CPU time and memory, and what the BPF programs could not do.

use std::{
    collections::HashMap,
    fs,
    time::{Duration, Instant},
};

use bpf::{CostProgram, ProgramCost};
use collect::process::cpu_time;

/// Returns the CPU time used by this process, in seconds.
pub fn cpu_seconds() -> f64 {
    cpu_time::own() as f64 / 1e9
}

/// Returns the runs of the BPF programs and their time in seconds, by name.
pub fn programs(costs: &[ProgramCost]) -> Vec<(&'static str, u64, f64)> {
    let name = |program| match program {
        CostProgram::Launch => "launch",
        CostProgram::Sample => "sample",
        CostProgram::Enter => "enter",
        CostProgram::Leave => "leave",
        CostProgram::Hit => "hit",
    };
    costs.iter().map(|cost| (name(cost.program), cost.runs, cost.ns as f64 / 1e9)).collect()
}

/// Returns the resident memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Limits the number of malloc arenas for our few threads: each arena keeps the memory it once had.
pub fn limit_heaps() {
    // SAFETY: an allocator setting, made before other threads start.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
}

/// Returns freed memory to the system.
pub fn trim_heap() {
    // SAFETY: takes no pointers, and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Says what a loss of this kind means for the user.
pub fn meaning(what: &str) -> &'static str {
    match what {
        "sums" => "calls were not counted because a BPF map was full: see warpscope_map_entries",
        "deep_calls" => "calls nested too deeply were not counted",
        "names" => "names of kernels were lost: those kernels are shown by address",
        "stacks" => "call stacks were lost: memory allocated there has no source line",
        "processes" => "processes were not tracked because a BPF map was full: their calls are not counted",
        "reads" => "a BPF map could not be read completely: numbers were too low or missing for that time",
        _ => "records of mapped files were lost: a library loaded at that time may not be monitored",
    }
}

/// How long a loss counts as recent.
const RECENT: Duration = Duration::from_secs(60);

/// Whether anything can be monitored, as far as the monitor knows.
#[derive(Default)]
pub struct HealthCheck {
    lost: HashMap<&'static str, (u64, Option<Instant>)>,
}

/// The facts that health is derived from.
pub struct Findings<'a> {
    /// The number of watched libraries.
    pub libraries: u64,
    /// Why the last rejected library was rejected.
    pub refused: Option<&'a str>,
    /// No more functions can be distinguished.
    pub functions_full: bool,
    /// What was lost so far, by kind.
    pub lost: &'a [(&'static str, u64)],
    /// Kernel maps that are full.
    pub full: Vec<&'static str>,
}

impl HealthCheck {
    /// Returns, in one sentence, what currently keeps the monitor from working.
    pub fn problem(&mut self, findings: &Findings<'_>, now: Instant) -> Option<String> {
        for (what, count) in findings.lost {
            let (known, grew) = self.lost.entry(what).or_default();
            if *count > *known {
                (*known, *grew) = (*count, Some(now));
            }
        }
        let lately = |what: &str| {
            let grew = self.lost.get(what).and_then(|(_, grew)| *grew);
            grew.is_some_and(|grew| now.duration_since(grew) < RECENT)
        };
        if lately("processes") {
            return Some("new processes are not counted: the BPF map of processes is full".to_owned());
        }
        if lately("sums") && !findings.full.is_empty() {
            return Some(format!("calls are not counted: BPF maps are full ({})", findings.full.join(", ")));
        }
        if findings.libraries > 0 {
            return None;
        }
        match findings.refused {
            Some(reason) => Some(format!("no CUDA library is monitored: {reason}")),
            None if findings.functions_full => Some("no CUDA library is monitored: too many functions".to_owned()),
            None if self.lost.get("mappings").is_some_and(|(count, _)| *count > 0) => {
                Some("no CUDA library is monitored: the kernel's records of loaded files were lost".to_owned())
            }
            // No process uses CUDA yet.
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each reason for monitoring nothing is reported, that a machine without CUDA is healthy, and that past
    /// problems are cleared.
    #[test]
    fn problems_are_reported_and_cleared() {
        let start = Instant::now();
        let check = |libraries, refused, functions_full, lost: &[(&'static str, u64)], full: &[&'static str]| {
            let findings = Findings { libraries, refused, functions_full, lost, full: full.to_vec() };
            HealthCheck::default().problem(&findings, start).unwrap_or_default()
        };
        assert_eq!(check(0, None, false, &[("mappings", 0)], &[]), "");
        assert_eq!(check(1, Some("x.so is not probed"), true, &[("mappings", 5)], &["calls"]), "");
        assert_eq!(check(2, None, false, &[("sums", 9)], &[]), "", "one process has used up its share");
        assert!(
            check(0, Some("x.so is not probed: no"), false, &[], &[]).ends_with("monitored: x.so is not probed: no")
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
