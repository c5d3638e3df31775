//! Queries to libcuda: its version and the names of the devices.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::library::symbol;

/// Returns the libcuda that the program has loaded, null if there is none.
fn libcuda() -> *mut c_void {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
    // SAFETY: finds a library that is loaded already, or nothing.
    unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) }
}

/// Returns the version from `cuDriverGetVersion`, 0 if unavailable. The driver need not be initialised.
pub fn version() -> u32 {
    let handle = libcuda();
    let mut version: c_int = 0;
    // SAFETY: this is the function's type in cuda.h.
    let get = (!handle.is_null())
        .then(|| unsafe { symbol::<unsafe extern "C" fn(*mut c_int) -> u32>(handle, c"cuDriverGetVersion") })
        .flatten();
    // SAFETY: `version` is writable.
    match get.map(|get| unsafe { get(&mut version) }) {
        Some(0) => version.max(0) as u32,
        _ => 0,
    }
}

/// Calls `each` with every device's index and name. May only be called after `cuInit` has returned.
pub fn devices(mut each: impl FnMut(u32, &[u8])) {
    let handle = libcuda();
    if handle.is_null() {
        return;
    }
    // SAFETY: these are the functions' types in cuda.h.
    let (count, get, name) = unsafe {
        (
            symbol::<unsafe extern "C" fn(*mut c_int) -> u32>(handle, c"cuDeviceGetCount"),
            symbol::<unsafe extern "C" fn(*mut c_int, c_int) -> u32>(handle, c"cuDeviceGet"),
            symbol::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32>(handle, c"cuDeviceGetName"),
        )
    };
    let (Some(count), Some(name)) = (count, name) else { return };
    let mut devices = 0;
    // SAFETY: `devices` is writable.
    if unsafe { count(&mut devices) } != 0 {
        return;
    }
    for index in 0..devices.clamp(0, 1024) {
        let mut device = index;
        // SAFETY: `device` is writable.
        if get.is_some_and(|get| unsafe { get(&mut device, index) } != 0) {
            continue;
        }
        let mut text = [0u8; 256];
        // SAFETY: the length passed is that of the buffer without its last byte, which stays 0.
        if unsafe { name(text.as_mut_ptr().cast(), text.len() as c_int - 1, device) } == 0
            && let Ok(text) = CStr::from_bytes_until_nul(&text)
        {
            each(index as u32, text.to_bytes());
        }
    }
}
