//! PM sampling of one GPU.

use std::ffi::{CStr, c_char, c_void};

use cupti::{
    ids::result,
    pm_sampling::{
        AddMetrics, Availability, ChipName, ConfigImage, ConfigSize, DataInfo, DataInitialize, DataSize, Decode,
        Enable, Evaluate, HostDeinitialize, HostInitialize, IMAGE_FULL, KEEP_OLDEST, PM_SAMPLING, Passes, SampleInfo,
        SetConfig, Switch, TIME_INTERVAL,
    },
};

use super::{
    functions::{Cupti, call},
    metrics::METRICS,
    record::{Failure, Step},
};

/// Bytes of device memory in which the hardware keeps samples until they are decoded.
const HARDWARE_BUFFER: usize = 16 << 20;
/// Samples in an image: 13 MB on an H200. Initialising it takes time in proportion, at every decoding.
const IMAGE_SAMPLES: u32 = 500;
/// The most images at a time.
const MOST_IMAGES: usize = 20;
/// The most bytes that CUPTI may ask for.
const MOST_BYTES: usize = 1 << 30;

/// A GPU that is sampled.
pub struct Device {
    index: usize,
    interval: u64,
    /// The numbers of its metrics.
    pub metrics: Vec<u32>,
    /// CUPTI may refer to it as long as the object of the host side exists.
    _availability: Vec<u8>,
    host: *mut c_void,
    config: Vec<u8>,
    sampling: *mut c_void,
    image: Vec<u8>,
    /// The next sample began when sampling was enabled: it is as long as that took.
    first: bool,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    /// The hardware buffer was full.
    pub overflow: bool,
}

impl Device {
    /// Chooses the metrics of a GPU, and starts to sample them.
    pub fn open(cupti: &Cupti, index: usize, interval: u64) -> Result<Self, Failure> {
        let mut chip = ChipName { device: index, ..ChipName::new() };
        // SAFETY: CUPTI returns a text that it keeps.
        unsafe { call(Step::Chip, cupti.chip_name, &mut chip)? };
        let availability = availability(cupti, index)?;
        let mut metrics: Vec<u32> = Vec::new();
        for number in 0..METRICS.len() as u32 {
            metrics.push(number);
            match configure(cupti, chip.chip, &availability, &metrics) {
                Ok((host, _, passes)) => {
                    free(cupti, host);
                    if passes != 1 {
                        metrics.pop();
                    }
                }
                Err(failure) if number == 0 && failure.code != result::INVALID_METRIC_NAME => return Err(failure),
                Err(_) => {
                    metrics.pop();
                }
            }
        }
        if metrics.is_empty() {
            return Err(Failure { step: Step::Metrics, code: result::NOT_SUPPORTED });
        }
        let (host, config, _) = configure(cupti, chip.chip, &availability, &metrics)?;
        let sampling = std::ptr::null_mut();
        let (_availability, image) = (availability, Vec::new());
        let mut device = Self { index, interval, metrics, _availability, host, config, sampling, image, first: true };
        device.begin(cupti)?;
        Ok(device)
    }

    fn names(&self) -> Vec<*const c_char> {
        names(&self.metrics)
    }

    /// Enables sampling and starts it.
    fn begin(&mut self, cupti: &Cupti) -> Result<(), Failure> {
        let mut enable = Enable { device: self.index, ..Enable::new() };
        // SAFETY: CUPTI returns an object.
        unsafe { call(Step::Enable, cupti.enable, &mut enable)? };
        self.sampling = enable.sampling;
        let mut config = SetConfig {
            sampling: self.sampling,
            config_size: self.config.len(),
            config: self.config.as_ptr(),
            hardware_buffer: HARDWARE_BUFFER,
            interval: self.interval,
            trigger: TIME_INTERVAL,
            append: KEEP_OLDEST,
            ..SetConfig::new()
        };
        // SAFETY: the configuration is valid for its length.
        unsafe { call(Step::Configure, cupti.set_config, &mut config)? };
        let names = self.names();
        let mut size = DataSize {
            sampling: self.sampling,
            names: names.as_ptr(),
            count: names.len(),
            samples: IMAGE_SAMPLES,
            ..DataSize::new()
        };
        // SAFETY: the names are valid for their number.
        unsafe { call(Step::Image, cupti.data_size, &mut size)? };
        self.image = bytes(size.image_size, Step::Image)?;
        self.initialize_image(cupti)?;
        let mut start = Switch { sampling: self.sampling, ..Switch::new() };
        // SAFETY: the object is CUPTI's.
        unsafe { call(Step::Start, cupti.start, &mut start)? };
        self.first = true;
        Ok(())
    }

