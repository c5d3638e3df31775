//! Devices and contexts, and the driver's entry points.

use super::group::{calls, role};
use crate::calls::Role;
use crate::calls::args::Kind::*;

calls! {
    role(Role::Context) => {
        cuInit(flags: Flags);
        cuDriverGetVersion(version: Out(&Int));
        cuDeviceGet(device: Out(&Int), ordinal: Int);
        cuDeviceGetCount(count: Out(&Int));
        cuDeviceGetName(name: Pointer, length: Int, device: Int);
        cuDeviceGetUuid(uuid: Pointer, device: Int);
        cuDeviceTotalMem(size: Out(&Size), device: Int);
        cuDeviceGetAttribute(value: Out(&Int), attribute: Unsigned, device: Int);
        cuDeviceCanAccessPeer(can: Out(&Int), device: Int, peer: Int);
        cuDevicePrimaryCtxRetain(context: Out(&Handle), device: Int);
        cuDevicePrimaryCtxRelease(device: Int);
        cuDevicePrimaryCtxReset(device: Int);
        cuDevicePrimaryCtxSetFlags(device: Int, flags: Flags);
        cuDevicePrimaryCtxGetState(device: Int, flags: Pointer, active: Out(&Int));
        cuCtxCreate(context: Out(&Handle), flags: Flags, device: Int);
        cuCtxCreate_v3(context: Out(&Handle), affinity: Pointer, affinity_count: Int, flags: Flags, device: Int);
        cuCtxCreate_v4(context: Out(&Handle), params: Pointer, flags: Flags, device: Int);
        cuCtxDestroy(context: Handle);
        cuCtxPushCurrent(context: Handle);
        cuCtxPopCurrent(context: Out(&Handle));
        cuCtxSetCurrent(context: Handle);
        cuCtxGetCurrent(context: Out(&Handle));
        cuCtxGetDevice(device: Out(&Int));
        cuCtxGetFlags(flags: Out(&Flags));
        cuCtxGetLimit(value: Out(&Size), limit: Unsigned);
        cuCtxSetLimit(limit: Unsigned, value: Size);
        cuCtxEnablePeerAccess(peer: Handle, flags: Flags);
        cuCtxDisablePeerAccess(peer: Handle);

        cudaSetDevice(device: Int);
        cudaGetDevice(device: Out(&Int));
        cudaInitDevice(device: Int, device_flags: Flags, flags: Flags);
        cudaGetDeviceCount(count: Out(&Int));
        cudaGetDeviceProperties(properties: Pointer, device: Int);
        cudaDeviceGetAttribute(value: Out(&Int), attribute: Unsigned, device: Int);
        cudaDeviceGetPCIBusId(id: Pointer, length: Int, device: Int);
        cudaDeviceGetByPCIBusId(device: Out(&Int), id: Text);
        cudaDeviceCanAccessPeer(can: Out(&Int), device: Int, peer: Int);
        cudaDeviceEnablePeerAccess(peer: Int, flags: Flags);
        cudaDeviceDisablePeerAccess(peer: Int);
        cudaDeviceGetLimit(value: Out(&Size), limit: Unsigned);
        cudaDeviceSetLimit(limit: Unsigned, value: Size);
        cudaDeviceSetCacheConfig(config: Unsigned);
        cudaSetDeviceFlags(flags: Flags);
        cudaGetDeviceFlags(flags: Out(&Flags));
        cudaDeviceReset();
        cudaThreadExit();
        cudaDriverGetVersion(version: Out(&Int));
        cudaRuntimeGetVersion(version: Out(&Int));
    }
    role(Role::Other) => {
        cuGetProcAddress(symbol: Text, function: Out(&Pointer), version: Int, flags: LongFlags);
        cuGetExportTable(table: Out(&Pointer), id: Pointer);
        cuGetErrorName(error: Unsigned, name: Out(&Pointer));
        cuGetErrorString(error: Unsigned, text: Out(&Pointer));
        cuProfilerStart();
        cuProfilerStop();
        cudaGetDriverEntryPoint(symbol: Text, function: Out(&Pointer));
        cudaGetDriverEntryPointByVersion(symbol: Text, function: Out(&Pointer), version: Unsigned, flags: LongFlags);
        cudaGetErrorName(error: Unsigned);
        cudaGetErrorString(error: Unsigned);
        cudaGetLastError();
        cudaPeekAtLastError();
        cudaProfilerStart();
        cudaProfilerStop();
    }
}
