//! Kernel launches.

use std::ffi::c_void;

use super::Handle;
use super::stub::driver;
use crate::gpu::context::{Stream, per_thread};
use crate::gpu::function::{Function, name_of};
use crate::gpu::launch::launch;
use crate::gpu::operation::Operation;
use crate::gpu::{Outcome, status};

type Arguments = *mut *mut c_void;

fn kernel(f: Handle, grid: [u32; 3], block: [u32; 3], shared: u32, stream: Handle, cooperative: bool) -> Outcome {
    let function = Function::from_handle(f)?;
    if grid.contains(&0) || block.contains(&0) || block.iter().map(|&d| u64::from(d)).product::<u64>() > 1024 {
        return Err(status::INVALID_VALUE);
    }
    launch(Stream::from_handle(stream)?, Operation::Kernel { function, grid, block, shared, cooperative });
    Ok(())
}

/// `CUlaunchConfig`
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: *const c_void,
    count: u32,
}

fn kernel_ex(config: *const Config, f: Handle, null: fn(Handle) -> Handle) -> Outcome {
    // SAFETY: the program passes a configuration, or null.
    let config = unsafe { config.as_ref() }.ok_or(status::INVALID_VALUE)?;
    kernel(f, config.grid, config.block, config.shared, null(config.stream), false)
}

driver! {
    307 cuLaunchKernel(
        f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle,
        _args: Arguments, _extra: Arguments
    ) [name_of(f)] => kernel(f, [gx, gy, gz], [bx, by, bz], shared, stream, false);
    442 cuLaunchKernel_ptsz(
        f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle,
        _args: Arguments, _extra: Arguments
    ) [name_of(f)] => kernel(f, [gx, gy, gz], [bx, by, bz], shared, per_thread(stream), false);
    477 cuLaunchCooperativeKernel(
        f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, _args: Arguments
    ) [name_of(f)] => kernel(f, [gx, gy, gz], [bx, by, bz], shared, stream, true);
    478 cuLaunchCooperativeKernel_ptsz(
        f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, _args: Arguments
    ) [name_of(f)] => kernel(f, [gx, gy, gz], [bx, by, bz], shared, per_thread(stream), true);
    652 cuLaunchKernelEx(config: *const Config, f: Handle, _args: Arguments, _extra: Arguments) [name_of(f)] => {
        kernel_ex(config, f, |stream| stream)
    };
    653 cuLaunchKernelEx_ptsz(config: *const Config, f: Handle, _args: Arguments, _extra: Arguments) [name_of(f)] => {
        kernel_ex(config, f, per_thread)
    };
}
