//! The steps of a runtime call: lazy initialisation, callbacks, the last error.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use cupti::ids::domain;

use super::driver::{Driver, driver, initialised};
use crate::gpu::status;
use crate::script::MAX_DEVICES;
use crate::table::Call;

/// `cudaErrorInsufficientDriver`
const INSUFFICIENT_DRIVER: u32 = 35;

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static BOUND: Cell<bool> = const { Cell::new(false) };
}

/// Converts a driver result to an outcome.
pub fn check(result: u32) -> Result<(), u32> {
    if result == 0 { Ok(()) } else { Err(result) }
}

/// Returns the initialised driver.
fn usable() -> Result<&'static Driver, u32> {
    let driver = driver().ok_or(INSUFFICIENT_DRIVER)?;
    if (driver.table.alive)() { Ok(driver) } else { Err(status::NOT_INITIALIZED) }
}

/// Returns the initialised driver, with a context for this thread.
pub fn ready() -> Result<&'static Driver, u32> {
    let driver = usable()?;
    if !BOUND.get() {
        let mut context = std::ptr::null_mut();
        check((driver.cuCtxGetCurrent)(&mut context))?;
        if context.is_null() {
            bind(driver, DEVICE.get())?;
        }
        BOUND.set(true);
    }
    Ok(driver)
}

fn bind(driver: &Driver, device: i32) -> Result<(), u32> {
    check((driver.cuCtxSetCurrent)(primary(driver, device)?))
}

/// Returns the primary context of a device, retained on first use and never released.
pub fn primary(driver: &Driver, device: i32) -> Result<*mut c_void, u32> {
    static RETAINED: [AtomicPtr<c_void>; MAX_DEVICES as usize] =
        [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_DEVICES as usize];
    let kept = usize::try_from(device).ok().and_then(|device| RETAINED.get(device));
    if let Some(context) = kept.map(|kept| kept.load(Ordering::Acquire)).filter(|context| !context.is_null()) {
        return Ok(context);
    }
    let mut context = std::ptr::null_mut();
    check((driver.cuDevicePrimaryCtxRetain)(&mut context, device))?;
    if let Some(kept) = kept {
        kept.store(context, Ordering::Release);
    }
    Ok(context)
}

/// Returns the calling thread's device.
pub fn device() -> i32 {
    DEVICE.get()
}

/// Sets the calling thread's device.
pub fn set_device(driver: &Driver, device: i32) -> Result<(), u32> {
    bind(driver, device)?;
    DEVICE.set(device);
    Ok(())
}

/// Returns the last error and, with `take`, clears it.
pub fn last_error(take: bool) -> u32 {
    let error = LAST_ERROR.get();
    if take {
        LAST_ERROR.set(0);
    }
    error
}

fn remember(result: u32) -> u32 {
    if result != 0 && result != status::NOT_READY {
        LAST_ERROR.set(result);
    }
    result
}

/// Runs a runtime function's body as an API call. Like the real runtime, it initialises the driver before the call is
/// reported, and binds a context to the thread within the call.
#[inline(always)]
pub fn runtime(
    cbid: u32,
    name: &'static CStr,
    params: *const c_void,
    symbol: impl FnOnce() -> *const c_char,
    body: impl FnOnce() -> Result<(), u32>,
) -> u32 {
    let driver = match usable() {
        Ok(driver) => driver,
        Err(error) => return remember(error),
    };
    let (name, symbol) = (name.as_ptr(), symbol());
    let mut call =
        Call { domain: domain::RUNTIME, cbid, name, params, symbol, result: 0, correlation: 0, outer: 0, data: 0 };
    if (driver.table.begin)(&mut call) {
        call.result = ready().and_then(|_| body()).err().unwrap_or(0);
    }
    (driver.table.end)(&mut call);
    remember(call.result)
}

/// Runs a function that returns the last error as an API call, if the driver is initialised: it does not initialise it.
pub fn reported(cbid: u32, name: &'static CStr, body: impl FnOnce() -> u32) -> u32 {
    let Some(driver) = initialised().filter(|driver| (driver.table.alive)()) else { return body() };
    let (name, params, symbol) = (name.as_ptr(), std::ptr::null(), std::ptr::null());
    let mut call =
        Call { domain: domain::RUNTIME, cbid, name, params, symbol, result: 0, correlation: 0, outer: 0, data: 0 };
    (driver.table.begin)(&mut call);
    call.result = body();
    (driver.table.end)(&mut call);
    call.result
}
