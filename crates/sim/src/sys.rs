//! The operating system functions used by the fakes: a clock, waiting, and loading libraries.

use std::ffi::{CStr, c_void};

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns CLOCK_MONOTONIC in nanoseconds: the simulated GPU's own time.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Returns CLOCK_REALTIME in nanoseconds: CUPTI's clock unless the client registers another.
pub fn realtime() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// Uses this much CPU time.
pub fn spend(nanoseconds: u64) {
    if nanoseconds == 0 {
        return;
    }
    let end = clock(libc::CLOCK_THREAD_CPUTIME_ID) + nanoseconds;
    while clock(libc::CLOCK_THREAD_CPUTIME_ID) < end {
        std::hint::spin_loop();
    }
}

/// Shorter sleeps cost more than they save.
const SHORTEST_SLEEP: u64 = 60_000;

/// Returns once [`now`] has reached `time`. Sleeps during long waits and yields during short ones.
pub fn wait_until(time: u64) {
    loop {
        let now = now();
        if now >= time {
            return;
        }
        if time - now > SHORTEST_SLEEP {
            let wake = time - SHORTEST_SLEEP / 2;
            let at = libc::timespec {
                tv_sec: (wake / 1_000_000_000) as libc::time_t,
                tv_nsec: (wake % 1_000_000_000) as libc::c_long,
            };
            // SAFETY: `at` is valid; an early return by a signal is handled by the loop.
            unsafe {
                libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut());
            }
        } else {
            std::thread::yield_now();
        }
    }
}

/// Opens a library by name; null on failure.
pub fn open(name: &CStr) -> *mut c_void {
    // SAFETY: a terminated name; loading runs the library's constructors, as intended.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

/// Returns the address of a symbol, or null.
pub fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: `library` came from `open`.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Whether the name of the file that contains this code ends with `suffix`.
pub fn linked_as(suffix: &str) -> bool {
    // SAFETY: all zero is a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is in this library and `info` is writable.
    if unsafe { libc::dladdr(linked_as as *const c_void, &mut info) } == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: dladdr's name is terminated and lives as long as the library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    path.to_bytes().ends_with(suffix.as_bytes())
}
