//! Libraries that are loaded at run time, and their functions: most machines have none of them.

use std::{
    ffi::{CStr, CString, c_int, c_void},
    mem::transmute_copy,
    path::Path,
};

/// A loaded library. It is never unloaded: NVIDIA's libraries have threads and handlers of their own.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Loads the library at `path`, or the first of that name on the loader's search path. Its symbols are visible to libraries that
    /// are loaded later only if `scope` is `RTLD_GLOBAL`.
    pub(crate) fn open(path: &Path, scope: c_int) -> Result<Self, String> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| "the path contains a 0".to_owned())?;
        // SAFETY: the path ends in 0. The constructors are NVIDIA's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        if handle.is_null() { Err(why()) } else { Ok(Self(handle)) }
    }

    /// Returns a function, if the library has it.
    ///
    /// # Safety
    /// `F` must be a function pointer of the type that the library declares for the name.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open and the name ends in 0.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        // SAFETY: both are one pointer long, and the caller guarantees the type.
        (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
    }
}

fn why() -> String {
    // SAFETY: dlerror returns null or a text that is valid until the next call on this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares a table of functions that all return the same type. Those that some releases of the library lack are options.
macro_rules! functions {
    (
        $(#[$about:meta])* $visible:vis struct $table:ident -> $returned:ty {
            $($(#[$note:meta])* $field:ident = $name:literal($($argument:ty),*);)*
        }
        $(optional {
            $($(#[$other_note:meta])* $other:ident = $other_name:literal($($other_argument:ty),*);)*
        })?
    ) => {
        $(#[$about])*
        $visible struct $table {
            $($(#[$note])* $visible $field: unsafe extern "C" fn($($argument),*) -> $returned,)*
            $($($(#[$other_note])* $visible $other: Option<unsafe extern "C" fn($($other_argument),*) -> $returned>,)*)?
        }

        impl $table {
            /// Looks up the functions. The error is the name of one that is missing.
            $visible fn find(library: &Library) -> Result<Self, &'static std::ffi::CStr> {
                // SAFETY: the library's headers declare the functions of these names with these types.
                unsafe {
                    Ok(Self {
                        $($field: library.function($name).ok_or($name)?,)*
                        $($($other: library.function($other_name),)*)?
                    })
                }
            }
        }
    };
}

pub(crate) use functions;
