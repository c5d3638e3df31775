//! The range profiler: counters of single kernels, as the script defines them.
//!
//! As CUPTI 13.0 on an H200: a range is longer than its kernel; a kernel of CUPTI's own follows each, and has a record; ranges of the
//! same name are one; only the first configuration of an object counts. Where a capture would fail, because a range begins
//! meanwhile, this ends the process.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cupti::ids::result;
use cupti::limits::{METRICS, SEPARATOR, TIME};
use cupti::range_profiler::{
    DataInfo, DataInitialize, DataSize, Decode, Enable, Push, SetConfig, Stop, Switch, USER_RANGE, USER_REPLAY,
};

use super::profiler::{self, function, get, put};
use super::{code, gpu};
use crate::activity::{Activity, Detail};
use crate::script::PmFault;

/// How much longer than its kernel a range is, in nanoseconds.
const LONGER: u64 = 10_000;
/// How long the kernel takes that separates ranges.
const SEPARATES: u64 = 80_000;
/// A metric that this chip does not have, and two that do not fit into one pass.
const UNKNOWN: u8 = 16;
const APART: [u8; 2] = [4, 12];

/// At the beginning of an image: a mark, the ranges that fit, and those that are there; then the values of each.
const HEADER: usize = 24;
const RANGE: usize = 8 * METRICS.len();
const MARK: u64 = u64::from_le_bytes(*b"simrange");

/// A context that is profiled. The id of the context is the client's object.
#[derive(Default)]
struct Profiled {
    /// The metrics; empty before the first configuration.
    metrics: Vec<u8>,
    /// The address of the client's image.
    image: usize,
    most: usize,
    started: bool,
    /// The names of the ranges, and the values of each.
    ranges: Vec<(Vec<u8>, [f64; METRICS.len()])>,
    /// The range that is open.
    open: Option<usize>,
}

static PROFILED: Mutex<BTreeMap<usize, Profiled>> = Mutex::new(BTreeMap::new());

fn profiled() -> MutexGuard<'static, BTreeMap<usize, Profiled>> {
    PROFILED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of<R>(object: *mut c_void, work: impl FnOnce(&mut Profiled) -> Result<R, u32>) -> Result<R, u32> {
    work(profiled().get_mut(&object.addr()).ok_or(result::INVALID_PARAMETER)?)
}

/// Returns the number of a metric.
pub fn metric(name: &CStr) -> Option<u8> {
    METRICS.iter().position(|known| *known == name).map(|place| place as u8).filter(|metric| *metric != UNKNOWN)
}

/// How many passes metrics need.
pub fn passes(metrics: &[u8]) -> usize {
    1 + usize::from(APART.iter().all(|metric| metrics.contains(metric)))
}

/// Returns the value of a metric for a range of an image.
pub fn value((image, _): (*const u8, usize), index: usize, metric: u8) -> Result<f64, u32> {
    if image.is_null() || get(image, 0) != MARK || index as u64 >= get(image, 16) {
        return Err(result::INVALID_PARAMETER);
    }
    Ok(f64::from_bits(get(image, HEADER + index * RANGE + 8 * usize::from(metric))))
}

