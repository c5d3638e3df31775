//! The few things asked of the kernel and the C library directly.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicU32;

/// Nanoseconds of CLOCK_MONOTONIC, the clock of the BPF side.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of any clock.
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; the ids used here exist on every Linux.
    unsafe { libc::clock_gettime(id, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The calling thread's error number.
pub fn errno() -> i32 {
    // SAFETY: the address is valid for the thread that asks.
    unsafe { *libc::__errno_location() }
}

/// Puts the calling thread's error number back.
pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Sleeps while `word` holds `seen`, for `nanoseconds` at most; may wake early.
pub fn wait(word: &AtomicU32, seen: u32, nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, &time);
    }
}

/// Wakes every thread that waits on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: waking reads only the word's address.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
    }
}

/// Reserves zeroed memory that costs nothing until it is touched; null if the kernel refuses.
pub fn reserve(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED { ptr::null_mut() } else { at.cast() }
}

/// Gives back what [`reserve`] gave.
///
/// # Safety
/// `at` and `bytes` must come from one call of [`reserve`], and nothing may use the memory any more.
pub unsafe fn unreserve(at: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for the range.
    unsafe { libc::munmap(at.cast::<c_void>(), bytes) };
}

/// The process's mapped files, as `/proc/self/maps` tells; empty where it cannot be read.
pub fn maps() -> String {
    let bytes = std::fs::read("/proc/self/maps").unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
