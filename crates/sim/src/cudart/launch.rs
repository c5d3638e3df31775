//! Kernel launches.

use std::ffi::c_void;

use super::call::{check, ready};
use super::register::{function_of, name_of};
use super::stub::runtime;
use super::{Dim3, Handle};

type Arguments = *mut Handle;

fn launch(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: Arguments,
    shared: usize,
    stream: Handle,
) -> Result<(), u32> {
    let driver = ready()?;
    let f = function_of(driver, host)?;
    let (extra, shared) = (std::ptr::null_mut(), shared as u32);
    check((driver.cuLaunchKernel)(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, args, extra))
}

fn launch_thread(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: Arguments,
    shared: usize,
    stream: Handle,
) -> Result<(), u32> {
    let driver = ready()?;
    let f = function_of(driver, host)?;
    let (extra, shared) = (std::ptr::null_mut(), shared as u32);
    check((driver.cuLaunchKernel_ptsz)(
        f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, args, extra,
    ))
}

fn cooperative(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: Arguments,
    shared: usize,
    stream: Handle,
) -> Result<(), u32> {
    let driver = ready()?;
    let f = function_of(driver, host)?;
    check((driver.cuLaunchCooperativeKernel)(
        f,
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        shared as u32,
        stream,
        args,
    ))
}

/// `cudaLaunchConfig_t` equals the driver's configuration except for the width of the shared-memory field; on a
/// little-endian machine the same bytes can be used.
fn launch_ex(config: *const c_void, host: *const c_void, args: Arguments, thread: bool) -> Result<(), u32> {
    let driver = ready()?;
    let f = function_of(driver, host)?;
    let launch = if thread { driver.cuLaunchKernelEx_ptsz } else { driver.cuLaunchKernelEx };
    check(launch(config, f, args, std::ptr::null_mut()))
}

runtime! {
    211 cudaLaunchKernel(
        host: *const c_void, grid: Dim3, block: Dim3, args: Arguments, shared: usize, stream: Handle
    ) [name_of(host)] => launch(host, grid, block, args, shared, stream);
    214 cudaLaunchKernel_ptsz(
        host: *const c_void, grid: Dim3, block: Dim3, args: Arguments, shared: usize, stream: Handle
    ) [name_of(host)] => launch_thread(host, grid, block, args, shared, stream);
    505 __cudaLaunchKernel(
        host: *const c_void, grid: Dim3, block: Dim3, args: Arguments, shared: usize, stream: Handle
    ) [name_of(host)] => launch(host, grid, block, args, shared, stream);
    506 __cudaLaunchKernel_ptsz(
        host: *const c_void, grid: Dim3, block: Dim3, args: Arguments, shared: usize, stream: Handle
    ) [name_of(host)] => launch_thread(host, grid, block, args, shared, stream);
    269 cudaLaunchCooperativeKernel(
        host: *const c_void, grid: Dim3, block: Dim3, args: Arguments, shared: usize, stream: Handle
    ) [name_of(host)] => cooperative(host, grid, block, args, shared, stream);
    430 cudaLaunchKernelExC(config: *const c_void, host: *const c_void, args: Arguments) [name_of(host)] => {
        launch_ex(config, host, args, false)
    };
    431 cudaLaunchKernelExC_ptsz(config: *const c_void, host: *const c_void, args: Arguments) [name_of(host)] => {
        launch_ex(config, host, args, true)
    };
    0 cudaFuncSetAttribute(host: *const c_void, _attribute: i32, _value: i32) => {
        function_of(ready()?, host).map(|_| ())
    };
}
