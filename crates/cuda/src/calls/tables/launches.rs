//! Launches: of kernels, of graphs, of host functions.
//!
//! `cudaLaunchKernel` takes the kernel's host function or, in newer releases, a kernel handle instead.

use super::group::{calls, role};
use crate::calls::Role;
use crate::calls::args::Dims::{Loose, Packed};
use crate::calls::args::Kind::*;
use crate::calls::payload::Struct::*;

calls! {
    role(Role::Launch) => {
        cudaLaunchKernel(kernel: HostStub, grid: Grid(Packed), block: Block(Packed), args: Pointer, shared: Shared,
            stream: Stream);
        cudaLaunchCooperativeKernel(kernel: HostStub, grid: Grid(Packed), block: Block(Packed), args: Pointer,
            shared: Shared, stream: Stream);
        cudaLaunchKernelExC(config: Struct(RuntimeLaunch), kernel: HostStub, args: Pointer);
        __cudaLaunchKernel(kernel: Kernel, grid: Grid(Packed), block: Block(Packed), args: Pointer, shared: Shared,
            stream: Stream);
        cuLaunchKernel(kernel: Kernel, grid: Grid(Loose), block: Block(Loose), shared: ShortShared, stream: Stream,
            params: Pointer, extra: Pointer);
        cuLaunchCooperativeKernel(kernel: Kernel, grid: Grid(Loose), block: Block(Loose), shared: ShortShared,
            stream: Stream, params: Pointer);
        cuLaunchKernelEx(config: Struct(DriverLaunch), kernel: Kernel, params: Pointer, extra: Pointer);
        cuLaunch(kernel: Kernel);
        cuLaunchGrid(kernel: Kernel, width: Int, height: Int);
        cuLaunchGridAsync(kernel: Kernel, width: Int, height: Int, stream: Stream);
    }
    role(Role::GraphLaunch) => {
        cudaGraphLaunch(exec: Handle, stream: Stream);
        cuGraphLaunch(exec: Handle, stream: Stream);
    }
    role(Role::HostFunction) => {
        cudaLaunchHostFunc(stream: Stream, function: Pointer, data: Pointer);
        cuLaunchHostFunc(stream: Stream, function: Pointer, data: Pointer);
        cudaStreamAddCallback(stream: Stream, callback: Pointer, data: Pointer, flags: Flags);
        cuStreamAddCallback(stream: Stream, callback: Pointer, data: Pointer, flags: Flags);
    }
    // The implementation of `<<<...>>>`: pushed by the caller, popped by the host stub, which then calls
    // cudaLaunchKernel.
    role(Role::Other) => {
        __cudaPushCallConfiguration(grid: Grid(Packed), block: Block(Packed), shared: Shared, stream: Stream);
        __cudaPopCallConfiguration(grid: Pointer, block: Pointer, shared: Pointer, stream: Pointer);
    }
}
