//! One GPU and the values that NVML reports for it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};

use super::{
    abi::{
        self, ALL_LINKS, CLOCK_MEMORY, CLOCK_SM, ECC_CORRECTED, ECC_UNCORRECTED, ECC_VOLATILE, FIELD_NVLINK_RECEIVED,
        FIELD_NVLINK_SENT, FieldValue, Functions, Handle, INSUFFICIENT_SIZE, Memory, NOT_AVAILABLE, PCIE_RECEIVED,
        PCIE_SENT, ProcessInfo, Return, SUCCESS, TEMPERATURE_GPU, Utilisation,
    },
    gpm::{Gpm, Readings},
};

/// Buffer size for a name or UUID (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
const NAME: usize = 96;
/// The maximum number of processes reported per GPU.
const MOST_PROCESSES: usize = 4096;

/// The state of a GPU at one point in time. Values that NVML does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its permanent id, `GPU-…`.
    pub uuid: String,
    /// Its name, such as "NVIDIA H200".
    pub name: String,
    /// Share of time during which a kernel was running, 0 to 1.
    pub utilisation: Option<f64>,
    /// Share of time during which memory was read or written, 0 to 1.
    pub memory_utilisation: Option<f64>,
    /// Total memory in bytes.
    pub memory_total: Option<u64>,
    /// Memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// Watts.
    pub power: Option<f64>,
    /// The power limit, in watts.
    pub power_limit: Option<f64>,
    /// Joules since the driver was loaded.
    pub energy: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Clock frequency of the multiprocessors, in hertz.
    pub sm_clock: Option<u64>,
    /// Clock frequency of the memory, in hertz.
    pub memory_clock: Option<u64>,
    /// Bytes per second received over PCIe.
    pub pcie_received: Option<u64>,
    /// Bytes per second sent over PCIe.
    pub pcie_sent: Option<u64>,
    /// Bytes received over all NVLinks, since the driver was loaded.
    pub nvlink_received: Option<u64>,
    /// Bytes sent over all NVLinks.
    pub nvlink_sent: Option<u64>,
    /// Corrected memory errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected memory errors.
    pub ecc_uncorrected: Option<u64>,
    /// Xid events since NVML was opened: numbers and counts.
    pub xids: Vec<(u64, u64)>,
    /// Metrics of the GPU performance monitor, by name: shares from 0 to 1.
    pub gpm: Vec<(&'static str, f64)>,
    /// Memory by process: pid and bytes.
    pub processes: Vec<(u32, u64)>,
    /// The GPU no longer responds; all other values are the last known ones or `None`.
    pub lost: bool,
}

/// A GPU that can be queried.
pub(crate) struct Gpu {
    pub(crate) handle: Handle,
    index: u32,
    pub(crate) uuid: String,
    name: String,
    gpm: Option<Gpm>,
}

// SAFETY: NVML is thread-safe, and its handles may be used from any thread.
unsafe impl Send for Gpu {}

impl Gpu {
    pub(crate) fn new(functions: &Functions, index: u32) -> Result<Self, Return> {
        let mut handle = std::ptr::null_mut();
        let get = functions.handle.ok_or(abi::NOT_SUPPORTED)?;
        // SAFETY: NVML writes a handle.
        let result = unsafe { get(index, &mut handle) };
        if result != SUCCESS {
            return Err(result);
        }
        let text = |function: Option<unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> Return>| {
            let mut buffer = [0 as c_char; NAME];
            // SAFETY: the size passed is one less than the buffer's, so that it always ends in 0.
            let result = unsafe { function?(handle, buffer.as_mut_ptr(), NAME as c_uint - 1) };
            // SAFETY: the last byte is 0.
            let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
            (result == SUCCESS).then(|| text.to_string_lossy().into_owned())
        };
        Ok(Self {
            handle,
            index,
            uuid: text(functions.uuid).unwrap_or_default(),
            name: text(functions.name).unwrap_or_default(),
            gpm: Gpm::new(functions, handle),
        })
    }

    /// Whether it has a performance monitor.
    pub(crate) fn has_gpm(&self) -> bool {
        self.gpm.is_some()
    }

    /// Reads the performance monitor: what it measured since the last reading.
    pub(crate) fn gpm(&mut self, functions: &Functions) -> Option<Readings> {
        self.gpm.as_mut()?.read(functions, self.handle)
    }

    /// Reads the energy counter, in millijoules since the driver was loaded.
    pub(crate) fn energy(&self, functions: &Functions) -> Result<u64, Return> {
        let mut millijoules: c_ulonglong = 0;
        // SAFETY: the handle is NVML's, and it writes a number.
        match unsafe { functions.energy.ok_or(abi::NOT_SUPPORTED)?(self.handle, &mut millijoules) } {
            SUCCESS => Ok(millijoules),
            error => Err(error),
        }
    }

