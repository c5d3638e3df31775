//! The devices that this process sees.

mod hardware;
mod visible;

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

pub use hardware::Hardware;

use super::status;
use crate::script::script;

/// One GPU, or one instance of a partitioned GPU.
#[derive(Debug)]
pub struct Device {
    /// Its index in this process.
    pub index: u32,
    /// Which device of the machine it is.
    pub hardware: Hardware,
    /// Bytes allocated.
    pub used: AtomicU64,
}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// Creates the script's devices that `CUDA_VISIBLE_DEVICES` lets this process see.
pub fn create() {
    DEVICES.get_or_init(|| {
        let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let visible = visible::devices(script().devices, script().mig, variable.as_deref());
        let device = |(index, hardware)| Device { index, hardware, used: AtomicU64::new(0) };
        (0..).zip(visible).map(device).collect()
    });
}

/// Returns the number of devices.
pub fn count() -> usize {
    DEVICES.get().map_or(0, Vec::len)
}

/// Returns a device by index.
pub fn device(index: i32) -> Result<&'static Device, u32> {
    let devices = DEVICES.get().ok_or(status::NOT_INITIALIZED)?;
    usize::try_from(index).ok().and_then(|i| devices.get(i)).ok_or(status::INVALID_DEVICE)
}
