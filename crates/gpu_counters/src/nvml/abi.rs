//! NVML's functions, structures and constants, from `nvml.h`. Layouts are those of 64-bit Linux; they have not changed
//! since release 11, and are checked below.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::library::{Library, functions};

/// `nvmlReturn_t`.
pub(crate) type Return = c_int;
/// `nvmlDevice_t`, an opaque handle.
pub(crate) type Handle = *mut c_void;
/// `nvmlEventSet_t`.
pub(crate) type EventSet = *mut c_void;
/// `nvmlGpmSample_t`.
pub(crate) type GpmSample = *mut c_void;

pub(crate) const SUCCESS: Return = 0;
pub(crate) const NOT_SUPPORTED: Return = 3;
pub(crate) const INSUFFICIENT_SIZE: Return = 7;
pub(crate) const GPU_IS_LOST: Return = 15;

pub(crate) const TEMPERATURE_GPU: c_uint = 0;
pub(crate) const CLOCK_SM: c_uint = 1;
pub(crate) const CLOCK_MEMORY: c_uint = 2;
pub(crate) const PCIE_SENT: c_uint = 0;
pub(crate) const PCIE_RECEIVED: c_uint = 1;
pub(crate) const ECC_CORRECTED: c_uint = 0;
pub(crate) const ECC_UNCORRECTED: c_uint = 1;
/// Since the driver was loaded, rather than since the GPU was manufactured.
pub(crate) const ECC_VOLATILE: c_uint = 0;
pub(crate) const EVENT_XID: c_ulonglong = 8;
/// KiB since the driver was loaded.
pub(crate) const FIELD_NVLINK_SENT: u32 = 138;
pub(crate) const FIELD_NVLINK_RECEIVED: u32 = 139;
/// All links together.
pub(crate) const ALL_LINKS: u32 = u32::MAX;
/// The value is unknown to the driver.
pub(crate) const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Utilisation {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// `nvmlProcessInfo_v2_t`, which the `_v3` functions also use.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: c_uint,
    pub(crate) used: c_ulonglong,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

/// `nvmlFieldValue_t`. The value is a union of numbers of at most 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct FieldValue {
    pub(crate) field: u32,
    pub(crate) scope: u32,
    pub(crate) timestamp: i64,
    pub(crate) latency: i64,
    pub(crate) kind: c_uint,
    pub(crate) result: Return,
    pub(crate) value: u64,
}

impl FieldValue {
    /// Returns the value as a count, for any type (`nvmlValueType_t`).
    pub(crate) fn count(&self) -> Option<u64> {
        match self.kind {
            _ if self.result != SUCCESS => None,
            0 => Some(f64::from_bits(self.value)).filter(|value| *value >= 0.0).map(|value| value as u64),
            // unsigned int
            1 => Some(self.value & 0xffff_ffff),
            // unsigned long, unsigned long long
            2 | 3 => Some(self.value),
            // signed long long
            4 => u64::try_from(self.value as i64).ok(),
            // int
            5 => u64::try_from(self.value as u32 as i32).ok(),
            // unsigned short
            6 => Some(self.value & 0xffff),
            _ => None,
        }
    }
}

/// `nvmlEventData_t`. Older libraries fill in only the first three fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventData {
    pub(crate) device: Handle,
    pub(crate) kind: c_ulonglong,
    pub(crate) data: c_ulonglong,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GpmMetric {
    pub(crate) metric: c_uint,
    pub(crate) result: Return,
    pub(crate) value: f64,
    pub(crate) names: [*const c_char; 3],
}

