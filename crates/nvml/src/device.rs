//! One GPU: what NVML tells of it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};

use crate::{
    abi::{
        self, ALL_LINKS, CLOCK_MEMORY, CLOCK_SM, ECC_CORRECTED, ECC_UNCORRECTED, ECC_VOLATILE, FIELD_NVLINK_RECEIVED,
        FIELD_NVLINK_SENT, FieldValue, Functions, Handle, INSUFFICIENT_SIZE, Memory, NOT_AVAILABLE, PCIE_RECEIVED,
        PCIE_SENT, ProcessInfo, Return, SUCCESS, TEMPERATURE_GPU, Utilisation,
    },
    gpm::Gpm,
};

/// Room for a name or UUID (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
const NAME: usize = 96;
/// The most processes of one GPU that are told.
const MOST_PROCESSES: usize = 4096;

/// What is known of a GPU at one moment. What NVML does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its lasting name, `GPU-…`.
    pub uuid: String,
    /// Such as "NVIDIA H200".
    pub name: String,
    /// Share of time in which a kernel ran, 0 to 1.
    pub utilisation: Option<f64>,
    /// Share of time in which memory was read or written, 0 to 1.
    pub memory_utilisation: Option<f64>,
    /// Bytes of memory.
    pub memory_total: Option<u64>,
    /// Of these, in use.
    pub memory_used: Option<u64>,
    /// Watts.
    pub power: Option<f64>,
    /// The most it may take, in watts.
    pub power_limit: Option<f64>,
    /// Joules since the driver was loaded.
    pub energy: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Clock of the multiprocessors, in hertz.
    pub sm_clock: Option<u64>,
    /// Clock of the memory, in hertz.
    pub memory_clock: Option<u64>,
    /// Bytes per second received over PCIe.
    pub pcie_received: Option<u64>,
    /// Bytes per second sent over PCIe.
    pub pcie_sent: Option<u64>,
    /// Bytes received over all NVLinks, since the driver was loaded.
    pub nvlink_received: Option<u64>,
    /// Bytes sent over all NVLinks.
    pub nvlink_sent: Option<u64>,
    /// Memory errors that were corrected, since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not.
    pub ecc_uncorrected: Option<u64>,
    /// Xid events since NVML was opened: numbers and how often.
    pub xids: Vec<(u64, u64)>,
    /// Metrics of the GPU performance monitor, by name: shares from 0 to 1.
    pub gpm: Vec<(&'static str, f64)>,
    /// Memory by process: pid and bytes.
    pub processes: Vec<(u32, u64)>,
    /// The GPU is gone, and all else is as it was last known or `None`.
    pub lost: bool,
}

/// A GPU that can be asked.
pub(crate) struct Gpu {
    pub(crate) handle: Handle,
    index: u32,
    uuid: String,
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
            // SAFETY: the buffer has the room that is said, less one byte, so that it ends in 0 whatever is written.
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

    /// Asks everything. Where there is no performance monitor this takes 40 ms, for PCIe.
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
        if let Some(told) = self.gpm.as_mut().and_then(|gpm| gpm.read(functions, handle)) {
            device.gpm = told.shares;
            (device.pcie_sent, device.pcie_received) = (told.pcie_sent, told.pcie_received);
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
    // SAFETY: the handle is NVML's, and there are as many fields as is said.
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
        // SAFETY: the handle is NVML's, and there is as much room as is said.
        let result = unsafe { get(handle, &mut count, infos.as_mut_ptr()) };
        if result == INSUFFICIENT_SIZE && room < MOST_PROCESSES {
            // Others may start meanwhile.
            room = (count as usize).saturating_mul(2).clamp(room * 2, MOST_PROCESSES);
            continue;
        }
        if result != SUCCESS {
            return Vec::new();
        }
        infos.truncate(count as usize);
        // On a divided GPU a process can be there once for each part.
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
