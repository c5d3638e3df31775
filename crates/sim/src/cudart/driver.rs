//! The driver functions that the runtime uses, from the process's libcuda.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Handle;
use crate::cuda::memory::Copy2D;
use crate::sys;
use crate::table::{self, Table};

macro_rules! functions {
    ($($name:ident($($type:ty),*);)*) => {
        /// The driver functions the runtime calls.
        #[allow(non_snake_case)]
        pub struct Driver {
            /// The private table.
            pub table: &'static Table,
            $(pub $name: extern "C" fn($($type),*) -> u32,)*
        }

        impl Driver {
            #[allow(non_snake_case)]
            fn load() -> Option<Self> {
                let table = table::table()?;
                let library = table::libcuda();
                $(
                    let address = sys::symbol(library, $crate::stub::c_name!($name));
                    if address.is_null() {
                        return None;
                    }
                    // SAFETY: the fake libcuda of this build exports the function with this type.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) -> u32>(address)
                    };
                )*
                Some(Self { table, $($name,)* })
            }
        }
    };
}

functions! {
    cuInit(u32);
    cuDriverGetVersion(*mut i32);
    cuDeviceGetCount(*mut i32);
    cuDeviceGetName(*mut c_char, i32, i32);
    cuDeviceGetAttribute(*mut i32, i32, i32);
    cuDeviceTotalMem_v2(*mut usize, i32);
    cuDeviceGetUuid(*mut [u8; 16], i32);
    cuDeviceCanAccessPeer(*mut i32, i32, i32);
    cuDevicePrimaryCtxRetain(*mut Handle, i32);
    cuDevicePrimaryCtxReset_v2(i32);
    cuCtxSetCurrent(Handle);
    cuCtxGetCurrent(*mut Handle);
    cuCtxSynchronize();
    cuModuleLoadData(*mut Handle, *const c_void);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuLibraryGetKernel(*mut Handle, Handle, *const c_char);
    cuLaunchKernel(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut Handle, *mut Handle);
    cuLaunchKernel_ptsz(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut Handle, *mut Handle);
    cuLaunchCooperativeKernel(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut Handle);
    cuLaunchKernelEx(*const c_void, Handle, *mut Handle, *mut Handle);
    cuLaunchKernelEx_ptsz(*const c_void, Handle, *mut Handle, *mut Handle);
    cuMemAlloc_v2(*mut usize, usize);
    cuMemFree_v2(usize);
    cuMemAllocManaged(*mut usize, usize, u32);
    cuMemAllocAsync(*mut usize, usize, Handle);
    cuMemFreeAsync(usize, Handle);
    cuMemHostAlloc(*mut usize, usize, u32);
    cuMemFreeHost(usize);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemcpyHtoD_v2(usize, usize, usize);
    cuMemcpyDtoH_v2(usize, usize, usize);
    cuMemcpyDtoD_v2(usize, usize, usize);
    cuMemcpy(usize, usize, usize);
    cuMemcpyHtoDAsync_v2(usize, usize, usize, Handle);
    cuMemcpyDtoHAsync_v2(usize, usize, usize, Handle);
    cuMemcpyDtoDAsync_v2(usize, usize, usize, Handle);
    cuMemcpyAsync(usize, usize, usize, Handle);
    cuMemcpyPeerAsync(usize, Handle, usize, Handle, usize, Handle);
    cuMemcpy2D_v2(*const Copy2D);
    cuMemcpy2DAsync_v2(*const Copy2D, Handle);
    cuMemsetD8Async(usize, u8, usize, Handle);
    cuStreamCreate(*mut Handle, u32);
    cuStreamDestroy_v2(Handle);
    cuStreamQuery(Handle);
    cuStreamSynchronize(Handle);
    cuStreamWaitEvent(Handle, Handle, u32);
    cuEventCreate(*mut Handle, u32);
    cuEventRecord(Handle, Handle);
    cuEventQuery(Handle);
    cuEventSynchronize(Handle);
    cuEventDestroy_v2(Handle);
    cuEventElapsedTime(*mut f32, Handle, Handle);
    cuStreamBeginCapture_v2(Handle, u32);
    cuStreamEndCapture(Handle, *mut Handle);
    cuStreamIsCapturing(Handle, *mut u32);
    cuGraphCreate(*mut Handle, u32);
    cuGraphAddKernelNode(*mut Handle, Handle, *const Handle, usize, *const c_void);
    cuGraphAddChildGraphNode(*mut Handle, Handle, *const Handle, usize, Handle);
    cuGraphExecUpdate_v2(Handle, Handle, *mut c_void);
    cuGraphGetNodes(Handle, *mut Handle, *mut usize);
    cuGraphInstantiateWithFlags(*mut Handle, Handle, u64);
    cuGraphLaunch(Handle, Handle);
    cuGraphDestroy(Handle);
    cuGraphExecDestroy(Handle);
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Returns the driver if it is initialised already.
pub fn initialised() -> Option<&'static Driver> {
    DRIVER.get().filter(|_| INITIALISED.load(Ordering::Acquire))?.as_ref()
}

/// Returns the driver, loaded and initialised on the first call; `None` if the libcuda is missing or not the fake one.
pub fn driver() -> Option<&'static Driver> {
    let driver = DRIVER.get_or_init(Driver::load).as_ref()?;
    if !INITIALISED.load(Ordering::Acquire) {
        // Outside the lock: the injected library may call the runtime meanwhile. Other threads wait here.
        (driver.cuInit)(0);
        INITIALISED.store(true, Ordering::Release);
    }
    Some(driver)
}
