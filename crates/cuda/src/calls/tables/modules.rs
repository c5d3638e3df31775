//! Code: modules, libraries, kernels and their names.
//!
//! A function that takes a name and returns a kernel reveals the kernel's name; one that takes a kernel and returns
//! another reveals that both are the same.

use super::group::{calls, role};
use crate::calls::Role;
use crate::calls::args::Kind::*;

calls! {
    role(Role::Module) => {
        cuModuleLoad(module: Out(&Handle), file: Text);
        cuModuleLoadData(module: Out(&Handle), image: Pointer);
        cuModuleLoadDataEx(module: Out(&Handle), image: Pointer, option_count: Unsigned, options: Pointer, values: Pointer);
        cuModuleLoadFatBinary(module: Out(&Handle), image: Pointer);
        cuModuleUnload(module: Handle);
        cuModuleGetFunction(kernel: Out(&Kernel), module: Handle, name: Text);
        cuModuleGetGlobal(ptr: Out(&Pointer), size: Pointer, module: Handle, name: Text);
        cuModuleGetLoadingMode(mode: Out(&Unsigned));

        cuLibraryLoadData(library: Out(&Handle), image: Pointer);
        cuLibraryLoadFromFile(library: Out(&Handle), file: Text);
        cuLibraryUnload(library: Handle);
        cuLibraryGetKernel(kernel: Out(&Kernel), library: Handle, name: Text);
        cuLibraryGetModule(module: Out(&Handle), library: Handle);
        cuLibraryGetGlobal(ptr: Out(&Pointer), size: Pointer, library: Handle, name: Text);
        cuLibraryGetManaged(ptr: Out(&Pointer), size: Pointer, library: Handle, name: Text);
        cuLibraryGetKernelCount(count: Out(&Unsigned), library: Handle);
        cuLibraryEnumerateKernels(kernels: Pointer, count: Unsigned, library: Handle);

        cuKernelGetFunction(function: Out(&Kernel), kernel: Kernel);
        cuKernelGetLibrary(library: Out(&Handle), kernel: Kernel);
        cuKernelGetName(name: Out(&Pointer), kernel: Kernel);
        cuKernelGetAttribute(value: Out(&Int), attribute: Unsigned, kernel: Kernel, device: Int);
        cuKernelSetAttribute(attribute: Unsigned, value: Int, kernel: Kernel, device: Int);
        cuFuncGetName(name: Out(&Pointer), kernel: Kernel);
        cuFuncGetModule(module: Out(&Handle), kernel: Kernel);
        cuFuncGetAttribute(value: Out(&Int), attribute: Unsigned, kernel: Kernel);
        cuFuncSetAttribute(kernel: Kernel, attribute: Unsigned, value: Int);
        cuFuncSetCacheConfig(kernel: Kernel, config: Unsigned);
        cuFuncIsLoaded(state: Out(&Unsigned), kernel: Kernel);
        cuFuncLoad(kernel: Kernel);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out(&Int), kernel: Kernel, block_size: Int, shared: Size);
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out(&Int), kernel: Kernel, block_size: Int,
            shared: Size, flags: Flags);

        cuLinkCreate(option_count: Unsigned, options: Pointer, values: Pointer, state: Out(&Handle));
        cuLinkAddData(state: Handle, kind: Unsigned, data: Pointer, size: Size, name: Text);
        cuLinkAddFile(state: Handle, kind: Unsigned, file: Text);
        cuLinkComplete(state: Handle, cubin: Out(&Pointer), size: Pointer);
        cuLinkDestroy(state: Handle);

        cudaGetFuncBySymbol(function: Out(&Kernel), stub: HostStub);
        cudaGetKernel(kernel: Out(&Kernel), stub: HostStub);
        __cudaGetKernel(kernel: Out(&Kernel), stub: HostStub);
        cudaFuncGetAttributes(attributes: Pointer, kernel: HostStub);
        cudaFuncSetAttribute(kernel: HostStub, attribute: Unsigned, value: Int);
        cudaFuncSetCacheConfig(kernel: HostStub, config: Unsigned);
        cudaFuncGetName(name: Out(&Pointer), kernel: HostStub);
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out(&Int), kernel: HostStub, block_size: Int, shared: Size);
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out(&Int), kernel: HostStub, block_size: Int,
            shared: Size, flags: Flags);
        cudaGetSymbolAddress(ptr: Out(&Pointer), symbol: Pointer);
        cudaGetSymbolSize(size: Out(&Size), symbol: Pointer);
        cudaLibraryLoadData(library: Out(&Handle), image: Pointer);
        cudaLibraryLoadFromFile(library: Out(&Handle), file: Text);
        cudaLibraryUnload(library: Handle);
        cudaLibraryGetKernel(kernel: Out(&Kernel), library: Handle, name: Text);

        __cudaRegisterFatBinary(image: Pointer);
        __cudaRegisterFatBinaryEnd(handle: Handle);
        __cudaUnregisterFatBinary(handle: Handle);
        __cudaRegisterFunction(handle: Handle, stub: HostStub, device_stub: Pointer, name: Text, thread_limit: Int);
        __cudaRegisterVar(handle: Handle, host: Pointer, device: Pointer, name: Text, extern_: Int, size: Size);
        __cudaRegisterManagedVar(handle: Handle, host: Pointer, device: Pointer, name: Text, extern_: Int, size: Size);
        __cudaInitModule(handle: Handle);
    }
}
