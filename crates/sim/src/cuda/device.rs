//! Devices and contexts.

use std::cell::RefCell;
use std::ffi::c_char;
use std::sync::atomic::Ordering;

use cupti::ids::sync_kind;

use super::Handle;
use super::stub::driver;
use crate::gpu::context::{self, Context};
use crate::gpu::device::{self, Device, Hardware};
use crate::gpu::{Outcome, answer, client, launch, status};
use crate::script::script;

fn name(text: *mut c_char, size: i32, device: i32) -> Outcome {
    let name = match device::device(device)?.hardware {
        Hardware { gpu, instance: None } => format!("Simulated GPU {gpu}\0"),
        Hardware { gpu, instance: Some(_) } => format!("Simulated GPU {gpu} MIG 1g.10gb\0"),
    };
    let size = usize::try_from(size).map_err(|_| status::INVALID_VALUE)?;
    if text.is_null() || size < name.len() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: the program's buffer holds `size` bytes, which is enough.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), text, name.len()) };
    Ok(())
}

/// `CUdevice_attribute` values similar to an H200; 0 for unlisted ones.
fn attribute(attribute: i32, device: &Device) -> i32 {
    match attribute {
        1 => 1024,                            // MAX_THREADS_PER_BLOCK
        2 | 3 => 1024,                        // MAX_BLOCK_DIM_X, Y
        4 => 64,                              // MAX_BLOCK_DIM_Z
        5 => i32::MAX,                        // MAX_GRID_DIM_X
        6 | 7 => 65_535,                      // MAX_GRID_DIM_Y, Z
        8 => 49_152,                          // MAX_SHARED_MEMORY_PER_BLOCK
        9 => 65_536,                          // TOTAL_CONSTANT_MEMORY
        10 => 32,                             // WARP_SIZE
        12 => 65_536,                         // MAX_REGISTERS_PER_BLOCK
        13 => 1_980_000,                      // CLOCK_RATE
        16 => 132,                            // MULTIPROCESSOR_COUNT
        31 | 40 | 41 | 83 | 89 | 95 => 1,     // CONCURRENT_KERNELS, engines, UNIFIED_ADDRESSING, MANAGED, ...
        33 => device.hardware.gpu as i32 + 1, // PCI_BUS_ID
        39 => 2048,                           // MAX_THREADS_PER_MULTIPROCESSOR
        75 => 9,                              // COMPUTE_CAPABILITY_MAJOR
        81 => 233_472,                        // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        82 => 65_536,                         // MAX_REGISTERS_PER_MULTIPROCESSOR
        106 => 32,                            // MAX_BLOCKS_PER_MULTIPROCESSOR
        111 => 1024,                          // RESERVED_SHARED_MEMORY_PER_BLOCK
        115 => 1,                             // MEMORY_POOLS_SUPPORTED
        _ => 0,
    }
}

thread_local! {
    /// The contexts that were current before others were pushed.
    static PUSHED: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

fn free_memory(device: &Device) -> usize {
    (script().memory - device.used.load(Ordering::Relaxed).min(script().memory)) as usize
}

driver! {
    3 cuDeviceGet(device: *mut i32, ordinal: i32) => device::device(ordinal).and_then(|_| answer(device, ordinal));
    4 cuDeviceGetCount(count: *mut i32) => answer(count, device::count() as i32);
    5 cuDeviceGetName(text: *mut c_char, size: i32, device: i32) => name(text, size, device);
    944 cuDeviceGetUuid(out: *mut [u8; 16], device: i32) => {
        answer(out, device::device(device)?.hardware.gpu_uuid())
    };
    945 cuDeviceGetUuid_v2(out: *mut [u8; 16], device: i32) => {
        answer(out, device::device(device)?.hardware.uuid())
    };
    946 cuDeviceTotalMem_v2(out: *mut usize, device: i32) => {
        device::device(device).and_then(|_| answer(out, script().memory as usize))
    };
    9 cuDeviceGetAttribute(out: *mut i32, number: i32, device: i32) => {
        answer(out, attribute(number, device::device(device)?))
    };
    947 cuDeviceCanAccessPeer(out: *mut i32, device: i32, peer: i32) => {
        device::device(device).and(device::device(peer)).and_then(|_| answer(out, i32::from(device != peer)))
    };
    948 cuDevicePrimaryCtxRetain(out: *mut Handle, device: i32) => {
        answer(out, device::device(device)?.retain().handle())
    };
    949 cuDevicePrimaryCtxRelease_v2(device: i32) => device::device(device)?.release();
    950 cuDevicePrimaryCtxReset_v2(device: i32) => device::device(device).map(Device::reset);
    951 cuCtxCreate_v2(out: *mut Handle, _flags: u32, device: i32) => {
        let created = Context::new(device::device(device)?);
        created.announce();
        context::set_current(created.handle())?;
        answer(out, created.handle())
    };
    952 cuCtxDestroy_v2(ctx: Handle) => Context::from_handle(ctx).map(Context::end);
    953 cuCtxSetCurrent(ctx: Handle) => context::set_current(ctx);
    954 cuCtxPushCurrent_v2(ctx: Handle) => {
        let (before, _) = client::context();
        context::set_current(ctx)?;
        PUSHED.with_borrow_mut(|pushed| pushed.push(before));
        Ok(())
    };
    955 cuCtxPopCurrent_v2(out: *mut Handle) => {
        let (handle, _) = client::context();
        let before = PUSHED.with_borrow_mut(Vec::pop);
        context::set_current(before.unwrap_or(std::ptr::null_mut()))?;
        if out.is_null() { Ok(()) } else { answer(out, handle) }
    };
    956 cuCtxGetCurrent(out: *mut Handle) => answer(out, client::context().0);
    16 cuCtxGetDevice(out: *mut i32) => answer(out, context::current()?.device.index as i32);
    17 cuCtxSynchronize() => {
        let context = context::current()?;
        launch::wait(context.default_stream(), context.done_at(), sync_kind::CONTEXT, 0);
        Ok(())
    };
    957 cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => {
        let device = context::current()?.device;
        answer(free, free_memory(device)).and(answer(total, script().memory as usize))
    };
}
