//! Allocations, copies and memsets.

use super::Handle;
use super::call::{check, primary, ready};
use super::stub::runtime;
use crate::cuda::memory::{Copy2D, TYPE_DEVICE, TYPE_HOST};
use crate::gpu::context::per_thread;
use crate::gpu::status;

/// `cudaMemcpyKind`
mod kind {
    pub const HTOH: u32 = 0;
    pub const HTOD: u32 = 1;
    pub const DTOH: u32 = 2;
    pub const DTOD: u32 = 3;
    pub const DEFAULT: u32 = 4;
}

fn copy(dst: usize, src: usize, bytes: usize, kind: u32) -> Result<(), u32> {
    let driver = ready()?;
    let function = match kind {
        kind::HTOD => driver.cuMemcpyHtoD_v2,
        kind::DTOH => driver.cuMemcpyDtoH_v2,
        kind::DTOD => driver.cuMemcpyDtoD_v2,
        kind::HTOH | kind::DEFAULT => driver.cuMemcpy,
        _ => return Err(status::INVALID_VALUE),
    };
    check(function(dst, src, bytes))
}

fn queue(dst: usize, src: usize, bytes: usize, kind: u32, stream: Handle) -> Result<(), u32> {
    let driver = ready()?;
    let function = match kind {
        kind::HTOD => driver.cuMemcpyHtoDAsync_v2,
        kind::DTOH => driver.cuMemcpyDtoHAsync_v2,
        kind::DTOD => driver.cuMemcpyDtoDAsync_v2,
        kind::HTOH | kind::DEFAULT => driver.cuMemcpyAsync,
        _ => return Err(status::INVALID_VALUE),
    };
    check(function(dst, src, bytes, stream))
}

fn peer(dst: usize, to: i32, src: usize, from: i32, bytes: usize, stream: Handle) -> Result<(), u32> {
    let driver = ready()?;
    let (to, from) = (primary(driver, to)?, primary(driver, from)?);
    check((driver.cuMemcpyPeerAsync)(dst, to, src, from, bytes, stream))
}

/// One end of a copy of rows.
#[derive(Clone, Copy)]
struct End {
    address: usize,
    pitch: usize,
}

fn rows(dst: End, src: End, width: usize, height: usize, kind: u32) -> Copy2D {
    let (from_host, to_host) = (matches!(kind, kind::HTOH | kind::HTOD), matches!(kind, kind::HTOH | kind::DTOH));
    let memory_type = |host| if host { TYPE_HOST } else { TYPE_DEVICE };
    Copy2D {
        src_x: 0,
        src_y: 0,
        src_type: memory_type(from_host),
        src_host: src.address,
        src_device: src.address,
        src_array: std::ptr::null_mut(),
        src_pitch: src.pitch,
        dst_x: 0,
        dst_y: 0,
        dst_type: memory_type(to_host),
        dst_host: dst.address,
        dst_device: dst.address,
        dst_array: std::ptr::null_mut(),
        dst_pitch: dst.pitch,
        width,
        height,
    }
}

/// `cudaPitchedPtr`
#[repr(C)]
struct Pitched {
    address: usize,
    pitch: usize,
    width: usize,
    height: usize,
}

/// `cudaMemcpy3DParms`; arrays are not simulated.
#[repr(C)]
struct Copy3D {
    src_array: Handle,
    src_at: [usize; 3],
    src: Pitched,
    dst_array: Handle,
    dst_at: [usize; 3],
    dst: Pitched,
    extent: [usize; 3],
    kind: u32,
}

/// Slices are adjacent if the extent is as high as the allocation; nothing else is simulated.
fn copy_3d(copy: *const Copy3D, stream: Handle) -> Result<(), u32> {
    // SAFETY: the program passes parameters, or null.
    let c = unsafe { copy.as_ref() }.ok_or(status::INVALID_VALUE)?;
    let at = |p: &Pitched, [x, y, z]: [usize; 3]| End {
        address: p.address + (z * p.height + y) * p.pitch + x,
        pitch: p.pitch,
    };
    let [width, height, depth] = c.extent;
    let rows = rows(at(&c.dst, c.dst_at), at(&c.src, c.src_at), width, height * depth, c.kind);
    check((ready()?.cuMemcpy2DAsync_v2)(&rows, stream))
}

