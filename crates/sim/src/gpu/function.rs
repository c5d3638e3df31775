//! Kernels by name. Any name exists: a program may launch any kernel.
//!
//! A handle is the address of an object of the driver. As in the real one, the object leads to the kernel's name at a place that
//! only the driver knows: see `function_name` and `kernel_name` in [`crate::script`].

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{behind, status};
use crate::script::{OBJECT, Place, script};

/// A kernel; never freed.
#[derive(Debug)]
pub struct Function {
    name: CString,
    duration: Option<u64>,
    function: OnceLock<&'static Object>,
    kernel: OnceLock<&'static Object>,
}

/// What a `CUfunction` or a `CUkernel` points to; never freed.
#[derive(Debug)]
#[repr(C)]
struct Object {
    words: [usize; OBJECT / 8],
    magic: u64,
    /// The inverted address of the [`Function`]: no other way may lead to the name.
    hidden: usize,
}

const MAGIC: u64 = 0x7773_6675_6e63;
/// The first words of objects, as in driver 580.
const FUNCTION: usize = 0x1_0000_0001;
const KERNEL: usize = 2;

impl Object {
    fn new(begins: usize, of: &'static Function, place: Place) -> &'static Object {
        let hidden = !std::ptr::from_ref(of).expose_provenance();
        let mut object = Object { words: [0; OBJECT / 8], magic: MAGIC, hidden };
        object.words[0] = begins;
        let name = of.name.as_ptr().expose_provenance();
        object.words[place.at / 8] = match place.then {
            Some(then) => {
                let second = Box::leak(Box::new([0_usize; OBJECT / 8]));
                second[then / 8] = name;
                std::ptr::from_ref(second).expose_provenance()
            }
            None => name,
        };
        Box::leak(Box::new(object))
    }

    fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

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
        let (function, kernel) = (OnceLock::new(), OnceLock::new());
        let function: &'static Function =
            Box::leak(Box::new(Function { name: name.into(), duration, function, kernel }));
        functions.insert(name.into(), function);
        function
    }

    /// Returns the `CUfunction`.
    pub fn handle(&'static self) -> *mut c_void {
        self.function.get_or_init(|| Object::new(FUNCTION, self, script().function_name)).handle()
    }

    /// Returns the `CUkernel`.
    pub fn kernel_handle(&'static self) -> *mut c_void {
        self.kernel.get_or_init(|| Object::new(KERNEL, self, script().kernel_name)).handle()
    }

    /// Returns the kernel of a `CUfunction` or `CUkernel`.
    pub fn from_handle(handle: *mut c_void) -> Result<&'static Function, u32> {
        // SAFETY: the program got the handle from us; objects are never freed.
        let object = unsafe { behind::<Object>(handle) }?;
        if object.magic != MAGIC {
            return Err(status::INVALID_HANDLE);
        }
        // SAFETY: only we write it, and functions are never freed.
        Ok(unsafe { &*std::ptr::with_exposed_provenance(!object.hidden) })
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