/// The capacity for metrics. `NVML_GPM_METRIC_MAX` was 98 at first and grows; only as many as requested are accessed.
pub(crate) const GPM_ROOM: usize = 333;

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
pub(crate) struct GpmMetrics {
    pub(crate) version: c_uint,
    pub(crate) count: c_uint,
    pub(crate) first: GpmSample,
    pub(crate) second: GpmSample,
    pub(crate) metrics: [GpmMetric; GPM_ROOM],
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
pub(crate) struct GpmSupport {
    pub(crate) version: c_uint,
    pub(crate) supported: c_uint,
}

/// The version of both structures above.
pub(crate) const GPM_VERSION: c_uint = 1;

const _: () = {
    assert!(size_of::<Memory>() == 24);
    assert!(size_of::<ProcessInfo>() == 24);
    assert!(size_of::<FieldValue>() == 40);
    assert!(size_of::<EventData>() == 32);
    assert!(size_of::<GpmMetric>() == 40);
    assert!(std::mem::offset_of!(GpmMetrics, metrics) == 24);
};

functions! {
    /// The functions of the library.
    pub(crate) struct Functions -> Return {
        init = c"nvmlInit_v2"();
        count = c"nvmlDeviceGetCount_v2"(*mut c_uint);
    }
    optional {
        shutdown = c"nvmlShutdown"();
        handle = c"nvmlDeviceGetHandleByIndex_v2"(c_uint, *mut Handle);
        uuid = c"nvmlDeviceGetUUID"(Handle, *mut c_char, c_uint);
        name = c"nvmlDeviceGetName"(Handle, *mut c_char, c_uint);
        utilisation = c"nvmlDeviceGetUtilizationRates"(Handle, *mut Utilisation);
        memory = c"nvmlDeviceGetMemoryInfo"(Handle, *mut Memory);
        /// Milliwatts.
        power = c"nvmlDeviceGetPowerUsage"(Handle, *mut c_uint);
        power_limit = c"nvmlDeviceGetEnforcedPowerLimit"(Handle, *mut c_uint);
        /// Millijoules.
        energy = c"nvmlDeviceGetTotalEnergyConsumption"(Handle, *mut c_ulonglong);
        temperature = c"nvmlDeviceGetTemperature"(Handle, c_uint, *mut c_uint);
        /// MHz.
        clock = c"nvmlDeviceGetClockInfo"(Handle, c_uint, *mut c_uint);
        /// KB/s, measured over 20 ms, during which the call blocks.
        pcie = c"nvmlDeviceGetPcieThroughput"(Handle, c_uint, *mut c_uint);
        fields = c"nvmlDeviceGetFieldValues"(Handle, c_int, *mut FieldValue);
        ecc = c"nvmlDeviceGetTotalEccErrors"(Handle, c_uint, c_uint, *mut c_ulonglong);
        processes = c"nvmlDeviceGetComputeRunningProcesses_v3"(Handle, *mut c_uint, *mut ProcessInfo);
        processes_v2 = c"nvmlDeviceGetComputeRunningProcesses_v2"(Handle, *mut c_uint, *mut ProcessInfo);
        event_set = c"nvmlEventSetCreate"(*mut EventSet);
        event_register = c"nvmlDeviceRegisterEvents"(Handle, c_ulonglong, EventSet);
        event_wait = c"nvmlEventSetWait_v2"(EventSet, *mut EventData, c_uint);
        event_free = c"nvmlEventSetFree"(EventSet);
        gpm_support = c"nvmlGpmQueryDeviceSupport"(Handle, *mut GpmSupport);
        gpm_alloc = c"nvmlGpmSampleAlloc"(*mut GpmSample);
        gpm_free = c"nvmlGpmSampleFree"(GpmSample);
        gpm_sample = c"nvmlGpmSampleGet"(Handle, GpmSample);
        gpm_metrics = c"nvmlGpmMetricsGet"(*mut GpmMetrics);
    }
}

/// Describes an error number, for those that a user may see.
pub(crate) fn meaning(result: Return) -> String {
    match result {
        NOT_SUPPORTED => "not supported".to_owned(),
        4 => "no permission".to_owned(),
        9 => "the NVIDIA driver is not loaded".to_owned(),
        12 => "a library of the driver was not found".to_owned(),
        GPU_IS_LOST => "the GPU is lost: it fell off the bus or was removed".to_owned(),
        18 => "the driver and its library have different versions; reboot after a driver update".to_owned(),
        other => format!("NVML error {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a field's value is read by its type, and not at all if it failed.
    #[test]
    fn field_values_are_read_by_type() {
        let field = |kind, value| FieldValue { kind, value, ..FieldValue::default() };
        assert_eq!(field(0, 2.5_f64.to_bits()).count(), Some(2));
        assert_eq!(field(0, f64::NAN.to_bits()).count(), None);
        assert_eq!(field(1, 0xdead_beef_0000_0007).count(), Some(7));
        assert_eq!(field(3, u64::MAX).count(), Some(u64::MAX));
        assert_eq!(field(4, (-1_i64) as u64).count(), None);
        assert_eq!(field(5, 0xffff_ffff).count(), None);
        assert_eq!(field(6, 0x1_0002).count(), Some(2));
        assert_eq!(field(99, 1).count(), None);
        assert_eq!(FieldValue { result: NOT_SUPPORTED, ..field(3, 1) }.count(), None);
    }
}
