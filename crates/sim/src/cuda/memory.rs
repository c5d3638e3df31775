//! Allocations, copies and memsets.

use std::ffi::c_void;

use cupti::ids::{copy_kind, memory_kind};

use super::stub::driver;
use super::{DevicePointer, Handle};
use crate::gpu::context::{self, Context, Stream, per_thread};
use crate::gpu::launch::launch;
use crate::gpu::memory::free;
use crate::gpu::operation::Operation;
use crate::gpu::{Outcome, answer, memory, status};
use crate::sys;

const HTOD: Option<u8> = Some(copy_kind::HTOD);
const DTOH: Option<u8> = Some(copy_kind::DTOH);
const DTOD: Option<u8> = Some(copy_kind::DTOD);

const NULL: Handle = std::ptr::null_mut();

/// Queues a copy and returns at once.
fn queue(dst: usize, src: usize, bytes: usize, kind: Option<u8>, stream: Handle) -> Outcome {
    launch(Stream::from_handle(stream)?, Operation::copy(dst, src, bytes, kind, true)?);
    Ok(())
}

/// Copies and returns when the copy is done. Not allowed on a capturing stream.
fn copy(dst: usize, src: usize, bytes: usize, kind: Option<u8>, stream: Handle) -> Outcome {
    let stream = Stream::from_handle(stream)?;
    if stream.capturing() {
        return Err(status::CAPTURE_UNSUPPORTED);
    }
    sys::wait_until(launch(stream, Operation::copy(dst, src, bytes, kind, false)?));
    Ok(())
}

fn set(dst: usize, value: u32, width: usize, count: usize, stream: Handle) -> Outcome {
    launch(Stream::from_handle(stream)?, Operation::memset(dst, value, width, count)?);
    Ok(())
}

fn peer(dst: usize, to: Handle, src: usize, from: Handle, bytes: usize, stream: Handle) -> Outcome {
    let (to, from) = (Context::from_handle(to)?.device.index, Context::from_handle(from)?.device.index);
    launch(Stream::from_handle(stream)?, Operation::peer(dst, src, bytes, from, to)?);
    Ok(())
}

