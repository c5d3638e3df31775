//! Loads libnvidia-ml.so at run time: it is part of the driver, and most machines do not have it.

use std::{
    ffi::{CStr, CString, c_void},
    path::Path,
};

/// A loaded library. It is never unloaded: NVML has its own threads and handlers.
pub(crate) struct Library(*mut c_void);

// SAFETY: a handle from dlopen may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: likewise from several at a time.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the library at `path`, or the first of that name on the loader's search path.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let path =
            CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| format!("{name} is not a valid path"))?;
        // SAFETY: the path ends in 0. NVML's constructors are NVIDIA's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(format!("cannot load {name}: {}", why())) } else { Ok(Self(handle)) }
    }

    /// Returns the address of a function, if the library has it.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and the name ends in 0.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

fn why() -> String {
    // SAFETY: dlerror returns null or a text that is valid until the next call on this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: see above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if text.contains("cannot open shared object file: No such file") {
        "not found; it is installed with NVIDIA's driver".to_owned()
    } else {
        text.into_owned()
    }
}
