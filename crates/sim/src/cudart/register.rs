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
    /// Its `cudaKernel_t`, once requested.
    kernel: OnceLock<usize>,
}

/// Kernels by the address of their host function, and by their `cudaKernel_t`, once requested: the runtime accepts either.
static KERNELS: RwLock<Option<HashMap<usize, &'static Registered>>> = RwLock::new(None);

fn registered(host: *const c_void) -> Option<&'static Registered> {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    kernels.as_ref()?.get(&host.addr()).copied()
}

/// Returns the kernel name of a host function, or null.
pub fn name_of(host: *const c_void) -> *const c_char {
    registered(host).map_or(std::ptr::null(), |kernel| kernel.name.as_ptr())
}

/// Returns the module with all kernels, loaded on first use, as the real runtime does by default.
fn module(driver: &Driver) -> Result<Handle, u32> {
    static MODULE: OnceLock<usize> = OnceLock::new();
    if let Some(&module) = MODULE.get() {
        return Ok(std::ptr::without_provenance_mut(module));
    }
    let mut module: Handle = std::ptr::null_mut();
    check((driver.cuModuleLoadData)(&mut module, std::ptr::null()))?;
    let _ = MODULE.set(module.addr());
    Ok(module)
}

/// Returns the `CUfunction` of a host function. A `cudaKernel_t` is passed on to the driver, which accepts it, too.
pub fn function_of(driver: &Driver, host: *const c_void) -> Result<Handle, u32> {
    let kernel = registered(host).ok_or(INVALID_DEVICE_FUNCTION)?;
    if kernel.kernel.get() == Some(&host.addr()) {
        return Ok(host.cast_mut());
    }
    if let Some(&function) = kernel.function.get() {
        return Ok(std::ptr::with_exposed_provenance_mut(function));
    }
    let mut function: Handle = std::ptr::null_mut();
    check((driver.cuModuleGetFunction)(&mut function, module(driver)?, kernel.name.as_ptr()))?;
    let _ = kernel.function.set(function.expose_provenance());
    Ok(function)
}

/// Returns the `cudaKernel_t` of a host function: the driver's `CUkernel`, which has the same type. Here a module is also a
/// library.
fn kernel_of(driver: &Driver, host: *const c_void) -> Result<Handle, u32> {
    let registered = registered(host).ok_or(INVALID_DEVICE_FUNCTION)?;
    let mut kernel: Handle = std::ptr::null_mut();
    check((driver.cuLibraryGetKernel)(&mut kernel, module(driver)?, registered.name.as_ptr()))?;
    let _ = registered.kernel.set(kernel.addr());
    let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
    kernels.get_or_insert_default().insert(kernel.addr(), registered);
    Ok(kernel)
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
        let kernel = Box::leak(Box::new(Registered { name, function: OnceLock::new(), kernel: OnceLock::new() }));
        let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
        kernels.get_or_insert_default().insert(host.addr(), kernel);
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
    extern "C" fn body(kernel: *mut Handle, host: *const c_void) -> u32 {
        let found = ready().and_then(|driver| kernel_of(driver, host));
        found.and_then(|found| crate::gpu::answer(kernel, found)).err().unwrap_or(0)
    }
    runtime_stub!(__cudaGetKernel, body);
};
