//! PM sampling: the counters of whole GPUs, computed from the kernels that libcuda notes in a file, whichever process ran
//! them. Time is that of the samples: what a sample contains does not depend on when it is decoded.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cupti::ids::result;
use cupti::pm_sampling::{
    AddMetrics, Availability, ChipName, ConfigImage, ConfigSize, DataInfo, DataInitialize, DataSize, Decode, Enable,
    Evaluate, HostDeinitialize, HostInitialize, IMAGE_FULL, Initialize, KEEP_OLDEST, PM_SAMPLING, Passes, SampleInfo,
    SetConfig, Switch, TIME_INTERVAL,
};

use super::{code, gpu};
use crate::nvml::meter::{Counters, Kernel};
use crate::script::{PmFault, Script};
use crate::sys;

/// The metrics, in the order of the values in an image. The last needs a second pass beside any other.
const METRICS: [&CStr; 11] = [
    c"sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
    c"sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
    c"dram__read_throughput.avg.pct_of_peak_sustained_elapsed",
    c"dram__write_throughput.avg.pct_of_peak_sustained_elapsed",
    c"dram__bytes.sum.per_second",
    c"sm__warps_active_realtime.avg.pct_of_peak_sustained_active",
    c"gr__cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"pcie__read_bytes.sum.per_second",
    c"pcie__write_bytes.sum.per_second",
    c"nvlrx__bytes.sum.per_second",
];
/// Bytes per second that are 100 % of the memory's peak.
const DRAM_PEAK: f64 = 4.8e12;
/// Bytes per second over PCIe, read and written.
const PCIE: [f64; 2] = [2.0 * 1_048_576.0, 3.0 * 1_048_576.0];

/// The availability of counters, as a client passes it on.
const AVAILABILITY: [u8; 8] = *b"simavail";
/// At the beginning of an image: a mark, the samples that fit, and those that are there; then the samples.
const HEADER: usize = 24;
/// A sample in an image: beginning, end, values.
const SAMPLE: usize = 8 * (2 + METRICS.len());
const MARK: u64 = u64::from_le_bytes(*b"simimage");

/// A GPU that is sampled. Its address is the client's object.
struct Sampled {
    gpu: u32,
    interval: u64,
    /// The beginning of the next sample.
    next: u64,
    started: bool,
    /// The first sample begins when sampling is enabled, and ends when it is started.
    first_end: Option<u64>,
    stopped: Option<u64>,
    full: bool,
}

static SAMPLED: Mutex<BTreeMap<usize, Sampled>> = Mutex::new(BTreeMap::new());
static KERNELS: Mutex<Option<Counters>> = Mutex::new(None);
static DECODINGS: AtomicU64 = AtomicU64::new(0);

fn sampled() -> MutexGuard<'static, BTreeMap<usize, Sampled>> {
    SAMPLED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of<R>(object: *mut c_void, work: impl FnOnce(&mut Sampled) -> Result<R, u32>) -> Result<R, u32> {
    work(sampled().get_mut(&object.addr()).ok_or(result::INVALID_PARAMETER)?)
}

/// Checks the size of a structure, and does the work.
macro_rules! function {
    ($name:ident($params:ident: $type:ident) $work:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(params: *mut $type) -> u32 {
            // SAFETY: the client passes its structure.
            let params = unsafe { &mut *params };
            if params.size != $type::SIZE || !params.private.is_null() {
                return result::INVALID_PARAMETER;
            }
            fn work($params: &mut $type) -> Result<(), u32> {
                $work
            }
            code(work(params))
        }
    };
}

/// Returns the metrics with these names.
fn metrics(names: *const *const c_char, count: usize) -> Result<Vec<usize>, u32> {
    let metric = |place| {
        // SAFETY: the client passes this many names.
        let name = unsafe { CStr::from_ptr(*names.add(place)) };
        METRICS.iter().position(|known| *known == name).ok_or(result::INVALID_METRIC_NAME)
    };
    (0..count).map(metric).collect()
}

/// What kernels use in a part of the time of a GPU, by metric.
fn values(script: &Script, kernels: &[Kernel], gpu: u32, start: u64, end: u64) -> [f64; METRICS.len()] {
    let mut values = [0.0; METRICS.len()];
    for kernel in kernels.iter().filter(|kernel| kernel.gpu == gpu) {
        let ran = kernel.end.min(end).saturating_sub(kernel.start.max(start));
        let share = ran as f64 / (end - start) as f64;
        let used = kernel.entry.and_then(|entry| script.pm.get(entry)).map_or([0; 5], |(_, used)| *used);
        for (value, percent) in values.iter_mut().zip(used) {
            *value += share * f64::from(percent);
        }
        values[7] += share * 100.0;
    }
    values[5] = (values[3] + values[4]) / 100.0 * DRAM_PEAK;
    values[6] = values[0] / 2.0;
    (values[8], values[9]) = (PCIE[0], PCIE[1]);
    values
}

