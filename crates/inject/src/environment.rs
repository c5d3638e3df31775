//! Environment variables, which are ignored in a program that runs with more privileges than its caller.
//!
//! A process that warpscope attaches to has none of ours: warpscope passes settings of the same names. Its other threads may
//! be changing its environment, and reading it meanwhile can crash, so there the initial environment counts.

use core::ffi::CStr;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

/// The prefix of warpscope's own variables.
const OWN: &str = "WARPSCOPE_";
/// The most bytes of an initial environment that are read.
const MOST: u64 = 8 << 20;

/// What warpscope passed when it attached: `NAME=VALUE`, separated by 0. Absent if this library was loaded by the driver.
static PASSED: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Uses these settings, and the initial environment, from now on.
pub fn pass(settings: &[u8]) {
    *PASSED.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.to_vec());
}

/// Whether the program runs with more privileges than its caller.
pub fn is_secure() -> bool {
    // SAFETY: only reads a number that the kernel passed at the start of the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns an environment variable that is valid text.
pub fn variable(name: &str) -> Option<String> {
    String::from_utf8(bytes(name)?).ok()
}

/// Returns an environment variable, but never in a program that runs with more privileges than its caller.
pub fn bytes(name: &str) -> Option<Vec<u8>> {
    if let Some(settings) = &*PASSED.lock().unwrap_or_else(PoisonError::into_inner) {
        let passed = find(settings, name);
        return if passed.is_none() && !is_secure() && !is_setting(name) { initial(name) } else { passed };
    }
    let name = CString::new(name).ok()?;
    if is_secure() {
        return None;
    }
    // SAFETY: the name ends in 0.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end in 0; it is copied at once.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}

/// Whether warpscope passes it. The path of libcupti may also be in the process's own environment.
fn is_setting(name: &str) -> bool {
    name.starts_with(OWN) && name != cupti::locations::OVERRIDE
}

/// Returns a variable of the environment with which the process was started.
fn initial(name: &str) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut all = Vec::new();
    std::fs::File::open("/proc/self/environ").ok()?.take(MOST).read_to_end(&mut all).ok()?;
    find(&all, name)
}

fn find(all: &[u8], name: &str) -> Option<Vec<u8>> {
    all.split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are compared as a whole, and values may contain `=`.
    #[test]
    fn variables_are_found() {
        let all = b"RANKS=7\0RANK=3\0X=a=b\0";
        assert_eq!(find(all, "RANK").as_deref(), Some(&b"3"[..]));
        assert_eq!(find(all, "X").as_deref(), Some(&b"a=b"[..]));
        assert_eq!(find(all, "RAN"), None);
        assert!(is_setting("WARPSCOPE_MAX_OVERHEAD") && !is_setting("WARPSCOPE_CUPTI") && !is_setting("RANK"));
    }
}
