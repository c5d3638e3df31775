//! The devices.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use super::status;
use crate::script::script;

/// One GPU.
#[derive(Debug)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Bytes allocated.
    pub used: AtomicU64,
}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// Creates the script's devices.
pub fn create() {
    DEVICES.get_or_init(|| (0..script().devices).map(|index| Device { index, used: AtomicU64::new(0) }).collect());
}

/// Returns a device by index.
pub fn device(index: i32) -> Result<&'static Device, u32> {
    let devices = DEVICES.get().ok_or(status::NOT_INITIALIZED)?;
    usize::try_from(index).ok().and_then(|i| devices.get(i)).ok_or(status::INVALID_DEVICE)
}
