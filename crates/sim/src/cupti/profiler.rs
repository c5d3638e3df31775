//! What the profilers have in common.

use std::ffi::{CStr, c_char};
use std::ptr;

use cupti::ids::result;

/// Checks the size of a structure, and does the work.
macro_rules! function {
    ($name:ident($params:ident: $type:ident) $work:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(params: *mut $type) -> u32 {
            // SAFETY: the client passes its structure.
            let params = unsafe { &mut *params };
            if params.size != $type::SIZE || !params.private.is_null() {
                return result::INVALID_PARAMETER;
            }
            fn work($params: &mut $type) -> Result<(), u32> {
                $work
            }
            $crate::cupti::code(work(params))
        }
    };
}
pub(super) use function;

/// Returns the metrics with these names, of which `find` knows the numbers.
pub fn metrics(names: *const *const c_char, count: usize, find: fn(&CStr) -> Option<u8>) -> Result<Vec<u8>, u32> {
    let metric = |place| {
        // SAFETY: the client passes this many names.
        let name = unsafe { CStr::from_ptr(*names.add(place)) };
        find(name).ok_or(result::INVALID_METRIC_NAME)
    };
    (0..count).map(metric).collect()
}

pub fn put(image: *mut u8, at: usize, word: u64) {
    // SAFETY: the client's image has room for this word.
    unsafe { ptr::copy_nonoverlapping(word.to_le_bytes().as_ptr(), image.add(at), 8) };
}

pub fn get(image: *const u8, at: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the client's image has this word.
    unsafe { ptr::copy_nonoverlapping(image.add(at), bytes.as_mut_ptr(), 8) };
    u64::from_le_bytes(bytes)
}
