//! A time in which launches of a context can be measured, for one group of metrics.

use core::ffi::{CStr, c_char, c_void};
use std::ffi::CString;

use cupti::ids::result;
use cupti::limits::{GROUPS, METRICS, TIME};
use cupti::pm_sampling::{
    AddMetrics, Call, ChipName, ConfigImage, ConfigSize, Evaluate, HostDeinitialize, HostInitialize, Initialize, Passes,
};
use cupti::range_profiler::{
    DataInfo, DataInitialize, DataSize, Decode, Enable, Push, RANGE_PROFILER, SetConfig, Stop, Switch, USER_RANGE,
    USER_REPLAY,
};
use cupti::types::CuptiResult;

use super::launch;
use crate::library::RangeProfiler;
use crate::queue::QUEUE;
use crate::sys;

/// The launches that are measured in a window.
const RANGES: usize = 128;
/// Their names. Ranges of the same name would be one.
static RANGE_NAMES: [[u8; 4]; RANGES] = {
    let mut names = [[0; 4]; RANGES];
    let mut at = 0;
    while at < RANGES {
        names[at] = [b'0' + (at / 100) as u8, b'0' + (at / 10 % 10) as u8, b'0' + (at % 10) as u8, 0];
        at += 1;
    }
    names
};
/// The most bytes that CUPTI may ask for.
const MOST_BYTES: usize = 64 << 20;
/// The most groups: what does not fit into one makes others.
const MOST_GROUPS: usize = 24;