    fn initialize_image(&mut self, cupti: &Cupti) -> Result<(), Failure> {
        let (image_size, image) = (self.image.len(), self.image.as_mut_ptr());
        let mut initialize = DataInitialize { sampling: self.sampling, image_size, image, ..DataInitialize::new() };
        // SAFETY: the image is valid for its length.
        unsafe { call(Step::Image, cupti.data_initialize, &mut initialize) }
    }

    /// Passes on the samples since the last call: beginning and end by CUPTI's clock, and the values.
    pub fn read(
        &mut self,
        cupti: &Cupti,
        sample: &mut dyn FnMut(u64, u64, &mut dyn Iterator<Item = u32>),
    ) -> Result<Read, Failure> {
        let mut read = Read::default();
        for _ in 0..MOST_IMAGES {
            let (image_size, image) = (self.image.len(), self.image.as_mut_ptr());
            let mut decode = Decode { sampling: self.sampling, image, image_size, ..Decode::new() };
            // SAFETY: the image is valid for its length.
            let decoded = unsafe { call(Step::Decode, cupti.decode, &mut decode) };
            read.overflow |= decode.overflow != 0;
            match decoded {
                Ok(()) => {}
                Err(Failure { code: result::OUT_OF_MEMORY, .. }) => {
                    read.overflow = true;
                    break;
                }
                Err(failure) => return Err(failure),
            }
            self.evaluate(cupti, sample)?;
            self.initialize_image(cupti)?;
            if decode.reason != IMAGE_FULL {
                break;
            }
        }
        if read.overflow {
            self.end(cupti);
            self.begin(cupti)?;
        }
        Ok(read)
    }

    /// Passes on the samples of the image.
    fn evaluate(
        &mut self,
        cupti: &Cupti,
        sample: &mut dyn FnMut(u64, u64, &mut dyn Iterator<Item = u32>),
    ) -> Result<(), Failure> {
        let (image, image_size) = (self.image.as_ptr(), self.image.len());
        let mut info = DataInfo { image, image_size, ..DataInfo::new() };
        // SAFETY: the image is valid for its length.
        unsafe { call(Step::Image, cupti.data_info, &mut info)? };
        let names = self.names();
        let mut values = vec![0.0; names.len()];
        for index in 0..info.completed.min(IMAGE_SAMPLES as usize) {
            let mut times = SampleInfo { sampling: self.sampling, image, image_size, index, ..SampleInfo::new() };
            let mut evaluate = Evaluate {
                host: self.host,
                image,
                image_size,
                index,
                names: names.as_ptr(),
                count: names.len(),
                values: values.as_mut_ptr(),
                ..Evaluate::new()
            };
            // SAFETY: the image, the names and the values are valid for their lengths.
            unsafe {
                call(Step::Image, cupti.sample_info, &mut times)?;
                call(Step::Evaluate, cupti.evaluate, &mut evaluate)?;
            }
            if std::mem::take(&mut self.first) {
                continue;
            }
            let kinds = self.metrics.iter().map(|number| METRICS[*number as usize].1);
            sample(times.start, times.end, &mut kinds.zip(&values).map(|(kind, value)| kind.hundredths(*value)));
        }
        Ok(())
    }

    /// Stops sampling. What the hardware still has can be read afterwards.
    pub fn stop(&mut self, cupti: &Cupti) {
        let mut stop = Switch { sampling: self.sampling, ..Switch::new() };
        // SAFETY: the object is CUPTI's. A failure means that it was stopped.
        let _ = unsafe { call(Step::Start, cupti.stop, &mut stop) };
    }

