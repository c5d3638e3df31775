//! The exported functions. Handles are the indices of the GPUs, from 1.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::meter::Counters;
use crate::gpu::device::Hardware;
use crate::script::{NvmlFault, Script};
use crate::sys;

pub(super) const SUCCESS: c_int = 0;
pub(super) const INVALID_ARGUMENT: c_int = 2;
pub(super) const NOT_SUPPORTED: c_int = 3;
const INSUFFICIENT_SIZE: c_int = 7;
const LIBRARY_NOT_FOUND: c_int = 12;
const UNKNOWN: c_int = 999;

/// The script and the counters; `None` if the script is invalid: the program says so.
static STATE: OnceLock<Option<(Script, Mutex<Counters>)>> = OnceLock::new();

fn state() -> Option<&'static (Script, Mutex<Counters>)> {
    let load = || Script::load().ok().map(|script| (script, Mutex::default()));
    STATE.get_or_init(load).as_ref()
}

/// Returns the index of the GPU with this handle.
pub(super) fn index(device: usize) -> Option<u32> {
    let count = state()?.0.devices;
    u32::try_from(device.checked_sub(1)?).ok().filter(|index| *index < count)
}

/// Returns what NVML cannot do.
pub(super) fn fault() -> Option<NvmlFault> {
    state()?.0.nvml_fault
}

fn write_text(text: &str, to: *mut c_char, length: c_uint) -> c_int {
    if length as usize <= text.len() {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller passes a buffer of this length, which the text and its end fit into.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        to.add(text.len()).write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_int {
    match state() {
        Some((script, _)) if script.nvml_fault == Some(NvmlFault::Missing) => LIBRARY_NOT_FOUND,
        Some(_) => SUCCESS,
        None => UNKNOWN,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    // SAFETY: the caller passes a place for the number.
    unsafe { count.write(state().map_or(0, |(script, _)| script.devices)) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(at: c_uint, device: *mut usize) -> c_int {
    if index(at as usize + 1).is_none() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes a place for the handle.
    unsafe { device.write(at as usize + 1) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: usize, text: *mut c_char, length: c_uint) -> c_int {
    let Some(gpu) = index(device) else { return INVALID_ARGUMENT };
    write_text(&Hardware { gpu, instance: None }.name().replace("gpu-", "GPU-"), text, length)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: usize, text: *mut c_char, length: c_uint) -> c_int {
    if index(device).is_none() { INVALID_ARGUMENT } else { write_text("Simulated GPU", text, length) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(device: usize, millijoules: *mut c_ulonglong) -> c_int {
    let (Some(gpu), Some((script, counters))) = (index(device), state()) else { return INVALID_ARGUMENT };
    if script.nvml_fault == Some(NvmlFault::Refuse) {
        return NOT_SUPPORTED;
    }
    let mut counters = counters.lock().unwrap_or_else(PoisonError::into_inner);
    let energy = counters.millijoules(script, gpu, sys::now());
    // SAFETY: the caller passes a place for the number.
    unsafe { millijoules.write(energy) };
    SUCCESS
}