fn set(dst: usize, value: i32, bytes: usize, stream: Handle) -> Result<(), u32> {
    check((ready()?.cuMemsetD8Async)(dst, value as u8, bytes, stream))
}

const NULL: Handle = std::ptr::null_mut();

runtime! {
    20 cudaMalloc(out: *mut usize, size: usize) => check((ready()?.cuMemAlloc_v2)(out, size));
    22 cudaFree(address: usize) => check((ready()?.cuMemFree_v2)(address));
    206 cudaMallocManaged(out: *mut usize, size: usize, flags: u32) => {
        check((ready()?.cuMemAllocManaged)(out, size, flags))
    };
    373 cudaMallocAsync(out: *mut usize, size: usize, stream: Handle) => {
        check((ready()?.cuMemAllocAsync)(out, size, stream))
    };
    374 cudaMallocAsync_ptsz(out: *mut usize, size: usize, stream: Handle) => {
        check((ready()?.cuMemAllocAsync)(out, size, per_thread(stream)))
    };
    375 cudaFreeAsync(address: usize, stream: Handle) => check((ready()?.cuMemFreeAsync)(address, stream));
    376 cudaFreeAsync_ptsz(address: usize, stream: Handle) => {
        check((ready()?.cuMemFreeAsync)(address, per_thread(stream)))
    };
    25 cudaMallocHost(out: *mut usize, size: usize) => check((ready()?.cuMemHostAlloc)(out, size, 0));
    27 cudaHostAlloc(out: *mut usize, size: usize, flags: u32) => check((ready()?.cuMemHostAlloc)(out, size, flags));
    26 cudaFreeHost(address: usize) => check((ready()?.cuMemFreeHost)(address));
    31 cudaMemcpy(dst: usize, src: usize, n: usize, kind: u32) => copy(dst, src, n, kind);
    215 cudaMemcpy_ptds(dst: usize, src: usize, n: usize, kind: u32) => {
        let stream = per_thread(NULL);
        queue(dst, src, n, kind, stream)?;
        check((ready()?.cuStreamSynchronize)(stream))
    };
    41 cudaMemcpyAsync(dst: usize, src: usize, n: usize, kind: u32, stream: Handle) => queue(dst, src, n, kind, stream);
    225 cudaMemcpyAsync_ptsz(dst: usize, src: usize, n: usize, kind: u32, stream: Handle) => {
        queue(dst, src, n, kind, per_thread(stream))
    };
    161 cudaMemcpyPeerAsync(dst: usize, to: i32, src: usize, from: i32, n: usize, stream: Handle) => {
        peer(dst, to, src, from, n, stream)
    };
    160 cudaMemcpyPeer(dst: usize, to: i32, src: usize, from: i32, n: usize) => {
        peer(dst, to, src, from, n, NULL)?;
        check((ready()?.cuStreamSynchronize)(NULL))
    };
    32 cudaMemcpy2D(
        dst: usize, dst_pitch: usize, src: usize, src_pitch: usize, width: usize, height: usize, kind: u32
    ) => {
        let (dst, src) = (End { address: dst, pitch: dst_pitch }, End { address: src, pitch: src_pitch });
        check((ready()?.cuMemcpy2D_v2)(&rows(dst, src, width, height, kind)))
    };
    44 cudaMemcpy2DAsync(
        dst: usize, dst_pitch: usize, src: usize, src_pitch: usize, width: usize, height: usize, kind: u32,
        stream: Handle
    ) => {
        let (dst, src) = (End { address: dst, pitch: dst_pitch }, End { address: src, pitch: src_pitch });
        check((ready()?.cuMemcpy2DAsync_v2)(&rows(dst, src, width, height, kind), stream))
    };
    145 cudaMemcpy3DAsync(copy: *const Copy3D, stream: Handle) => copy_3d(copy, stream);
    49 cudaMemset(dst: usize, value: i32, n: usize) => set(dst, value, n, NULL);
    233 cudaMemset_ptds(dst: usize, value: i32, n: usize) => set(dst, value, n, per_thread(NULL));
    51 cudaMemsetAsync(dst: usize, value: i32, n: usize, stream: Handle) => set(dst, value, n, stream);
    235 cudaMemsetAsync_ptsz(dst: usize, value: i32, n: usize, stream: Handle) => {
        set(dst, value, n, per_thread(stream))
    };
}
