//! The host side of the profilers: metrics, their configuration, and the values in an image.

use std::ffi::{CStr, c_char, c_void};

use cupti::ids::result;
use cupti::pm_sampling::{
    AddMetrics, ChipName, ConfigImage, ConfigSize, Evaluate, HostDeinitialize, HostInitialize, Initialize, PM_SAMPLING,
    Passes,
};
use cupti::range_profiler::RANGE_PROFILER;

use super::profiler::{self, function};
use super::{gpu, pm_sampling, range_profiler};

/// The chip of each simulated GPU.
const CHIP: &CStr = c"SIM100";

/// What a client configures. Its address is the client's object.
struct Host {
    kind: u32,
    metrics: Vec<u8>,
}

fn host(object: *mut c_void) -> &'static mut Host {
    // SAFETY: it was created by `cuptiProfilerHostInitialize`, and one thread uses it.
    unsafe { &mut *object.cast::<Host>() }
}

/// Returns the metrics of a profiler with these names.
fn metrics(kind: u32, names: *const *const c_char, count: usize) -> Result<Vec<u8>, u32> {
    profiler::metrics(names, count, if kind == PM_SAMPLING { pm_sampling::metric } else { range_profiler::metric })
}

function!(cuptiProfilerInitialize(params: Initialize) {
    let _ = params;
    gpu().map(|_| ())
});

function!(cuptiDeviceGetChipName(params: ChipName) {
    if params.device >= (gpu()?.script)().devices as usize {
        return Err(result::INVALID_PARAMETER);
    }
    params.chip = CHIP.as_ptr();
    Ok(())
});

function!(cuptiProfilerHostInitialize(params: HostInitialize) {
    // SAFETY: the client passes the name of the chip.
    let chip = unsafe { CStr::from_ptr(params.chip) };
    let available = || {
        // SAFETY: the client passes the image of its counters, as it got it.
        unsafe { params.availability.cast::<[u8; 8]>().read_unaligned() == pm_sampling::AVAILABILITY }
    };
    let right = match params.kind {
        PM_SAMPLING => available(),
        RANGE_PROFILER => params.availability.is_null() || available(),
        _ => false,
    };
    if chip != CHIP || !right {
        return Err(result::INVALID_CHIP_NAME);
    }
    params.host = Box::into_raw(Box::new(Host { kind: params.kind, metrics: Vec::new() })).cast();
    Ok(())
});

function!(cuptiProfilerHostDeinitialize(params: HostDeinitialize) {
    // SAFETY: it was created above, and is not used again.
    drop(unsafe { Box::from_raw(params.host.cast::<Host>()) });
    Ok(())
});

function!(cuptiProfilerHostConfigAddMetrics(params: AddMetrics) {
    let host = host(params.host);
    host.metrics.extend(metrics(host.kind, params.names, params.count)?);
    Ok(())
});

function!(cuptiProfilerHostGetConfigImageSize(params: ConfigSize) {
    params.image_size = 1 + host(params.host).metrics.len();
    Ok(())
});

function!(cuptiProfilerHostGetConfigImage(params: ConfigImage) {
    let Host { kind, metrics } = host(params.host);
    if params.image_size != 1 + metrics.len() {
        return Err(result::INVALID_PARAMETER);
    }
    for (place, byte) in [*kind as u8].iter().chain(metrics.iter()).enumerate() {
        // SAFETY: the client's image is as large as it says.
        unsafe { *params.image.add(place) = *byte };
    }
    Ok(())
});

function!(cuptiProfilerHostGetNumOfPasses(params: Passes) {
    // SAFETY: the client's image is as large as it says.
    let image = unsafe { std::slice::from_raw_parts(params.image, params.image_size) };
    let (kind, metrics) = image.split_first().ok_or(result::INVALID_PARAMETER)?;
    let pm = u32::from(*kind) == PM_SAMPLING;
    params.passes = if pm { pm_sampling::passes(metrics) } else { range_profiler::passes(metrics) };
    Ok(())
});

function!(cuptiProfilerHostEvaluateToGpuValues(params: Evaluate) {
    let kind = host(params.host).kind;
    let image = (params.image, params.image_size);
    for (place, metric) in metrics(kind, params.names, params.count)?.into_iter().enumerate() {
        let value = if kind == PM_SAMPLING { pm_sampling::value } else { range_profiler::value };
        let value = value(image, params.index, metric)?;
        // SAFETY: the client passes room for as many values as names.
        unsafe { *params.values.add(place) = value };
    }
    Ok(())
});