/// `CUDA_MEMCPY2D`; arrays are not simulated.
#[repr(C)]
pub(crate) struct Copy2D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_type: u32,
    pub src_host: usize,
    pub src_device: usize,
    pub src_array: Handle,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_type: u32,
    pub dst_host: usize,
    pub dst_device: usize,
    pub dst_array: Handle,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CU_MEMORYTYPE_HOST`
pub(crate) const TYPE_HOST: u32 = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub(crate) const TYPE_DEVICE: u32 = 2;

fn copy_rows(copy: *const Copy2D, stream: Handle, asynchronous: bool) -> Outcome {
    // SAFETY: the program passes a description, or null.
    let c = unsafe { copy.as_ref() }.ok_or(status::INVALID_VALUE)?;
    let src = if c.src_type == TYPE_HOST { c.src_host } else { c.src_device } + c.src_y * c.src_pitch + c.src_x;
    let dst = if c.dst_type == TYPE_HOST { c.dst_host } else { c.dst_device } + c.dst_y * c.dst_pitch + c.dst_x;
    let stream = Stream::from_handle(stream)?;
    let operation =
        Operation::copy_rows([dst, src], [c.width, c.height], [c.dst_pitch, c.src_pitch], None, asynchronous)?;
    let end = launch(stream, operation);
    if !asynchronous {
        sys::wait_until(end);
    }
    Ok(())
}

fn allocated(out: *mut DevicePointer, kind: u8, size: usize) -> Outcome {
    if out.is_null() { Err(status::INVALID_VALUE) } else { answer(out, context::current()?.allocate(kind, size)?) }
}

fn free_on(address: usize, stream: Handle) -> Outcome {
    // The memory may be in use by copies queued before, but those have already moved their bytes.
    Stream::from_handle(stream).and_then(|_| free(address))
}

fn free_at_once(address: usize) -> Outcome {
    if let Ok(context) = context::current() {
        context.synchronize();
    }
    free(address)
}

driver! {
    243 cuMemAlloc_v2(out: *mut DevicePointer, size: usize) => allocated(out, memory_kind::DEVICE, size);
    245 cuMemFree_v2(address: DevicePointer) => free_at_once(address);
    371 cuMemAllocManaged(out: *mut DevicePointer, size: usize, _flags: u32) => {
        allocated(out, memory_kind::MANAGED, size)
    };
    598 cuMemAllocAsync(out: *mut DevicePointer, size: usize, stream: Handle) => {
        Stream::from_handle(stream).and_then(|_| allocated(out, memory_kind::DEVICE, size))
    };
    599 cuMemAllocAsync_ptsz(out: *mut DevicePointer, size: usize, stream: Handle) => {
        Stream::from_handle(per_thread(stream)).and_then(|_| allocated(out, memory_kind::DEVICE, size))
    };
    600 cuMemFreeAsync(address: DevicePointer, stream: Handle) => free_on(address, stream);
    601 cuMemFreeAsync_ptsz(address: DevicePointer, stream: Handle) => free_on(address, per_thread(stream));
    0 cuMemAllocHost_v2(out: *mut DevicePointer, size: usize) => allocated(out, memory_kind::PINNED, size);
    0 cuMemHostAlloc(out: *mut DevicePointer, size: usize, _flags: u32) => {
        allocated(out, memory_kind::PINNED, size)
    };
    0 cuMemFreeHost(address: DevicePointer) => free_at_once(address);
    0 cuMemHostGetDevicePointer_v2(out: *mut DevicePointer, host: usize, _flags: u32) => answer(out, host);
    0 cuMemGetAddressRange_v2(base: *mut DevicePointer, size: *mut usize, address: DevicePointer) => {
        let (start, length) = memory::range_of(address).ok_or(status::NOT_FOUND)?;
        answer(base, start).and(answer(size, length))
    };
    276 cuMemcpyHtoD_v2(dst: DevicePointer, src: usize, n: usize) => copy(dst, src, n, HTOD, NULL);
    397 cuMemcpyHtoD_v2_ptds(dst: DevicePointer, src: usize, n: usize) => {
        copy(dst, src, n, HTOD, per_thread(NULL))
    };
    277 cuMemcpyHtoDAsync_v2(dst: DevicePointer, src: usize, n: usize, stream: Handle) => {
        queue(dst, src, n, HTOD, stream)
    };
    421 cuMemcpyHtoDAsync_v2_ptsz(dst: DevicePointer, src: usize, n: usize, stream: Handle) => {
        queue(dst, src, n, HTOD, per_thread(stream))
    };
    278 cuMemcpyDtoH_v2(dst: usize, src: DevicePointer, n: usize) => copy(dst, src, n, DTOH, NULL);
    398 cuMemcpyDtoH_v2_ptds(dst: usize, src: DevicePointer, n: usize) => {
        copy(dst, src, n, DTOH, per_thread(NULL))
    };
    279 cuMemcpyDtoHAsync_v2(dst: usize, src: DevicePointer, n: usize, stream: Handle) => {
        queue(dst, src, n, DTOH, stream)
    };
    422 cuMemcpyDtoHAsync_v2_ptsz(dst: usize, src: DevicePointer, n: usize, stream: Handle) => {
        queue(dst, src, n, DTOH, per_thread(stream))
    };
    280 cuMemcpyDtoD_v2(dst: DevicePointer, src: DevicePointer, n: usize) => copy(dst, src, n, DTOD, NULL);
    399 cuMemcpyDtoD_v2_ptds(dst: DevicePointer, src: DevicePointer, n: usize) => {
        copy(dst, src, n, DTOD, per_thread(NULL))
    };
    281 cuMemcpyDtoDAsync_v2(dst: DevicePointer, src: DevicePointer, n: usize, stream: Handle) => {
        queue(dst, src, n, DTOD, stream)
    };
    423 cuMemcpyDtoDAsync_v2_ptsz(dst: DevicePointer, src: DevicePointer, n: usize, stream: Handle) => {
        queue(dst, src, n, DTOD, per_thread(stream))
    };
    305 cuMemcpy(dst: DevicePointer, src: DevicePointer, n: usize) => copy(dst, src, n, None, NULL);
    408 cuMemcpy_ptds(dst: DevicePointer, src: DevicePointer, n: usize) => {
        copy(dst, src, n, None, per_thread(NULL))
    };
    306 cuMemcpyAsync(dst: DevicePointer, src: DevicePointer, n: usize, stream: Handle) => {
        queue(dst, src, n, None, stream)
    };
    418 cuMemcpyAsync_ptsz(dst: DevicePointer, src: DevicePointer, n: usize, stream: Handle) => {
        queue(dst, src, n, None, per_thread(stream))
    };
    319 cuMemcpyPeerAsync(dst: DevicePointer, to: Handle, src: DevicePointer, from: Handle, n: usize, stream: Handle) => {
        peer(dst, to, src, from, n, stream)
    };
    426 cuMemcpyPeerAsync_ptsz(dst: DevicePointer, to: Handle, src: DevicePointer, from: Handle, n: usize, stream: Handle) => {
        peer(dst, to, src, from, n, per_thread(stream))
    };
    287 cuMemcpy2D_v2(copy: *const Copy2D) => copy_rows(copy, NULL, false);
    289 cuMemcpy2DAsync_v2(copy: *const Copy2D, stream: Handle) => copy_rows(copy, stream, true);
    424 cuMemcpy2DAsync_v2_ptsz(copy: *const Copy2D, stream: Handle) => {
        copy_rows(copy, per_thread(stream), true)
    };
    249 cuMemsetD8_v2(dst: DevicePointer, value: u8, n: usize) => set(dst, value.into(), 1, n, NULL);
    251 cuMemsetD32_v2(dst: DevicePointer, value: u32, n: usize) => set(dst, value, 4, n, NULL);
    216 cuMemsetD8Async(dst: DevicePointer, value: u8, n: usize, stream: Handle) => {
        set(dst, value.into(), 1, n, stream)
    };
    428 cuMemsetD8Async_ptsz(dst: DevicePointer, value: u8, n: usize, stream: Handle) => {
        set(dst, value.into(), 1, n, per_thread(stream))
    };
    220 cuMemsetD32Async(dst: DevicePointer, value: u32, n: usize, stream: Handle) => {
        set(dst, value, 4, n, stream)
    };
    430 cuMemsetD32Async_ptsz(dst: DevicePointer, value: u32, n: usize, stream: Handle) => {
        set(dst, value, 4, n, per_thread(stream))
    };
    0 cuPointerGetAttribute(out: *mut c_void, attribute: i32, address: DevicePointer) => {
        // MEMORY_TYPE 2 (1 host, 2 device) and DEVICE_ORDINAL 9.
        let device = memory::device_of(address).ok_or(status::INVALID_VALUE)?;
        match attribute {
            2 => answer(out.cast(), 2u32),
            9 => answer(out.cast(), device),
            _ => Err(status::INVALID_VALUE),
        }
    };
}
