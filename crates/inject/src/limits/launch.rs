//! The parameters of a launch, as the driver's functions have them.

use core::ffi::c_void;
use core::hash::{Hash, Hasher};
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::collections::hash_map::DefaultHasher;

use cupti::callback::CallbackData;

use crate::driver;

/// The ids of `cuLaunchKernel` and `cuLaunchKernelEx`, and of their forms for a default stream of each thread.
const LAUNCH: u32 = 307;
const LAUNCH_PTSZ: u32 = 442;
const LAUNCH_EX: u32 = 652;
const LAUNCH_EX_PTSZ: u32 = 653;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: *mut c_void = core::ptr::without_provenance_mut(2);

/// A kernel, how it is launched, and its stream.
pub struct Shape {
    function: usize,
    sizes: [u32; 7],
    stream: *mut c_void,
}

impl Shape {
    /// Reads the parameters of a call; `None` for other calls.
    ///
    /// # Safety
    /// `data` must be CUPTI's, for this callback id of the driver.
    pub unsafe fn read(cbid: u32, data: &CallbackData) -> Option<Self> {
        if data.params.is_null() {
            return None;
        }
        // SAFETY: the layouts of cuLaunchKernel_params, cuLaunchKernelEx_params and CUlaunchConfig.
        let (function, sizes, mut stream) = unsafe {
            let at = data.params.cast::<u8>();
            match cbid {
                LAUNCH | LAUNCH_PTSZ => (
                    at.cast::<usize>().read(),
                    at.add(8).cast::<[u32; 7]>().read(),
                    at.add(40).cast::<*mut c_void>().read(),
                ),
                LAUNCH_EX | LAUNCH_EX_PTSZ => {
                    let config = at.cast::<*const u8>().read();
                    if config.is_null() {
                        return None;
                    }
                    let function = at.add(8).cast::<usize>().read();
                    (function, config.cast::<[u32; 7]>().read(), config.add(32).cast::<*mut c_void>().read())
                }
                _ => return None,
            }
        };
        if matches!(cbid, LAUNCH_PTSZ | LAUNCH_EX_PTSZ) && stream.is_null() {
            stream = PER_THREAD;
        }
        Some(Self { function, sizes, stream })
    }

    /// Identifies the kernel.
    pub fn function(&self) -> usize {
        self.function
    }

    /// Identifies the kernel and its sizes.
    pub fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.function, self.sizes).hash(&mut hasher);
        hasher.finish()
    }
}

static IS_CAPTURING: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the stream is being captured. If the driver does not say, it is.
pub fn is_captured(shape: &Shape) -> bool {
    type IsCapturing = unsafe extern "C" fn(*mut c_void, *mut u32) -> u32;
    let mut function = IS_CAPTURING.load(Ordering::Relaxed);
    if function.is_null() {
        function = driver::function(c"cuStreamIsCapturing");
        IS_CAPTURING.store(function, Ordering::Relaxed);
    }
    if function.is_null() {
        return true;
    }
    let mut status = 1;
    // SAFETY: this is the function's type in cuda.h; the stream is that of the launch.
    let outcome = unsafe { transmute::<*mut c_void, IsCapturing>(function)(shape.stream, &mut status) };
    outcome != 0 || status != 0
}

/// Whether a text contains another, whatever the case of its letters.
pub fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

/// The ordinal of the current context's device.
pub fn device() -> Option<usize> {
    let function = driver::function(c"cuCtxGetDevice");
    if function.is_null() {
        return None;
    }
    let mut device = 0_i32;
    // SAFETY: this is the function's type in cuda.h.
    let outcome = unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut i32) -> u32>(function)(&mut device) };
    (outcome == 0).then_some(device.max(0) as usize)
}

/// Makes a context current for as long as it exists.
pub struct Current;

impl Current {
    /// `None` if the driver refuses.
    pub fn new(context: *mut c_void) -> Option<Self> {
        let function = driver::function(c"cuCtxPushCurrent_v2");
        // SAFETY: this is the function's type in cuda.h.
        (!function.is_null()
            && unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> u32>(function)(context) } == 0)
            .then_some(Self)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let function = driver::function(c"cuCtxPopCurrent_v2");
        let mut context = core::ptr::null_mut();
        if !function.is_null() {
            // SAFETY: this is the function's type in cuda.h.
            unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut *mut c_void) -> u32>(function)(&mut context) };
        }
    }
}

/// Waits for all work of the current context.
pub fn synchronize() {
    let function = driver::function(c"cuCtxSynchronize");
    if !function.is_null() {
        // SAFETY: this is the function's type in cuda.h. Errors are the program's, which gets them from its own calls.
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(function)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a part of a name is found in any case, and that nothing is part of every name.
    #[test]
    fn parts_of_names_are_found() {
        assert!(
            contains(b"_Z21ncclDevKernel_AllReduce", b"NCCL") && contains(b"gemm", b"") && contains(b"gemm", b"gemm")
        );
        assert!(!contains(b"gem", b"gemm") && !contains(b"", b"x"));
    }

    /// Check that the parameters of both kinds of launches are read from where the driver's headers have them.
    #[test]
    fn parameters_are_read() {
        let mut config = [0_u64; 8];
        let sizes = [2_u32, 3, 4, 32, 5, 6, 7];
        let words = |at: &mut [u64], sizes: [u32; 7]| {
            for (place, pair) in sizes.chunks(2).enumerate() {
                at[place] = u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
            }
        };
        words(&mut config, sizes);
        config[4] = 99;
        let ex = [config.as_ptr() as u64, 77];
        let mut plain = [77_u64, 0, 0, 0, 0, 99, 0, 0];
        words(&mut plain[1..], sizes);
        let read = |cbid, params: *const u64| {
            // SAFETY: all zeros is a value of the type.
            let mut data = unsafe { core::mem::zeroed::<CallbackData>() };
            data.params = params.cast();
            // SAFETY: laid out as this call's.
            unsafe { Shape::read(cbid, &data) }
        };
        for (cbid, params) in [(LAUNCH, plain.as_ptr()), (LAUNCH_EX, ex.as_ptr())] {
            let shape = read(cbid, params).unwrap();
            assert_eq!((shape.function, shape.sizes, shape.stream.addr()), (77, sizes, 99));
        }
        plain[5] = 0;
        assert_eq!(read(LAUNCH_PTSZ, plain.as_ptr()).unwrap().stream, PER_THREAD);
        assert!(read(1, plain.as_ptr()).is_none());
    }
}