/// A call of CUPTI that failed, and its result.
pub struct Failed(pub &'static str, pub CuptiResult);

/// Calls a function of CUPTI.
///
/// # Safety
/// The pointers in `parameters` must be valid for the function.
unsafe fn call<P>(name: &'static str, function: Call<P>, parameters: &mut P) -> Result<(), Failed> {
    // SAFETY: the structure is valid, and the caller guarantees what it points to.
    match unsafe { function(parameters) } {
        result::SUCCESS => Ok(()),
        outcome => Err(Failed(name, outcome)),
    }
}

/// The groups of metrics of a chip: each fits into one pass. What CUPTI got for a window stays until the process ends: CUPTI 13.0
/// on an H200 crashed in a later memset when it was freed after the window.
#[derive(Default)]
pub struct Groups {
    chip: CString,
    all: Vec<Group>,
    /// Where CUPTI writes values: as large as for any group so far.
    image: Vec<u8>,
}

struct Group {
    metrics: Vec<u8>,
    /// `None` before the first window.
    host: Option<Host>,
}

impl Groups {
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Begins anew for another chip. The objects of the last one stay.
    fn of(&mut self, chip: &CStr) {
        if self.chip.as_c_str() != chip {
            let group = |(first, end): &(u8, u8)| Group { metrics: (*first..*end).collect(), host: None };
            let before = core::mem::replace(&mut self.all, GROUPS.iter().map(group).collect());
            core::mem::forget(before);
            self.chip = chip.into();
        }
    }

    /// Creates the host side of a group, if that was not done; false if the chip has none of its metrics. What does not fit is moved
    /// into a group at the end; what the chip lacks is left out.
    fn prepare(&mut self, profiler: &RangeProfiler, group: usize) -> Result<bool, Failed> {
        let Some(Group { metrics, host }) = self.all.get_mut(group) else { return Ok(false) };
        if host.is_some() || metrics.is_empty() {
            return Ok(host.is_some());
        }
        if let Ok(made) = Host::new(profiler, &self.chip, metrics)
            && made.passes == 1
        {
            *host = Some(made);
            return Ok(true);
        }
        let (mut fits, mut rest) = (Vec::new(), Vec::new());
        for metric in core::mem::take(metrics) {
            fits.push(metric);
            match Host::new(profiler, &self.chip, &fits) {
                Ok(made) if made.passes == 1 => *host = Some(made),
                Ok(_) if fits.len() > 1 => rest.extend(fits.pop()),
                Err(Failed(name, outcome)) if outcome != result::INVALID_METRIC_NAME && fits.len() == 1 => {
                    return Err(Failed(name, outcome));
                }
                // It needs more than one pass by itself, or the chip does not have it.
                _ => drop(fits.pop()),
            }
        }
        *metrics = fits;
        let some = host.is_some();
        if !rest.is_empty() && self.all.len() < MOST_GROUPS {
            self.all.push(Group { metrics: rest, host: None });
        }
        Ok(some)
    }

    /// Returns room for values, as long as the process lives.
    fn image(&mut self, size: usize) -> Result<(), Failed> {
        if self.image.len() < size {
            let larger = bytes(size)?;
            core::mem::forget(core::mem::replace(&mut self.image, larger));
        }
        self.image.fill(0);
        Ok(())
    }
}

/// CUPTI's object that knows metrics, and the configuration for them.
struct Host {
    host: *mut c_void,
    deinitialize: Call<HostDeinitialize>,
    config: Vec<u8>,
    passes: usize,
}

impl Host {
    fn new(profiler: &RangeProfiler, chip: &CStr, metrics: &[u8]) -> Result<Self, Failed> {
        let mut initialize = HostInitialize { kind: RANGE_PROFILER, chip: chip.as_ptr(), ..HostInitialize::new() };
        // SAFETY: the name is valid for the call.
        unsafe { call("cuptiProfilerHostInitialize", profiler.host_initialize, &mut initialize)? };
        let deinitialize = profiler.host_deinitialize;
        let mut made = Self { host: initialize.host, deinitialize, config: Vec::new(), passes: 0 };
        let names = names(metrics);
        let host = made.host;
        let mut add = AddMetrics { host, names: names.as_ptr(), count: names.len(), ..AddMetrics::new() };
        let mut size = ConfigSize { host, ..ConfigSize::new() };
        // SAFETY: the names are valid for their number.
        unsafe {
            call("cuptiProfilerHostConfigAddMetrics", profiler.add_metrics, &mut add)?;
            call("cuptiProfilerHostGetConfigImageSize", profiler.config_size, &mut size)?;
        }
        made.config = bytes(size.image_size)?;
        let (image, image_size) = (made.config.as_mut_ptr(), made.config.len());
        let mut get = ConfigImage { host, image_size, image, ..ConfigImage::new() };
        let mut passes = Passes { image_size, image, ..Passes::new() };
        // SAFETY: the image has the size that CUPTI requested.
        unsafe {
            call("cuptiProfilerHostGetConfigImage", profiler.config_image, &mut get)?;
            call("cuptiProfilerHostGetNumOfPasses", profiler.passes, &mut passes)?;
        }
        made.passes = passes.passes;
        Ok(made)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut end = HostDeinitialize { host: self.host, ..HostDeinitialize::new() };
        // SAFETY: the object is CUPTI's, and is not used again.
        unsafe { (self.deinitialize)(&mut end) };
    }
}

/// The names of metrics, and that of the time.
fn names(metrics: &[u8]) -> Vec<*const c_char> {
    let name = |metric: &u8| METRICS.get(usize::from(*metric)).map(|name| name.as_ptr());
    [TIME].iter().chain(metrics).filter_map(name).collect()
}

/// Returns room for an image.
fn bytes(size: usize) -> Result<Vec<u8>, Failed> {
    let mut image = Vec::new();
    if size > MOST_BYTES || image.try_reserve_exact(size).is_err() {
        return Err(Failed("an image", result::OUT_OF_MEMORY));
    }
    image.resize(size, 0);
    Ok(image)
}

/// The window.
pub struct Window {
    context: *mut c_void,
    group: usize,
    object: *mut c_void,
    /// Bytes of the image.
    image_size: usize,
    /// The launches that were measured, and whether each ran alone.
    ranges: Vec<(u32, bool)>,
    since: u64,
    /// CUPTI has refused a range.
    broken: bool,
}

// SAFETY: the pointers are to objects of CUPTI, which accepts them on any thread.
unsafe impl Send for Window {}
// SAFETY: as above; the memory is its own.
unsafe impl Send for Groups {}

impl Window {
    /// Begins a window for the first group from this one on that the chip has something of. The context must be current.
    pub fn open(
        profiler: &RangeProfiler,
        context: *mut c_void,
        groups: &mut Groups,
        first: usize,
    ) -> Result<Self, Failed> {
        let device = launch::device().ok_or(Failed("cuCtxGetDevice", result::NOT_INITIALIZED))?;
        let mut chip = ChipName { device, ..ChipName::new() };
        // SAFETY: CUPTI returns a text that it keeps.
        let chip = unsafe {
            call("cuptiProfilerInitialize", profiler.initialize, &mut Initialize::new())?;
            call("cuptiDeviceGetChipName", profiler.chip_name, &mut chip)?;
            CStr::from_ptr(chip.chip)
        };
        groups.of(chip);
        let mut group = first % groups.count();
        for tried in 0.. {
            if groups.prepare(profiler, group)? {
                break;
            }
            if tried == MOST_GROUPS {
                return Err(Failed("the metrics", result::INVALID_METRIC_NAME));
            }
            group = (group + 1) % groups.count();
        }
        let mut enable = Enable { context, ..Enable::new() };
        // SAFETY: CUPTI returns an object.
        unsafe { call("cuptiRangeProfilerEnable", profiler.enable, &mut enable)? };
        let ranges = Vec::with_capacity(RANGES);
        let object = enable.profiler;
        let mut window = Self { context, group, object, image_size: 0, ranges, since: sys::now(), broken: false };
        if let Err(failed) = window.start(profiler, groups) {
            window.disable(profiler);
            return Err(failed);
        }
        Ok(window)
    }

    fn start(&mut self, profiler: &RangeProfiler, groups: &mut Groups) -> Result<(), Failed> {
        let metrics = groups.all.get(self.group).map_or(&[][..], |group| &group.metrics);
        let names = names(metrics);
        let object = self.object;
        let mut size = DataSize {
            profiler: object,
            names: names.as_ptr(),
            count: names.len(),
            ranges: RANGES,
            nodes: RANGES as u32,
            ..DataSize::new()
        };
        // SAFETY: the names are valid for their number.
        unsafe { call("cuptiRangeProfilerGetCounterDataSize", profiler.data_size, &mut size)? };
        groups.image(size.image_size)?;
        let (image, image_size) = (groups.image.as_mut_ptr(), size.image_size);
        self.image_size = image_size;
        let Some(host) = groups.all.get(self.group).and_then(|group| group.host.as_ref()) else {
            return Err(Failed("the metrics", result::INVALID_METRIC_NAME));
        };
        let mut initialize = DataInitialize { profiler: object, image_size, image, ..DataInitialize::new() };
        let mut config = SetConfig {
            profiler: object,
            config_size: host.config.len(),
            config: host.config.as_ptr(),
            image_size,
            image,
            range: USER_RANGE,
            replay: USER_REPLAY,
            ranges: RANGES,
            levels: 1,
            first_level: 1,
            pass: 0,
            target_level: 1,
            ..SetConfig::new()
        };
        let mut start = Switch { profiler: object, ..Switch::new() };
        // SAFETY: the images are valid for their lengths, and are never freed.
        unsafe {
            call("cuptiRangeProfilerCounterDataImageInitialize", profiler.data_initialize, &mut initialize)?;
            call("cuptiRangeProfilerSetConfig", profiler.set_config, &mut config)?;
            call("cuptiRangeProfilerStart", profiler.start, &mut start)
        }
    }

    pub fn group(&self) -> usize {
        self.group
    }

    pub fn is_of(&self, context: *mut c_void) -> bool {
        self.context == context
    }

    pub fn age(&self) -> u64 {
        sys::now() - self.since
    }

    pub fn is_full(&self) -> bool {
        self.ranges.len() >= RANGES || self.broken
    }

    /// Begins to count for a launch; false if that is not possible.
    pub fn begin(&mut self, profiler: &RangeProfiler, correlation: u32) -> bool {
        if self.is_full() {
            return false;
        }
        let Some(name) = RANGE_NAMES.get(self.ranges.len()) else { return false };
        let mut push = Push { profiler: self.object, name: name.as_ptr().cast(), ..Push::new() };
        // SAFETY: the name is a text that is never freed.
        self.broken = unsafe { (profiler.push)(&mut push) } != result::SUCCESS;
        if !self.broken {
            self.ranges.push((correlation, false));
        }
        !self.broken
    }

    /// Ends counting for the launch.
    pub fn end(&mut self, profiler: &RangeProfiler, alone: bool) {
        let mut pop = Switch { profiler: self.object, ..Switch::new() };
        // SAFETY: the object is enabled.
        self.broken |= unsafe { (profiler.pop)(&mut pop) } != result::SUCCESS;
        if let Some(last) = self.ranges.last_mut() {
            last.1 = alone && !self.broken;
        }
    }

    /// Ends the window, and sends what was counted for each launch. Returns how many launches have no values.
    pub fn close(mut self, profiler: &RangeProfiler, groups: &Groups) -> u64 {
        let Some(_current) = launch::Current::new(self.context) else { return self.ranges.len() as u64 };
        let mut stop = Stop { profiler: self.object, ..Stop::new() };
        let mut decode = Decode { profiler: self.object, ..Decode::new() };
        // SAFETY: the object is enabled, and its image is valid.
        let ended = unsafe {
            call("cuptiRangeProfilerStop", profiler.stop, &mut stop)
                .and_then(|()| call("cuptiRangeProfilerDecodeData", profiler.decode, &mut decode))
        };
        let lost = match groups.all.get(self.group) {
            Some(Group { metrics, host: Some(host) }) if ended.is_ok() => self.send(profiler, groups, metrics, host),
            _ => self.ranges.len() as u64,
        };
        self.disable(profiler);
        lost
    }

    fn send(&self, profiler: &RangeProfiler, groups: &Groups, metrics: &[u8], host: &Host) -> u64 {
        let (image, image_size) = (groups.image.as_ptr(), self.image_size);
        let mut info = DataInfo { image, image_size, ..DataInfo::new() };
        // SAFETY: the image is valid for its length.
        if unsafe { (profiler.data_info)(&mut info) } != result::SUCCESS {
            return self.ranges.len() as u64;
        }
        let names = names(metrics);
        let mut values = vec![f64::NAN; names.len()];
        let mut lost = self.ranges.len().saturating_sub(info.ranges) as u64;
        for (index, (correlation, alone)) in self.ranges.iter().enumerate().take(info.ranges) {
            let mut evaluate = Evaluate {
                host: host.host,
                image,
                image_size,
                index,
                names: names.as_ptr(),
                count: names.len(),
                values: values.as_mut_ptr(),
                ..Evaluate::new()
            };
            // SAFETY: the image, the names and the values are valid for their lengths.
            let known = unsafe { (profiler.evaluate)(&mut evaluate) } == result::SUCCESS;
            if *alone && !(known && send(*correlation, metrics, &values)) {
                lost += 1;
            }
        }
        lost
    }

    fn disable(&mut self, profiler: &RangeProfiler) {
        let mut disable = Switch { profiler: self.object, ..Switch::new() };
        // SAFETY: the object is CUPTI's, and is not used again.
        unsafe { (profiler.disable)(&mut disable) };
    }
}

/// Queues the values of a launch; false if that is not possible.
fn send(correlation: u32, metrics: &[u8], values: &[f64]) -> bool {
    let mut bytes = Vec::with_capacity(values.len() * wire::KernelCounter::SIZE);
    for (metric, value) in [TIME].iter().chain(metrics).zip(values) {
        if value.is_finite() && *value >= 0.0 {
            let mut message = [0; wire::KernelCounter::SIZE];
            wire::KernelCounter { correlation, metric: *metric, value: value.to_bits() }.encode(&mut message);
            bytes.extend_from_slice(&message);
        }
    }
    !bytes.is_empty() && QUEUE.append(&bytes, 0)
}
