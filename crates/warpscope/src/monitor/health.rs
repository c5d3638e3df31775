//! How warpscope itself fares: its own time and memory, and what the kernel's programs could not do.

use std::{fs, mem::MaybeUninit};

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

/// This thread has time: it runs when others leave some.
pub fn take_time() {
    // SAFETY: a plain system call on this thread; a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
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
    ]
}

/// What it means for the reader that something of this kind was lost.
pub fn meaning(what: &str) -> &'static str {
    match what {
        "sums" => {
            "calls found no room in a map of the kernel and are not counted: warpscope_map_entries says which is full"
        }
        "deep_calls" => "calls within calls within calls, deeper than can be followed, are not counted",
        "names" => "names of kernels were lost: such kernels are told by their address",
        "stacks" => "call stacks were lost: memory that was allocated there has no line",
        "processes" => "processes found no room in a map of the kernel: their calls are not counted",
        _ => "records of mapped files were lost: a library that was loaded just then may not be watched",
    }
}
