//! Kernels by name. Any name exists: a program may launch any kernel.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{behind, status};
use crate::script::script;

/// A kernel; never freed.
#[derive(Debug)]
pub struct Function {
    magic: u64,
    name: CString,
    duration: Option<u64>,
}

const MAGIC: u64 = 0x7773_6675_6e63;

/// The model: a kernel takes at least this long...
const BASE_NS: u64 = 2_000;
/// ...and one nanosecond more for this many threads.
const THREADS_PER_NS: u64 = 50;

impl Function {
    /// Returns the kernel called `name`: the same handle each time.
    pub fn named(name: &CStr) -> &'static Function {
        static FUNCTIONS: OnceLock<Mutex<HashMap<CString, &'static Function>>> = OnceLock::new();
        let mut functions = FUNCTIONS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return function;
        }
        let duration = script().kernel_duration(&name.to_string_lossy());
        let function: &'static Function = Box::leak(Box::new(Function { magic: MAGIC, name: name.into(), duration }));
        functions.insert(name.into(), function);
        function
    }

    /// Returns the `CUfunction`.
    pub fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the kernel of a `CUfunction`.
    pub fn from_handle(handle: *mut c_void) -> Result<&'static Function, u32> {
        // SAFETY: the program got the handle from us; functions are never freed.
        let function = unsafe { behind::<Function>(handle) }?;
        if function.magic == MAGIC { Ok(function) } else { Err(status::INVALID_HANDLE) }
    }

    /// Returns its name.
    pub fn name(&self) -> *const c_char {
        self.name.as_ptr()
    }

    /// Returns how long it runs with this many threads.
    pub fn duration(&self, grid: [u32; 3], block: [u32; 3]) -> u64 {
        self.duration.unwrap_or_else(|| {
            let threads = grid.iter().chain(&block).fold(1u64, |n, &d| n.saturating_mul(u64::from(d)));
            BASE_NS + threads / THREADS_PER_NS
        })
    }
}

/// Returns the name of a handle, or null.
pub fn name_of(handle: *mut c_void) -> *const c_char {
    Function::from_handle(handle).map_or(std::ptr::null(), Function::name)
}
