//! PM sampling: the counters of whole GPUs, computed from the kernels that libcuda notes in a file, whichever process ran
//! them. Time is that of the samples: what a sample contains does not depend on when it is decoded.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cupti::ids::result;
use cupti::pm_sampling::{
    Availability, DataInfo, DataInitialize, DataSize, Decode, Enable, IMAGE_FULL, KEEP_OLDEST, SampleInfo, SetConfig,
    Switch, TIME_INTERVAL,
};

use super::profiler::{self, function, get, put};
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
pub const AVAILABILITY: [u8; 8] = *b"simavail";
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

/// Returns the number of a metric.
pub fn metric(name: &CStr) -> Option<u8> {
    METRICS.iter().position(|known| *known == name).map(|place| place as u8)
}

/// How many passes metrics need.
pub fn passes(metrics: &[u8]) -> usize {
    if metrics.contains(&(METRICS.len() as u8 - 1)) { 2 } else { 1 }
}

/// Returns the value of a metric in a sample of an image.
pub fn value((image, size): (*const u8, usize), index: usize, metric: u8) -> Result<f64, u32> {
    if index >= count(image, size)? {
        return Err(result::INVALID_PARAMETER);
    }
    Ok(f64::from_bits(get(image, HEADER + index * SAMPLE + 16 + 8 * usize::from(metric))))
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

/// Returns how many samples an image has.
fn count(image: *const u8, size: usize) -> Result<usize, u32> {
    if image.is_null() || size < HEADER || get(image, 0) != MARK {
        return Err(result::INVALID_PARAMETER);
    }
    Ok(get(image, 16) as usize)
}

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
    profiler::metrics(params.names, params.count, metric)?;
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
