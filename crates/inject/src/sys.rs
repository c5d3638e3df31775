//! Direct calls to the kernel and the C library.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicU32;

/// Returns the time of CLOCK_MONOTONIC, the clock of the BPF programs, in nanoseconds.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Returns the time of any clock, in nanoseconds.
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; the ids used here exist on every Linux.
    unsafe { libc::clock_gettime(id, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Returns the calling thread's errno.
pub fn errno() -> i32 {
    // SAFETY: the address is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Sleeps while `word` is `seen`, for at most `nanoseconds`; may wake early.
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

/// Reserves zeroed memory, whose pages cost nothing until touched; null if the kernel refuses.
pub fn reserve(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED { ptr::null_mut() } else { at.cast() }
}

/// Unmaps memory from [`reserve`].
///
/// # Safety
/// `at` and `bytes` must come from one call of [`reserve`], and nothing may use the memory any more.
pub unsafe fn unreserve(at: *mut u8, bytes: usize) {
    // SAFETY: the caller guarantees the range.
    unsafe { libc::munmap(at.cast::<c_void>(), bytes) };
}

/// Returns the pages of private memory to the kernel. They read as 0 afterwards.
///
/// # Safety
/// The range must be within memory from [`reserve`], and nothing may need its contents.
pub unsafe fn discard(at: *mut u8, bytes: usize) {
    // SAFETY: the caller guarantees the range.
    unsafe { libc::madvise(at.cast::<c_void>(), bytes, libc::MADV_DONTNEED) };
}

/// Whether a descriptor is memory of this size that cannot shrink: reading past its end would be fatal.
pub fn is_sealed(descriptor: i32, bytes: usize) -> bool {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `status` is writable, and all zeros is a value of the type.
    let (sized, seals) = unsafe {
        let got = libc::fstat(descriptor, status.as_mut_ptr());
        let size = status.assume_init().st_size;
        (got == 0 && size == bytes as i64, libc::fcntl(descriptor, libc::F_GET_SEALS))
    };
    sized && seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// Whether a descriptor belongs to no file, socket or memory, but to an object of the kernel such as a BPF map.
pub fn is_anonymous(descriptor: i32) -> bool {
    /// ANON_INODE_FS_MAGIC.
    const MAGIC: u64 = 0x0904_1934;
    let mut status = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `status` is writable, and all zeros is a value of the type.
    unsafe { libc::fstatfs(descriptor, status.as_mut_ptr()) == 0 && status.assume_init().f_type as u64 == MAGIC }
}

/// Returns `/proc/self/maps`; empty if it cannot be read.
pub fn maps() -> String {
    let bytes = std::fs::read("/proc/self/maps").unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the number of seccomp filters on this thread's system calls; `None` if unknown. Loading a library also
/// opens, reads and closes files, so a filter that has let this library load permits the read.
pub fn seccomp_filters() -> Option<u32> {
    parse_filters(&std::fs::read_to_string("/proc/thread-self/status").ok()?)
}

fn parse_filters(status: &str) -> Option<u32> {
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok());
    match value("Seccomp:") {
        Some(0) => Some(0),
        // Strict mode has no filters; a process in that mode cannot reach this code.
        Some(2) => value("Seccomp_filters:"),
        Some(_) => None,
        // A kernel without seccomp.
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filters are counted; without a count in the status, the result is unknown.
    #[test]
    fn filters_are_counted() {
        assert_eq!(parse_filters("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"), Some(0));
        assert_eq!(parse_filters("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\n"), Some(3));
        assert_eq!(parse_filters("Name:\tx\nSeccomp:\t2\n"), None);
        assert_eq!(parse_filters("Name:\tx\n"), Some(0));
    }
}
