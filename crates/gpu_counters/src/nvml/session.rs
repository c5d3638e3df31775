//! An initialised library and its GPUs.

use std::path::Path;

use super::{
    abi::{Functions, NOT_SUPPORTED, SUCCESS, meaning},
    device::{Device, Gpu},
    gpm::Readings,
    xid::Xids,
};
use crate::{clock::now, library::Library};

/// The library's usual name.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The maximum number of GPUs in a machine.
const MOST_DEVICES: u32 = 64;

/// A reading of a GPU's energy counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The GPU, `GPU-…`.
    pub uuid: String,
    /// When it was read, in nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// Millijoules since the driver was loaded.
    pub millijoules: u64,
}

/// What the performance monitor (GPM) of a GPU measured between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct GpmReading {
    /// The GPU, `GPU-…`.
    pub uuid: String,
    /// The first sample, in nanoseconds of CLOCK_MONOTONIC.
    pub start: u64,
    /// The second sample.
    pub end: u64,
    /// Values by NVML's number of the metric (`nvmlGpmMetricId_t`), in its unit: percent, or MiB per second.
    pub values: Vec<(u32, f64)>,
}

/// An initialised NVML library.
pub struct Nvml {
    functions: Functions,
    gpus: Vec<Gpu>,
    xids: Option<Xids>,
}

impl Nvml {
    /// Opens the driver's library. The error is a message for the log.
    pub fn open() -> Result<Self, String> {
        Self::open_at(Path::new(LIBRARY))
    }

    /// Opens the library at a path.
    pub fn open_at(path: &Path) -> Result<Self, String> {
        let library = Library::open(path, libc::RTLD_LOCAL).map_err(|why| {
            let missing = why.contains("cannot open shared object file: No such file");
            let why = if missing { "not found; it is installed with NVIDIA's driver" } else { &why };
            format!("cannot load {}: {why}", path.display())
        })?;
        let functions = Functions::find(&library).map_err(|_| format!("{} is not NVML, or too old", path.display()))?;
        // SAFETY: the function takes nothing; it counts its callers.
        let result = unsafe { (functions.init)() };
        if result != SUCCESS {
            return Err(format!("cannot initialise NVML: {}", meaning(result)));
        }
        let mut nvml = Self { functions, gpus: Vec::new(), xids: None };
        let mut number = 0;
        // SAFETY: NVML writes a number.
        let result = unsafe { (nvml.functions.count)(&mut number) };
        if result != SUCCESS {
            return Err(format!("NVML cannot count GPUs: {}", meaning(result)));
        }
        // A GPU that is lost or inaccessible keeps its index; the others are reported.
        nvml.gpus = (0..number.min(MOST_DEVICES)).filter_map(|index| Gpu::new(&nvml.functions, index).ok()).collect();
        nvml.xids = Xids::new(&nvml.functions, nvml.gpus.iter().map(|gpu| gpu.handle));
        Ok(nvml)
    }

    /// Reads the energy counters of all GPUs that have one. The error says why there are none.
    pub fn energy(&self) -> Result<Vec<Reading>, String> {
        let mut error = NOT_SUPPORTED;
        let mut readings = Vec::new();
        for gpu in &self.gpus {
            let time = now();
            match gpu.energy(&self.functions) {
                Ok(millijoules) => readings.push(Reading { uuid: gpu.uuid.clone(), time, millijoules }),
                Err(result) => error = result,
            }
        }
        if readings.is_empty() {
            let why = if self.gpus.is_empty() { "it lists no GPU".to_owned() } else { meaning(error) };
            return Err(format!("NVML has no energy counter (Volta or later has one): {why}"));
        }
        Ok(readings)
    }

    /// Reads the performance monitors of all GPUs that have one: what they measured since the last call, and nothing on the
    /// first. The error says why there are none.
    pub fn gpm(&mut self) -> Result<Vec<GpmReading>, String> {
        if !self.gpus.iter().any(Gpu::has_gpm) {
            return Err("no GPU has NVML's performance monitor (GPM), which Hopper and later GPUs have".to_owned());
        }
        let functions = &self.functions;
        let read = |gpu: &mut Gpu| {
            let Readings { start, end, values, .. } = gpu.gpm(functions)?;
            Some(GpmReading { uuid: gpu.uuid.clone(), start, end, values })
        };
        Ok(self.gpus.iter_mut().filter_map(read).collect())
    }

    /// Reads the state of all GPUs. This may take tens of milliseconds for each: see [`super::Sampler`].
    pub fn devices(&mut self) -> Vec<Device> {
        if let Some(xids) = &mut self.xids {
            xids.read(&self.functions);
        }
        let mut devices = Vec::with_capacity(self.gpus.len());
        for gpu in &mut self.gpus {
            let mut device = gpu.read(&self.functions);
            device.xids = self.xids.as_ref().map(|xids| xids.of(gpu.handle)).unwrap_or_default();
            devices.push(device);
        }
        devices
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        for gpu in self.gpus.drain(..) {
            gpu.free(&self.functions);
        }
        if let Some(xids) = self.xids.take() {
            xids.free(&self.functions);
        }
        if let Some(shutdown) = self.functions.shutdown {
            // SAFETY: the counterpart of init.
            unsafe { shutdown() };
        }
    }
}
