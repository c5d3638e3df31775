//! Functions called by nvcc's start-up code: registration of fat binaries and kernels, and launch configurations.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{OnceLock, PoisonError, RwLock};

use super::call::{check, ready};
use super::driver::Driver;
use super::stub::runtime_stub;
use super::{Dim3, Handle};

/// `cudaErrorInvalidDeviceFunction`
const INVALID_DEVICE_FUNCTION: u32 = 98;

/// A kernel registered by the program; never freed.
struct Registered {
    name: CString,
    function: OnceLock<usize>,
}

impl Registered {
    /// Returns its `cudaKernel_t`.
    fn handle(&'static self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }
}

/// Kernels by the address of their host function, and by their handle: the runtime accepts either.
static KERNELS: RwLock<Option<HashMap<usize, &'static Registered>>> = RwLock::new(None);

fn registered(host: *const c_void) -> Option<&'static Registered> {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    kernels.as_ref()?.get(&host.addr()).copied()
}

/// Returns the kernel name of a host function, or null.
pub fn name_of(host: *const c_void) -> *const c_char {
    registered(host).map_or(std::ptr::null(), |kernel| kernel.name.as_ptr())
}

/// Returns the `CUfunction` of a host function. The module is loaded on first use, as the real runtime does by default.
pub fn function_of(driver: &Driver, host: *const c_void) -> Result<Handle, u32> {
    static MODULE: OnceLock<usize> = OnceLock::new();
    let kernel = registered(host).ok_or(INVALID_DEVICE_FUNCTION)?;
    if let Some(&function) = kernel.function.get() {
        return Ok(std::ptr::with_exposed_provenance_mut(function));
    }
    let module = match MODULE.get() {
        Some(&module) => std::ptr::without_provenance_mut(module),
        None => {
            let mut module: Handle = std::ptr::null_mut();
            check((driver.cuModuleLoadData)(&mut module, std::ptr::null()))?;
            let _ = MODULE.set(module.addr());
            module
        }
    };
    let mut function: Handle = std::ptr::null_mut();
    check((driver.cuModuleGetFunction)(&mut function, module, kernel.name.as_ptr()))?;
    let _ = kernel.function.set(function.expose_provenance());
    Ok(function)
}

const _: () = {
    extern "C" fn body(_fat_binary: *const c_void) -> *mut *mut c_void {
        // The handle only has to be a unique pointer.
        Box::into_raw(Box::new(std::ptr::null_mut()))
    }
    runtime_stub!(__cudaRegisterFatBinary, body);
};

const _: () = {
    extern "C" fn body(_handle: *mut *mut c_void) {}
    runtime_stub!(__cudaRegisterFatBinaryEnd, body);
};

const _: () = {
    extern "C" fn body(handle: *mut *mut c_void) {
        if !handle.is_null() {
            // SAFETY: it came from __cudaRegisterFatBinary, and the program no longer uses it.
            drop(unsafe { Box::from_raw(handle) });
        }
    }
    runtime_stub!(__cudaUnregisterFatBinary, body);
};

const _: () = {
    extern "C" fn body(_handle: *mut *mut c_void, host: *const c_void, _device: *mut c_char, name: *const c_char) {
        if name.is_null() {
            return;
        }
        // SAFETY: the start-up code passes a terminated name.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        let kernel = Box::leak(Box::new(Registered { name, function: OnceLock::new() }));
        let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
        let kernels = kernels.get_or_insert_default();
        kernels.insert(host.addr(), kernel);
        kernels.insert(kernel.handle().addr(), kernel);
    }
    runtime_stub!(__cudaRegisterFunction, body);
};

const _: () = {
    extern "C" fn body(_handle: *mut *mut c_void, _host: *const c_void, _device: *mut c_char, _name: *const c_char) {}
    runtime_stub!(__cudaRegisterVar, body);
};

struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
}

thread_local! {
    /// Configurations pushed by `<<<...>>>` and not yet popped by the host stub.
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

const _: () = {
    extern "C" fn body(grid: Dim3, block: Dim3, shared: usize, stream: Handle) -> u32 {
        CONFIGURATIONS.with_borrow_mut(|all| all.push(Configuration { grid, block, shared, stream }));
        0
    }
    runtime_stub!(__cudaPushCallConfiguration, body);
};

const _: () = {
    extern "C" fn body(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut Handle) -> u32 {
        let Some(top) = CONFIGURATIONS.with_borrow_mut(Vec::pop) else { return 1 };
        // SAFETY: the host stub passes the addresses of its locals.
        unsafe {
            grid.write(top.grid);
            block.write(top.block);
            shared.write(top.shared);
            stream.write(top.stream);
        }
        0
    }
    runtime_stub!(__cudaPopCallConfiguration, body);
};

const _: () = {
    extern "C" fn body(kernel: *mut *const c_void, host: *const c_void) -> u32 {
        let found = ready().and_then(|driver| function_of(driver, host)).map(|_| registered(host));
        match found {
            Ok(Some(found)) => crate::gpu::answer(kernel, found.handle()).err().unwrap_or(0),
            Ok(None) => INVALID_DEVICE_FUNCTION,
            Err(error) => error,
        }
    }
    runtime_stub!(__cudaGetKernel, body);
};
