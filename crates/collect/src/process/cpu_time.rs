//! CPU time of processes, in nanoseconds.

use std::mem::MaybeUninit;

/// Returns the CPU time of this process.
pub fn own() -> u64 {
    usage(libc::RUSAGE_SELF)
}

/// Returns the CPU time of the children that this process has waited for, and of those that they waited for.
pub fn of_ended_children() -> u64 {
    usage(libc::RUSAGE_CHILDREN)
}

fn usage(of: libc::c_int) -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a plain system call with a buffer for its result; all zeroes is a valid value.
    let usage = unsafe {
        libc::getrusage(of, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that work done by this process counts.
    #[test]
    fn own_time_grows_with_work() {
        let before = own();
        while own() < before + 20_000_000 {
            std::hint::black_box(before);
        }
    }
}
