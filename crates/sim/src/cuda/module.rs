//! Modules and functions. A module is only a number: any kernel name exists.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use cupti::callback::ResourceData;
use cupti::ids::resource;

use super::Handle;
use super::stub::driver;
use crate::gpu::function::Function;
use crate::gpu::{Outcome, answer, client, status};
use crate::script::script;

/// `CUpti_ModuleResourceData`
#[repr(C)]
struct ModuleData {
    id: u32,
    cubin_size: usize,
    cubin: *const c_char,
}

/// Returns the cubin of every module, as the script names it; empty if there is none.
fn cubin() -> &'static [u8] {
    static CUBIN: OnceLock<Vec<u8>> = OnceLock::new();
    CUBIN.get_or_init(|| script().cubin.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default())
}

fn load(out: *mut Handle) -> Outcome {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let cubin = cubin();
    client::notify_module(cubin);
    let mut module = ModuleData { id: id as u32, cubin_size: cubin.len(), cubin: cubin.as_ptr().cast() };
    let context = client::context().0;
    let descriptor = (&raw mut module).cast();
    client::notify_resource(
        resource::MODULE_LOADED,
        &ResourceData { context, stream: std::ptr::null_mut(), descriptor },
    );
    // Not a real address: a module has no contents.
    answer(out, std::ptr::without_provenance_mut(id << 4))
}

fn function(module: Handle, name: *const c_char) -> Result<&'static Function, u32> {
    if module.is_null() || name.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: the program passes a terminated name.
    Ok(Function::named(unsafe { CStr::from_ptr(name) }))
}

driver! {
    18 cuModuleLoad(out: *mut Handle, _path: *const c_char) => load(out);
    19 cuModuleLoadData(out: *mut Handle, _image: *const c_void) => load(out);
    20 cuModuleLoadDataEx(
        out: *mut Handle, _image: *const c_void, _count: u32, _options: *mut i32, _values: *mut *mut c_void
    ) => load(out);
    21 cuModuleLoadFatBinary(out: *mut Handle, _image: *const c_void) => load(out);
    22 cuModuleUnload(module: Handle) => if module.is_null() { Err(status::INVALID_HANDLE) } else { Ok(()) };
    23 cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char) => {
        answer(out, function(module, name)?.handle())
    };
    928 cuLibraryLoadData(
        out: *mut Handle, _image: *const c_void, _jit: *mut i32, _jit_values: *mut *mut c_void, _jit_count: u32,
        _options: *mut i32, _values: *mut *mut c_void, _count: u32
    ) => load(out);
    929 cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char) => {
        answer(out, function(library, name)?.kernel_handle())
    };
    930 cuKernelGetFunction(out: *mut Handle, kernel: Handle) => {
        answer(out, Function::from_handle(kernel)?.handle())
    };
    931 cuFuncGetName(out: *mut *const c_char, function: Handle) => {
        answer(out, Function::from_handle(function)?.name())
    };
    932 cuFuncGetAttribute(out: *mut i32, _attribute: i32, function: Handle) => {
        Function::from_handle(function).and_then(|_| answer(out, 1024))
    };
    933 cuFuncSetAttribute(function: Handle, _attribute: i32, _value: i32) => Function::from_handle(function).map(|_| ());
}