fn put(image: *mut u8, at: usize, word: u64) {
    // SAFETY: the client's image has room for this word.
    unsafe { ptr::copy_nonoverlapping(word.to_le_bytes().as_ptr(), image.add(at), 8) };
}

fn get(image: *const u8, at: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the client's image has this word.
    unsafe { ptr::copy_nonoverlapping(image.add(at), bytes.as_mut_ptr(), 8) };
    u64::from_le_bytes(bytes)
}

/// Returns how many samples an image has.
fn count(image: *const u8, size: usize) -> Result<usize, u32> {
    if image.is_null() || size < HEADER || get(image, 0) != MARK {
        return Err(result::INVALID_PARAMETER);
    }
    Ok(get(image, 16) as usize)
}

function!(cuptiProfilerInitialize(params: Initialize) {
    let _ = params;
    gpu().map(|_| ())
});

function!(cuptiDeviceGetChipName(params: ChipName) {
    if params.device >= (gpu()?.script)().devices as usize {
        return Err(result::INVALID_PARAMETER);
    }
    params.chip = c"SIM100".as_ptr();
    Ok(())
});

function!(cuptiPmSamplingGetCounterAvailability(params: Availability) {
    if (gpu()?.script)().pm_fault == Some(PmFault::Busy) {
        return Err(result::HARDWARE_BUSY);
    }
    if params.image.is_null() {
        params.image_size = AVAILABILITY.len();
        return Ok(());
    }
    if params.image_size < AVAILABILITY.len() {
        return Err(result::INVALID_PARAMETER);
    }
    // SAFETY: the client's image is as large as it says.
    unsafe { ptr::copy_nonoverlapping(AVAILABILITY.as_ptr(), params.image, AVAILABILITY.len()) };
    Ok(())
});

function!(cuptiProfilerHostInitialize(params: HostInitialize) {
    // SAFETY: the client passes the name of the chip and the image of its counters, as it got them.
    let known = unsafe {
        CStr::from_ptr(params.chip) == c"SIM100" && params.availability.cast::<[u8; 8]>().read_unaligned() == AVAILABILITY
    };
    if !known || params.kind != PM_SAMPLING {
        return Err(result::INVALID_CHIP_NAME);
    }
    params.host = Box::into_raw(Box::<Vec<usize>>::default()).cast();
    Ok(())
});

function!(cuptiProfilerHostDeinitialize(params: HostDeinitialize) {
    // SAFETY: it was created above, and is not used again.
    drop(unsafe { Box::from_raw(params.host.cast::<Vec<usize>>()) });
    Ok(())
});

function!(cuptiProfilerHostConfigAddMetrics(params: AddMetrics) {
    let added = metrics(params.names, params.count)?;
    // SAFETY: it was created above.
    unsafe { &mut *params.host.cast::<Vec<usize>>() }.extend(added);
    Ok(())
});

function!(cuptiProfilerHostGetConfigImageSize(params: ConfigSize) {
    // SAFETY: it was created above.
    params.image_size = unsafe { &*params.host.cast::<Vec<usize>>() }.len();
    Ok(())
});

function!(cuptiProfilerHostGetConfigImage(params: ConfigImage) {
    // SAFETY: it was created above.
    let metrics = unsafe { &*params.host.cast::<Vec<usize>>() };
    if params.image_size != metrics.len() {
        return Err(result::INVALID_PARAMETER);
    }
    for (place, metric) in metrics.iter().enumerate() {
        // SAFETY: the client's image is as large as it says.
        unsafe { *params.image.add(place) = *metric as u8 };
    }
    Ok(())
});

function!(cuptiProfilerHostGetNumOfPasses(params: Passes) {
    // SAFETY: the client's image is as large as it says.
    let image = unsafe { std::slice::from_raw_parts(params.image, params.image_size) };
    params.passes = if image.contains(&(METRICS.len() as u8 - 1)) { 2 } else { 1 };
    Ok(())
});

function!(cuptiPmSamplingEnable(params: Enable) {
    let script = (gpu()?.script)();
    match script.pm_fault {
        Some(PmFault::Permission) => return Err(result::INSUFFICIENT_PRIVILEGES),
        Some(PmFault::Unsupported) => return Err(result::NOT_SUPPORTED),
        Some(PmFault::Busy | PmFault::Crash) | None => {}
    }
    if let Some(path) = &script.pm_owner {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        let line = format!("{} {}\n", field("Uid:").unwrap_or("?"), field("CapEff:").unwrap_or("?"));
        let _ = std::fs::write(path, line);
    }
    let mut all = sampled();
    let gpu = params.device as u32;
    if script.mig > 0 {
        return Err(result::MIG_DEVICE_NOT_SUPPORTED);
    }
    if gpu >= script.devices || all.values().any(|sampled| sampled.gpu == gpu) {
        return Err(result::HARDWARE_BUSY);
    }
    let object = 0x1000 + params.device;
    let next = sys::now();
    let new = Sampled { gpu, interval: 0, next, started: false, first_end: None, stopped: None, full: false };
    all.insert(object, new);
    params.sampling = ptr::without_provenance_mut(object);
    Ok(())
});

