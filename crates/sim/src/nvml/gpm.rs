//! The performance monitors: their values depend only on the number of the sample, so that a test knows them.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

use super::exports::{INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, fault, index};
use crate::script::NvmlFault;

/// `nvmlGpmSupport_t`.
#[repr(C)]
struct Support {
    version: c_uint,
    supported: c_uint,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
struct Metric {
    id: c_uint,
    result: c_int,
    value: f64,
    names: [*const c_char; 3],
}

/// `nvmlGpmMetricsGet_t`, up to the metrics.
#[repr(C)]
struct Metrics {
    version: c_uint,
    count: c_uint,
    first: *const Sample,
    second: *const Sample,
    metrics: [Metric; 0],
}

/// A sample: its number among those of all GPUs, from 1.
#[derive(Default)]
struct Sample(AtomicU64);

/// Returns the value of a metric in the interval that ends with a sample: a tenth of a percent, or a MiB per second, for each
/// sample and each number of the metric. The tensor pipe is not supported.
fn value(id: c_uint, sample: u64) -> Option<f64> {
    let value = (sample * u64::from(id)) as f64;
    match id {
        5 => None,
        1..=13 => Some(value / 10.0),
        _ => Some(value),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmQueryDeviceSupport(device: usize, support: *mut Support) -> c_int {
    if index(device).is_none() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes the structure.
    unsafe { (*support).supported = (fault() != Some(NvmlFault::Gpm) && (*support).version == 1).into() };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleAlloc(sample: *mut *mut Sample) -> c_int {
    // SAFETY: the caller passes a place for the pointer.
    unsafe { sample.write(Box::into_raw(Box::default())) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: *mut Sample) -> c_int {
    // SAFETY: it was allocated above, and is not used again.
    drop(unsafe { Box::from_raw(sample) });
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: usize, sample: *const Sample) -> c_int {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if index(device).is_none() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it was allocated above.
    unsafe { (*sample).0.store(NUMBER.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(get: *mut Metrics) -> c_int {
    // SAFETY: the caller passes the structure with as many metrics as it says, and samples that were allocated above.
    let (metrics, first, second) = unsafe {
        let metrics = std::slice::from_raw_parts_mut((&raw mut (*get).metrics).cast::<Metric>(), (*get).count as usize);
        (metrics, (*(*get).first).0.load(Ordering::Relaxed), (*(*get).second).0.load(Ordering::Relaxed))
    };
    // SAFETY: as above.
    if unsafe { (*get).version } != 1 || first == 0 || second <= first {
        return INVALID_ARGUMENT;
    }
    for metric in metrics {
        let value = value(metric.id, second);
        metric.result = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
        metric.value = value.unwrap_or(f64::NAN);
    }
    SUCCESS
}
