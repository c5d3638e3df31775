//! Xid events: the driver's reports of errors in a GPU or in its use.

use std::{collections::BTreeMap, ffi::c_uint, ptr::null_mut};

use super::abi::{EVENT_XID, EventData, EventSet, Functions, Handle, SUCCESS};

/// The maximum number of events read at a time: a broken GPU may send them endlessly.
const MOST: usize = 1000;

/// Counts events, by GPU and number.
pub(crate) struct Xids {
    set: EventSet,
    counts: BTreeMap<(usize, u64), u64>,
}

// SAFETY: an event set is used by one thread at a time.
unsafe impl Send for Xids {}

impl Xids {
    /// Registers the `devices` that report events; `None` if none do.
    pub(crate) fn new(functions: &Functions, devices: impl Iterator<Item = Handle>) -> Option<Self> {
        let (create, register, free) = (functions.event_set?, functions.event_register?, functions.event_free?);
        functions.event_wait?;
        let mut set = null_mut();
        // SAFETY: NVML writes a handle.
        if unsafe { create(&mut set) } != SUCCESS {
            return None;
        }
        // SAFETY: the handles are NVML's.
        let registered = devices.filter(|&device| unsafe { register(device, EVENT_XID, set) } == SUCCESS).count();
        if registered == 0 {
            // SAFETY: the set is NVML's, and is not used again.
            unsafe { free(set) };
            return None;
        }
        Some(Self { set, counts: BTreeMap::new() })
    }

    /// Reads the pending events, without waiting.
    pub(crate) fn read(&mut self, functions: &Functions) {
        let Some(wait) = functions.event_wait else { return };
        for _ in 0..MOST {
            let mut event = EventData { device: null_mut(), kind: 0, data: 0, gpu_instance: 0, compute_instance: 0 };
            let now: c_uint = 0;
            // SAFETY: the set is NVML's, and the structure has its layout.
            if unsafe { wait(self.set, &mut event, now) } != SUCCESS {
                return;
            }
            if event.kind & EVENT_XID != 0 {
                *self.counts.entry((event.device as usize, event.data)).or_default() += 1;
            }
        }
    }

    /// Returns the events of a GPU so far: numbers and counts.
    pub(crate) fn of(&self, device: Handle) -> Vec<(u64, u64)> {
        let mine = self.counts.range((device as usize, 0)..=(device as usize, u64::MAX));
        mine.map(|(&(_, xid), &count)| (xid, count)).collect()
    }

    pub(crate) fn free(self, functions: &Functions) {
        if let Some(free) = functions.event_free {
            // SAFETY: the set is NVML's, and is not used again.
            unsafe { free(self.set) };
        }
    }
}