/// A kernel was launched. Returns the record of the kernel that separates its range from the next one, if it is in one.
pub fn launched(activity: &Activity) -> Option<Activity> {
    let Detail::Kernel { name, grid, block, shared, cooperative, grid_id } = activity.detail else { return None };
    if name.is_null() {
        return None;
    }
    let mut all = profiled();
    let profiled = all.get_mut(&(activity.context as usize)).filter(|profiled| profiled.open.is_some())?;
    // SAFETY: the names of kernels are never freed.
    let text = unsafe { CStr::from_ptr::<'static>(name) };
    let script = (gpu().ok()?.script)();
    let ran = activity.end - activity.start;
    let (_, values) = profiled.ranges.get_mut(profiled.open?)?;
    values[usize::from(TIME)] += (ran + LONGER) as f64;
    let whole = values[usize::from(TIME)];
    for (metric, used) in script.counters_of_run(text.to_bytes()) {
        let name = METRICS.get(metric).map(|name| name.to_bytes()).unwrap_or_default();
        let scaled = if name.ends_with(b"_elapsed") { used * ran as f64 / whole } else { used };
        if let Some(value) = values.get_mut(metric) {
            *value += scaled;
        }
    }
    let detail = Detail::Kernel { name: SEPARATOR.as_ptr(), grid, block, shared, cooperative, grid_id };
    Some(Activity { start: activity.end, end: activity.end + SEPARATES, detail, ..*activity })
}

function!(cuptiRangeProfilerEnable(params: Enable) {
    let gpu = gpu()?;
    match (gpu.script)().pm_fault {
        Some(PmFault::Permission) => return Err(result::INSUFFICIENT_PRIVILEGES),
        Some(PmFault::Unsupported) => return Err(result::NOT_SUPPORTED),
        Some(PmFault::Busy) => return Err(result::HARDWARE_BUSY),
        Some(PmFault::Crash) | None => {}
    }
    let (context, _) = (gpu.context_ids)(params.context).ok_or(result::INVALID_PARAMETER)?;
    let mut all = profiled();
    if all.contains_key(&(context as usize)) {
        return Err(result::HARDWARE_BUSY);
    }
    all.insert(context as usize, Profiled::default());
    params.profiler = ptr::without_provenance_mut(context as usize);
    Ok(())
});

function!(cuptiRangeProfilerDisable(params: Switch) {
    profiled().remove(&params.profiler.addr()).map(|_| ()).ok_or(result::INVALID_PARAMETER)
});

function!(cuptiRangeProfilerGetCounterDataSize(params: DataSize) {
    profiler::metrics(params.names, params.count, metric)?;
    params.image_size = HEADER + params.ranges * RANGE;
    of(params.profiler, |_| Ok(()))
});

function!(cuptiRangeProfilerCounterDataImageInitialize(params: DataInitialize) {
    if params.image_size < HEADER {
        return Err(result::INVALID_PARAMETER);
    }
    put(params.image, 0, MARK);
    put(params.image, 8, ((params.image_size - HEADER) / RANGE) as u64);
    put(params.image, 16, 0);
    of(params.profiler, |_| Ok(()))
});

function!(cuptiRangeProfilerSetConfig(params: SetConfig) {
    let right = params.range == USER_RANGE && params.replay == USER_REPLAY && params.ranges > 0 && params.levels == 1;
    if !right || params.config.is_null() || params.image.is_null() {
        return Err(result::INVALID_PARAMETER);
    }
    // SAFETY: the client's configuration is as long as it says.
    let config = unsafe { std::slice::from_raw_parts(params.config, params.config_size) };
    let metrics = config.get(1..).unwrap_or_default();
    if passes(metrics) != 1 {
        return Err(result::NOT_SUPPORTED);
    }
    of(params.profiler, |profiled| {
        if profiled.metrics.is_empty() {
            profiled.metrics = metrics.to_vec();
        }
        (profiled.image, profiled.most) = (params.image.expose_provenance(), params.ranges);
        Ok(())
    })
});

function!(cuptiRangeProfilerStart(params: Switch) {
    of(params.profiler, |profiled| {
        if profiled.metrics.is_empty() || profiled.started {
            return Err(code::INVALID_OPERATION);
        }
        profiled.started = true;
        Ok(())
    })
});

function!(cuptiRangeProfilerStop(params: Stop) {
    params.last = 1;
    of(params.profiler, |profiled| {
        profiled.started = false;
        if profiled.open.is_some() { Err(code::INVALID_OPERATION) } else { Ok(()) }
    })
});

function!(cuptiRangeProfilerPushRange(params: Push) {
    if (gpu()?.captures)() > 0 {
        eprintln!("simulated CUPTI: a range began while a stream was captured");
        std::process::abort();
    }
    // SAFETY: the client passes a name.
    let name = unsafe { CStr::from_ptr(params.name) }.to_bytes();
    of(params.profiler, |profiled| {
        if !profiled.started || profiled.open.is_some() {
            return Err(code::INVALID_OPERATION);
        }
        let known = profiled.ranges.iter().position(|(known, _)| known == name);
        if known.is_none() {
            if profiled.ranges.len() == profiled.most {
                return Err(result::OUT_OF_MEMORY);
            }
            profiled.ranges.push((name.into(), [0.0; METRICS.len()]));
        }
        profiled.open = known.or(profiled.ranges.len().checked_sub(1));
        Ok(())
    })
});

function!(cuptiRangeProfilerPopRange(params: Switch) {
    of(params.profiler, |profiled| profiled.open.take().map(|_| ()).ok_or(code::INVALID_OPERATION))
});

function!(cuptiRangeProfilerDecodeData(params: Decode) {
    of(params.profiler, |profiled| {
        let image = ptr::with_exposed_provenance_mut::<u8>(profiled.image);
        if profiled.started || image.is_null() || get(image, 0) != MARK {
            return Err(code::INVALID_OPERATION);
        }
        for (index, (_, values)) in profiled.ranges.iter().enumerate() {
            for (metric, value) in values.iter().enumerate() {
                // What was not configured was not counted.
                let value = if profiled.metrics.contains(&(metric as u8)) { *value } else { f64::NAN };
                put(image, HEADER + index * RANGE + 8 * metric, value.to_bits());
            }
        }
        put(image, 16, profiled.ranges.len() as u64);
        Ok(())
    })
});

function!(cuptiRangeProfilerGetCounterDataInfo(params: DataInfo) {
    if params.image.is_null() || get(params.image, 0) != MARK {
        return Err(result::INVALID_PARAMETER);
    }
    params.ranges = get(params.image, 16) as usize;
    Ok(())
});