    /// Stops sampling, and gives the counters back.
    pub fn end(&mut self, cupti: &Cupti) {
        self.stop(cupti);
        let mut disable = Switch { sampling: self.sampling, ..Switch::new() };
        // SAFETY: the object is CUPTI's, and is not used again.
        let _ = unsafe { call(Step::Enable, cupti.disable, &mut disable) };
    }
}

/// Checks that the counters of a GPU can be used: nobody else uses them, and it is permitted.
pub fn check(cupti: &Cupti, index: usize) -> Result<(), Failure> {
    availability(cupti, index).map(drop)
}

fn names(metrics: &[u32]) -> Vec<*const c_char> {
    let name = |number: &u32| METRICS.get(*number as usize).map(|(name, _): &(&CStr, _)| name.as_ptr());
    metrics.iter().filter_map(name).collect()
}

/// Returns the image of the counters that a GPU has.
fn availability(cupti: &Cupti, device: usize) -> Result<Vec<u8>, Failure> {
    let mut get = Availability { device, ..Availability::new() };
    // SAFETY: without an image, CUPTI returns its size.
    unsafe { call(Step::Availability, cupti.availability, &mut get)? };
    let mut image = bytes(get.image_size, Step::Availability)?;
    get.image = image.as_mut_ptr();
    // SAFETY: the image has the size that CUPTI requested.
    unsafe { call(Step::Availability, cupti.availability, &mut get)? };
    Ok(image)
}

/// Returns the object of the host side for metrics, the image of the configuration, and how many passes it needs.
fn configure(
    cupti: &Cupti,
    chip: *const c_char,
    availability: &[u8],
    metrics: &[u32],
) -> Result<(*mut c_void, Vec<u8>, usize), Failure> {
    let mut host =
        HostInitialize { kind: PM_SAMPLING, chip, availability: availability.as_ptr(), ..HostInitialize::new() };
    // SAFETY: the name of the chip is CUPTI's, and the image as large as CUPTI requested.
    unsafe { call(Step::Metrics, cupti.host_initialize, &mut host)? };
    let configured = configuration(cupti, host.host, metrics);
    if configured.is_err() {
        free(cupti, host.host);
    }
    configured.map(|(image, passes)| (host.host, image, passes))
}

fn configuration(cupti: &Cupti, host: *mut c_void, metrics: &[u32]) -> Result<(Vec<u8>, usize), Failure> {
    let names = names(metrics);
    let mut add = AddMetrics { host, names: names.as_ptr(), count: names.len(), ..AddMetrics::new() };
    let mut size = ConfigSize { host, ..ConfigSize::new() };
    // SAFETY: the names are valid for their number.
    unsafe {
        call(Step::Metrics, cupti.add_metrics, &mut add)?;
        call(Step::Metrics, cupti.config_size, &mut size)?;
    }
    let mut image = bytes(size.image_size, Step::Metrics)?;
    let mut get = ConfigImage { host, image_size: image.len(), image: image.as_mut_ptr(), ..ConfigImage::new() };
    let mut passes = Passes { image_size: image.len(), image: image.as_mut_ptr(), ..Passes::new() };
    // SAFETY: the image has the size that CUPTI requested.
    unsafe {
        call(Step::Metrics, cupti.config_image, &mut get)?;
        call(Step::Metrics, cupti.passes, &mut passes)?;
    }
    Ok((image, passes.passes))
}

fn free(cupti: &Cupti, host: *mut c_void) {
    let mut end = HostDeinitialize { host, ..HostDeinitialize::new() };
    // SAFETY: the object is CUPTI's, and is not used again.
    let _ = unsafe { call(Step::Metrics, cupti.host_deinitialize, &mut end) };
}

/// Returns room for an image.
fn bytes(size: usize, step: Step) -> Result<Vec<u8>, Failure> {
    if size > MOST_BYTES { Err(Failure { step, code: result::OUT_OF_MEMORY }) } else { Ok(vec![0; size]) }
}
