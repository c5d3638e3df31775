//! Memory: allocated, freed, filled, and queried.
//!
//! `cudaMemPrefetchAsync`, `cudaMemAdvise` and similar functions took a device before CUDA 13 and take a location
//! since.

use super::group::{alloc, calls, free, role};
use crate::calls::Role;
use crate::calls::Space::*;
use crate::calls::args::Kind::*;
use crate::calls::payload::Struct::*;

calls! {
    alloc(Device) => {
        cudaMalloc(ptr: Out(&Pointer), size: Bytes);
        cudaMallocAsync(ptr: Out(&Pointer), size: Bytes, stream: Stream);
        cudaMallocFromPoolAsync(ptr: Out(&Pointer), size: Bytes, pool: Handle, stream: Stream);
        cudaMallocPitch(ptr: Out(&Pointer), pitch: Pointer, width: Bytes, height: Rows);
        cudaMalloc3D(ptr: Out(&Pointer), extent: Extent);
        cuMemAlloc(ptr: Out(&Pointer), size: Bytes);
        cuMemAllocAsync(ptr: Out(&Pointer), size: Bytes, stream: Stream);
        cuMemAllocFromPoolAsync(ptr: Out(&Pointer), size: Bytes, pool: Handle, stream: Stream);
        cuMemAllocPitch(ptr: Out(&Pointer), pitch: Pointer, width: Bytes, height: Rows, element: Unsigned);
    }
    alloc(Managed) => {
        cudaMallocManaged(ptr: Out(&Pointer), size: Bytes, flags: Flags);
        cuMemAllocManaged(ptr: Out(&Pointer), size: Bytes, flags: Flags);
    }
    alloc(Host) => {
        cudaMallocHost(ptr: Out(&Pointer), size: Bytes);
        cudaHostAlloc(ptr: Out(&Pointer), size: Bytes, flags: Flags);
        cuMemAllocHost(ptr: Out(&Pointer), size: Bytes);
        cuMemHostAlloc(ptr: Out(&Pointer), size: Bytes, flags: Flags);
    }
    alloc(Registered) => {
        cudaHostRegister(ptr: Pointer, size: Bytes, flags: Flags);
        cuMemHostRegister(ptr: Pointer, size: Bytes, flags: Flags);
    }
    alloc(Array) => {
        cudaMallocArray(array: Out(&Handle), desc: Struct(Channels), width: Rows, height: Layers, flags: Flags);
        cudaMalloc3DArray(array: Out(&Handle), desc: Pointer, flags: Flags);
        cudaMallocMipmappedArray(array: Out(&Handle), desc: Pointer, levels: Unsigned, flags: Flags);
        cuArrayCreate(array: Out(&Handle), desc: Struct(Array2D));
        cuArray3DCreate(array: Out(&Handle), desc: Struct(Array3D));
        cuMipmappedArrayCreate(array: Out(&Handle), desc: Pointer, levels: Unsigned);
    }
    alloc(Physical) => {
        cuMemCreate(handle: Out(&Handle), size: Bytes, prop: Pointer, flags: LongFlags);
    }
    alloc(Mapped) => {
        cuMemMap(ptr: Pointer, size: Bytes, offset: Size, handle: Handle, flags: LongFlags);
    }
    alloc(Reserved) => {
        cuMemAddressReserve(ptr: Out(&Pointer), size: Bytes, alignment: Size, addr: Pointer, flags: LongFlags);
    }
    // The handle is a struct of 64 bytes by value: it is on the stack and uses no register.
    alloc(Imported) => {
        cudaIpcOpenMemHandle(ptr: Out(&Pointer), flags: Flags);
        cuIpcOpenMemHandle(ptr: Out(&Pointer), flags: Flags);
        cuMemImportFromShareableHandle(handle: Out(&Handle), os_handle: Pointer, kind: Unsigned);
    }

    free(Device) => {
        cudaFree(ptr: Pointer);
        cudaFreeAsync(ptr: Pointer, stream: Stream);
        cuMemFree(ptr: Pointer);
        cuMemFreeAsync(ptr: Pointer, stream: Stream);
    }
    free(Host) => {
        cudaFreeHost(ptr: Pointer);
        cuMemFreeHost(ptr: Pointer);
    }
    free(Registered) => {
        cudaHostUnregister(ptr: Pointer);
        cuMemHostUnregister(ptr: Pointer);
    }
    free(Array) => {
        cudaFreeArray(array: Handle);
        cudaFreeMipmappedArray(array: Handle);
        cuArrayDestroy(array: Handle);
        cuMipmappedArrayDestroy(array: Handle);
    }
    free(Physical) => {
        cuMemRelease(handle: Handle);
    }
    free(Mapped) => {
        cuMemUnmap(ptr: Pointer, size: Bytes);
    }
    free(Reserved) => {
        cuMemAddressFree(ptr: Pointer, size: Bytes);
    }
    free(Imported) => {
        cudaIpcCloseMemHandle(ptr: Pointer);
        cuIpcCloseMemHandle(ptr: Pointer);
    }

    role(Role::Set) => {
        cudaMemset(ptr: Pointer, value: Int, size: Bytes);
        cudaMemsetAsync(ptr: Pointer, value: Int, size: Bytes, stream: Stream);
        cudaMemset2D(ptr: Pointer, pitch: Size, value: Int, width: Bytes, height: Rows);
        cudaMemset2DAsync(ptr: Pointer, pitch: Size, value: Int, width: Bytes, height: Rows, stream: Stream);
        cudaMemset3D(ptr: Pitched, value: Int, extent: Extent);
        cudaMemset3DAsync(ptr: Pitched, value: Int, extent: Extent, stream: Stream);
        cuMemsetD8(ptr: Pointer, value: Byte, count: Elements(0));
        cuMemsetD16(ptr: Pointer, value: Short, count: Elements(1));
        cuMemsetD32(ptr: Pointer, value: Unsigned, count: Elements(2));
        cuMemsetD8Async(ptr: Pointer, value: Byte, count: Elements(0), stream: Stream);
        cuMemsetD16Async(ptr: Pointer, value: Short, count: Elements(1), stream: Stream);
        cuMemsetD32Async(ptr: Pointer, value: Unsigned, count: Elements(2), stream: Stream);
        cuMemsetD2D8(ptr: Pointer, pitch: Size, value: Byte, width: Elements(0), height: Rows);
        cuMemsetD2D16(ptr: Pointer, pitch: Size, value: Short, width: Elements(1), height: Rows);
        cuMemsetD2D32(ptr: Pointer, pitch: Size, value: Unsigned, width: Elements(2), height: Rows);
        cuMemsetD2D8Async(ptr: Pointer, pitch: Size, value: Byte, width: Elements(0), height: Rows, stream: Stream);
        cuMemsetD2D16Async(ptr: Pointer, pitch: Size, value: Short, width: Elements(1), height: Rows, stream: Stream);
        cuMemsetD2D32Async(ptr: Pointer, pitch: Size, value: Unsigned, width: Elements(2), height: Rows, stream: Stream);
    }

    role(Role::Other) => {
        cudaMemPrefetchAsync(ptr: Pointer, size: Bytes);
        cudaMemPrefetchAsync_v2(ptr: Pointer, size: Bytes, location: LongFlags, flags: Flags, stream: Stream);
        cuMemPrefetchAsync(ptr: Pointer, size: Bytes, device: Int, stream: Stream);
        cuMemPrefetchAsync_v2(ptr: Pointer, size: Bytes, location: LongFlags, flags: Flags, stream: Stream);
        cudaMemAdvise(ptr: Pointer, size: Bytes, advice: Unsigned);
        cuMemAdvise(ptr: Pointer, size: Bytes, advice: Unsigned);
        cudaMemGetInfo(free: Out(&Size), total: Pointer);
        cuMemGetInfo(free: Out(&Size), total: Pointer);
        cudaPointerGetAttributes(attributes: Pointer, ptr: Pointer);
        cuPointerGetAttribute(data: Pointer, attribute: Unsigned, ptr: Pointer);
        cuPointerGetAttributes(count: Unsigned, attributes: Pointer, data: Pointer, ptr: Pointer);
        cuMemGetAddressRange(base: Out(&Pointer), size: Pointer, ptr: Pointer);
        cudaHostGetDevicePointer(device: Out(&Pointer), host: Pointer, flags: Flags);
        cuMemHostGetDevicePointer(device: Out(&Pointer), host: Pointer, flags: Flags);
        cudaHostGetFlags(flags: Out(&Flags), host: Pointer);
        cuMemHostGetFlags(flags: Out(&Flags), host: Pointer);
        cuMemSetAccess(ptr: Pointer, size: Size, desc: Pointer, count: Size);
        cuMemGetAllocationGranularity(granularity: Out(&Size), prop: Pointer, flags: Flags);
        cuMemExportToShareableHandle(os_handle: Pointer, handle: Handle, kind: Unsigned, flags: LongFlags);
        cuMemRetainAllocationHandle(handle: Out(&Handle), ptr: Pointer);
        cudaIpcGetMemHandle(handle: Pointer, ptr: Pointer);
        cuIpcGetMemHandle(handle: Pointer, ptr: Pointer);
        cudaMemPoolCreate(pool: Out(&Handle), props: Pointer);
        cuMemPoolCreate(pool: Out(&Handle), props: Pointer);
        cudaMemPoolDestroy(pool: Handle);
        cuMemPoolDestroy(pool: Handle);
        cudaMemPoolTrimTo(pool: Handle, keep: Size);
        cuMemPoolTrimTo(pool: Handle, keep: Size);
        cudaMemPoolSetAttribute(pool: Handle, attribute: Unsigned, value: Pointer);
        cuMemPoolSetAttribute(pool: Handle, attribute: Unsigned, value: Pointer);
        cudaMemPoolGetAttribute(pool: Handle, attribute: Unsigned, value: Pointer);
        cuMemPoolGetAttribute(pool: Handle, attribute: Unsigned, value: Pointer);
        cudaMemPoolSetAccess(pool: Handle, desc: Pointer, count: Size);
        cuMemPoolSetAccess(pool: Handle, desc: Pointer, count: Size);
        cudaDeviceGetDefaultMemPool(pool: Out(&Handle), device: Int);
        cuDeviceGetDefaultMemPool(pool: Out(&Handle), device: Int);
        cudaDeviceGetMemPool(pool: Out(&Handle), device: Int);
        cuDeviceGetMemPool(pool: Out(&Handle), device: Int);
        cudaDeviceSetMemPool(device: Int, pool: Handle);
        cuDeviceSetMemPool(device: Int, pool: Handle);
    }
}
