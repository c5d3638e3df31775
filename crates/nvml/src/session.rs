//! An initialised library and its GPUs.

use std::path::Path;

use crate::{
    abi::{Functions, SUCCESS, meaning},
    device::{Device, Gpu},
    library::Library,
    xid::Xids,
};

/// The library's usual name.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The maximum number of GPUs in a machine.
const MOST_DEVICES: u32 = 64;

/// An initialised NVML library.
pub struct Nvml {
    functions: Functions,
    gpus: Vec<Gpu>,
    xids: Option<Xids>,
    /// Never unloaded; dropped last.
    _library: Library,
}

impl Nvml {
    /// Opens the driver's library. The error is a message for the log.
    pub fn open() -> Result<Self, String> {
        Self::open_at(Path::new(LIBRARY))
    }

    /// Opens the library at a path.
    pub fn open_at(path: &Path) -> Result<Self, String> {
        let library = Library::open(path)?;
        let functions = Functions::find(&library);
        let (Some(init), Some(count)) = (functions.init, functions.count) else {
            return Err(format!("{} is not NVML, or too old", path.display()));
        };
        // SAFETY: the function takes nothing; it counts its callers.
        let result = unsafe { init() };
        if result != SUCCESS {
            return Err(format!("cannot initialise NVML: {}", meaning(result)));
        }
        let mut nvml = Self { functions, gpus: Vec::new(), xids: None, _library: library };
        let mut number = 0;
        // SAFETY: NVML writes a number.
        let result = unsafe { count(&mut number) };
        if result != SUCCESS {
            return Err(format!("NVML cannot count GPUs: {}", meaning(result)));
        }
        // A GPU that is lost or inaccessible keeps its index; the others are reported.
        nvml.gpus = (0..number.min(MOST_DEVICES)).filter_map(|index| Gpu::new(&nvml.functions, index).ok()).collect();
        nvml.xids = Xids::new(&nvml.functions, nvml.gpus.iter().map(|gpu| gpu.handle));
        Ok(nvml)
    }

    /// Reads the state of all GPUs. This may take tens of milliseconds for each: see [`crate::Sampler`].
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