    /// Reads all values. Without a performance monitor this takes 40 ms, because of PCIe.
    pub(crate) fn read(&mut self, functions: &Functions) -> Device {
        let mut device =
            Device { index: self.index, uuid: self.uuid.clone(), name: self.name.clone(), ..Device::default() };
        let handle = self.handle;
        let mut lost = false;
        let mut good = |result: Return| {
            lost |= result == abi::GPU_IS_LOST;
            result == SUCCESS
        };

        let mut memory = Memory::default();
        // SAFETY: here and below: the handle is NVML's, and what is written has the layout of nvml.h.
        if functions.memory.is_some_and(|get| good(unsafe { get(handle, &mut memory) })) {
            (device.memory_total, device.memory_used) = (Some(memory.total), Some(memory.used));
        }
        let mut utilisation = Utilisation::default();
        // SAFETY: see above.
        if functions.utilisation.is_some_and(|get| good(unsafe { get(handle, &mut utilisation) })) {
            device.utilisation = Some(f64::from(utilisation.gpu) / 100.0);
            device.memory_utilisation = Some(f64::from(utilisation.memory) / 100.0);
        }
        let mut small = |get: Option<unsafe extern "C" fn(Handle, *mut c_uint) -> Return>| {
            let mut value = 0;
            // SAFETY: see above.
            good(unsafe { get?(handle, &mut value) }).then_some(value)
        };
        device.power = small(functions.power).map(|milliwatts| f64::from(milliwatts) / 1e3);
        device.power_limit = small(functions.power_limit).map(|milliwatts| f64::from(milliwatts) / 1e3);
        let mut chosen = |get: Option<unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Return>, which| {
            let mut value = 0;
            // SAFETY: see above.
            good(unsafe { get?(handle, which, &mut value) }).then_some(value)
        };
        device.temperature = chosen(functions.temperature, TEMPERATURE_GPU).map(f64::from);
        device.sm_clock = chosen(functions.clock, CLOCK_SM).map(|mhz| u64::from(mhz) * 1_000_000);
        device.memory_clock = chosen(functions.clock, CLOCK_MEMORY).map(|mhz| u64::from(mhz) * 1_000_000);
        let mut energy: c_ulonglong = 0;
        // SAFETY: see above.
        if functions.energy.is_some_and(|get| good(unsafe { get(handle, &mut energy) })) {
            device.energy = Some(energy as f64 / 1e3);
        }
        let mut ecc = |kind| {
            let mut count: c_ulonglong = 0;
            // SAFETY: see above.
            functions
                .ecc
                .is_some_and(|get| good(unsafe { get(handle, kind, ECC_VOLATILE, &mut count) }))
                .then_some(count)
        };
        device.ecc_corrected = ecc(ECC_CORRECTED);
        device.ecc_uncorrected = ecc(ECC_UNCORRECTED);

        (device.nvlink_sent, device.nvlink_received) = nvlink(functions, handle);
        device.processes = processes(functions, handle);
        if let Some(readings) = self.gpm.as_mut().and_then(|gpm| gpm.read(functions, handle)) {
            device.gpm = readings.shares;
            (device.pcie_sent, device.pcie_received) = (readings.pcie_sent, readings.pcie_received);
        }
        if self.gpm.is_none() {
            let mut pcie = |which| {
                let mut kilobytes = 0;
                // SAFETY: see above.
                let result = unsafe { functions.pcie?(handle, which, &mut kilobytes) };
                good(result).then(|| u64::from(kilobytes) * 1000)
            };
            device.pcie_sent = pcie(PCIE_SENT);
            device.pcie_received = pcie(PCIE_RECEIVED);
        }
        device.lost = lost;
        device
    }

    pub(crate) fn free(self, functions: &Functions) {
        if let Some(gpm) = self.gpm {
            gpm.free(functions);
        }
    }
}

fn nvlink(functions: &Functions, handle: Handle) -> (Option<u64>, Option<u64>) {
    let Some(get) = functions.fields else { return (None, None) };
    let field = |field| FieldValue { field, scope: ALL_LINKS, result: abi::NOT_SUPPORTED, ..FieldValue::default() };
    let mut fields = [field(FIELD_NVLINK_SENT), field(FIELD_NVLINK_RECEIVED)];
    // SAFETY: the handle is NVML's, and the count passed is that of the fields.
    if unsafe { get(handle, fields.len() as c_int, fields.as_mut_ptr()) } != SUCCESS {
        return (None, None);
    }
    let bytes = |field: &FieldValue| field.count()?.checked_mul(1024);
    (bytes(&fields[0]), bytes(&fields[1]))
}

fn processes(functions: &Functions, handle: Handle) -> Vec<(u32, u64)> {
    let Some(get) = functions.processes.or(functions.processes_v2) else { return Vec::new() };
    let mut room = 64;
    loop {
        let mut infos = vec![ProcessInfo::default(); room];
        let mut count = room as c_uint;
        // SAFETY: the handle is NVML's, and the count passed is the capacity of `infos`.
        let result = unsafe { get(handle, &mut count, infos.as_mut_ptr()) };
        if result == INSUFFICIENT_SIZE && room < MOST_PROCESSES {
            // More processes may start in the meantime.
            room = (count as usize).saturating_mul(2).clamp(room * 2, MOST_PROCESSES);
            continue;
        }
        if result != SUCCESS {
            return Vec::new();
        }
        infos.truncate(count as usize);
        // On a partitioned GPU a process can appear once for each partition.
        let mut processes: Vec<(u32, u64)> = Vec::new();
        for info in infos.iter().filter(|info| info.used != NOT_AVAILABLE) {
            match processes.iter_mut().find(|(pid, _)| *pid == info.pid) {
                Some((_, used)) => *used = used.saturating_add(info.used),
                None => processes.push((info.pid, info.used)),
            }
        }
        return processes;
    }
}
