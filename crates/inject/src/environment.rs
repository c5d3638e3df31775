//! Environment variables, which are ignored in a program that runs with more privileges than its caller.

use core::ffi::CStr;
use std::ffi::CString;

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
