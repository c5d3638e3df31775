//! The power of GPUs over time, from the readings of their energy counters.

use std::collections::BTreeMap;

use model::{
    energy::watts,
    event::{Energy, Uuid},
    profile::Profile,
};

/// Computes the mean power between readings that differ.
pub(crate) struct Power {
    /// The last such reading of each GPU that was used, and the number of its device.
    last: BTreeMap<Uuid, (Option<Energy>, u32)>,
}

impl Power {
    /// For the GPUs of a profile whose energy was recorded.
    pub fn new(profile: &Profile) -> Self {
        let device = |uuid: &str| {
            let mut devices = profile.devices.iter();
            devices.find(|(_, info)| info.uuid == uuid || info.gpu_uuid == uuid).map(|(number, _)| *number)
        };
        let gpu = |uuid: &str| Some((Uuid::parse(uuid)?, (None, device(uuid)?)));
        Self { last: profile.energy.iter().filter_map(|energy| gpu(&energy.uuid)).collect() }
    }

    /// Returns the device, the start of the interval that a reading ends, and the watts in it. A reading without a change
    /// belongs to the next interval.
    pub fn read(&mut self, reading: &Energy) -> Option<(u32, u64, f64)> {
        let (last, device) = self.last.get_mut(&reading.gpu)?;
        let before = *last.get_or_insert(*reading);
        if reading.time <= before.time || reading.millijoules == before.millijoules {
            return None;
        }
        *last = Some(*reading);
        let microjoules = reading.millijoules.checked_sub(before.millijoules)?.checked_mul(1000)?;
        Some((*device, before.time, watts(microjoules, reading.time - before.time)?))
    }
}
