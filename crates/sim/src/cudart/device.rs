//! Devices and versions.

use std::ffi::c_char;

use super::call::{check, device, ready, set_device};
use super::driver::Driver;
use super::stub::{runtime, runtime_stub};
use crate::gpu::{answer, status};
use crate::sys;

/// The common size of both layouts of `cudaDeviceProp`, which is filled in.
const PROPERTIES: usize = 400;

/// Returns the offset of `multiProcessorCount`: CUDA 13 removed a field before it.
fn multiprocessors_at() -> usize {
    if sys::linked_as(".so.12") { 388 } else { 384 }
}

/// Fills in the start of a `cudaDeviceProp`.
fn properties(driver: &Driver, out: *mut u8, device: i32) -> Result<(), u32> {
    let mut bytes = [0u8; PROPERTIES];
    let mut uuid = [0; 16];
    let mut memory = 0;
    check((driver.cuDeviceGetName)(bytes.as_mut_ptr().cast::<c_char>(), 256, device))?;
    check((driver.cuDeviceGetUuid)(&mut uuid, device))?;
    check((driver.cuDeviceTotalMem_v2)(&mut memory, device))?;
    let attribute = |number| {
        let mut value = 0;
        (driver.cuDeviceGetAttribute)(&mut value, number, device);
        value
    };
    bytes[256..272].copy_from_slice(&uuid);
    bytes[288..296].copy_from_slice(&memory.to_le_bytes());
    bytes[296..304].copy_from_slice(&(attribute(8) as u64).to_le_bytes());
    let numbers = [
        (304, 12),
        (308, 10),
        (320, 1),
        (324, 2),
        (328, 3),
        (332, 4),
        (336, 5),
        (340, 6),
        (344, 7),
        (360, 75),
        (364, 76),
    ];
    for (at, number) in numbers.into_iter().chain([(multiprocessors_at(), 16)]) {
        bytes[at..at + 4].copy_from_slice(&attribute(number).to_le_bytes());
    }
    answer(out.cast(), bytes)
}

runtime! {
    3 cudaGetDeviceCount(out: *mut i32) => check((ready()?.cuDeviceGetCount)(out));
    4 cudaGetDeviceProperties(out: *mut u8, device: i32) => properties(ready()?, out, device);
    0 cudaGetDeviceProperties_v2(out: *mut u8, device: i32) => properties(ready()?, out, device);
    0 cudaDeviceGetAttribute(out: *mut i32, number: i32, device: i32) => {
        check((ready()?.cuDeviceGetAttribute)(out, number, device))
    };
    16 cudaSetDevice(device: i32) => set_device(ready()?, device);
    17 cudaGetDevice(out: *mut i32) => answer(out, device());
    0 cudaDeviceCanAccessPeer(out: *mut i32, device: i32, peer: i32) => {
        check((ready()?.cuDeviceCanAccessPeer)(out, device, peer))
    };
    0 cudaDeviceEnablePeerAccess(peer: i32, _flags: u32) => {
        let mut access = 0;
        check((ready()?.cuDeviceCanAccessPeer)(&mut access, device(), peer))?;
        if access == 0 { Err(status::INVALID_DEVICE) } else { Ok(()) }
    };
    165 cudaDeviceSynchronize() => check((ready()?.cuCtxSynchronize)());
    164 cudaDeviceReset() => check((ready()?.cuDevicePrimaryCtxReset_v2)(device()));
    0 cudaSetDeviceFlags(_flags: u32) => Ok(());
    30 cudaMemGetInfo(free: *mut usize, total: *mut usize) => check((ready()?.cuMemGetInfo_v2)(free, total));
}

const _: () = {
    extern "C" fn body(out: *mut i32) -> u32 {
        let mut version = 0;
        let driver = match ready() {
            Ok(driver) => driver,
            Err(error) => return error,
        };
        (driver.cuDriverGetVersion)(&mut version);
        answer(out, version).err().unwrap_or(0)
    }
    runtime_stub!(cudaDriverGetVersion, body);
};

const _: () = {
    extern "C" fn body(out: *mut i32) -> u32 {
        let version = if sys::linked_as(".so.12") { 12090 } else { 13000 };
        answer(out, version).err().unwrap_or(0)
    }
    runtime_stub!(cudaRuntimeGetVersion, body);
};