function!(cuptiPmSamplingDisable(params: Switch) {
    sampled().remove(&params.sampling.addr()).map(|_| ()).ok_or(result::INVALID_PARAMETER)
});

function!(cuptiPmSamplingSetConfig(params: SetConfig) {
    let is_right = params.trigger == TIME_INTERVAL && params.append == KEEP_OLDEST && params.config_size > 0;
    if !is_right || params.interval < 1000 || params.hardware_buffer == 0 {
        return Err(result::INVALID_PARAMETER);
    }
    of(params.sampling, |sampled| {
        sampled.interval = params.interval;
        Ok(())
    })
});

function!(cuptiPmSamplingGetCounterDataSize(params: DataSize) {
    metrics(params.names, params.count)?;
    params.image_size = HEADER + params.samples as usize * SAMPLE;
    of(params.sampling, |_| Ok(()))
});

function!(cuptiPmSamplingCounterDataImageInitialize(params: DataInitialize) {
    if params.image_size < HEADER {
        return Err(result::INVALID_PARAMETER);
    }
    put(params.image, 0, MARK);
    put(params.image, 8, ((params.image_size - HEADER) / SAMPLE) as u64);
    put(params.image, 16, 0);
    of(params.sampling, |_| Ok(()))
});

function!(cuptiPmSamplingStart(params: Switch) {
    of(params.sampling, |sampled| {
        if sampled.interval == 0 || sampled.started {
            return Err(code::INVALID_OPERATION);
        }
        sampled.started = true;
        sampled.first_end = Some(sys::now().max(sampled.next + 1));
        Ok(())
    })
});

function!(cuptiPmSamplingStop(params: Switch) {
    of(params.sampling, |sampled| {
        sampled.stopped = Some(sys::now());
        Ok(())
    })
});

function!(cuptiPmSamplingDecodeData(params: Decode) {
    let script = (gpu()?.script)();
    let decoding = DECODINGS.fetch_add(1, Ordering::Relaxed) + 1;
    if script.pm_fault == Some(PmFault::Crash) && decoding == 3 {
        std::process::abort();
    }
    let room = (params.image_size - HEADER) / SAMPLE;
    let mut there = count(params.image, params.image_size)?;
    let mut known = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let (now, kernels) = known.get_or_insert_default().kernels(script);
    of(params.sampling, |sampled| {
        sampled.full |= script.pm_overflow == Some(decoding);
        if sampled.full {
            params.overflow = 1;
            return Err(result::OUT_OF_MEMORY);
        }
        let until = sampled.stopped.unwrap_or(now).min(now);
        loop {
            let (start, end) = (sampled.next, sampled.first_end.unwrap_or(sampled.next + sampled.interval));
            if end > until {
                params.reason = 2;
                break;
            }
            if there == room {
                params.reason = IMAGE_FULL;
                break;
            }
            let at = HEADER + there * SAMPLE;
            put(params.image, at, start);
            put(params.image, at + 8, end);
            for (place, value) in values(script, kernels, sampled.gpu, start, end).into_iter().enumerate() {
                put(params.image, at + 16 + 8 * place, value.to_bits());
            }
            (sampled.next, sampled.first_end) = (end, None);
            there += 1;
        }
        put(params.image, 16, there as u64);
        Ok(())
    })
});

function!(cuptiPmSamplingGetCounterDataInfo(params: DataInfo) {
    params.completed = count(params.image, params.image_size)?;
    (params.populated, params.total) = (params.completed, get(params.image, 8) as usize);
    Ok(())
});

function!(cuptiPmSamplingCounterDataGetSampleInfo(params: SampleInfo) {
    if params.index >= count(params.image, params.image_size)? {
        return Err(result::INVALID_PARAMETER);
    }
    // CUPTI's clock is the wall clock.
    let difference = sys::realtime() - sys::now();
    let at = HEADER + params.index * SAMPLE;
    (params.start, params.end) = (get(params.image, at) + difference, get(params.image, at + 8) + difference);
    Ok(())
});

function!(cuptiProfilerHostEvaluateToGpuValues(params: Evaluate) {
    if params.index >= count(params.image, params.image_size)? {
        return Err(result::INVALID_PARAMETER);
    }
    for (place, metric) in metrics(params.names, params.count)?.into_iter().enumerate() {
        let value = f64::from_bits(get(params.image, HEADER + params.index * SAMPLE + 16 + 8 * metric));
        // SAFETY: the client passes room for as many values as names.
        unsafe { *params.values.add(place) = value };
    }
    Ok(())
});
