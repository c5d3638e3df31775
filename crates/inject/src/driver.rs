//! Queries to libcuda: its version and the devices.
//!
//! A process numbers the GPUs that `CUDA_VISIBLE_DEVICES` lets it see from 0, so each device is reported with its UUID,
//! the UUID of its GPU (a different one if the GPU is partitioned with MIG) and its PCI address. The sender queries the
//! driver after the first launch, outside any callback, and sends the result before the first packet with records: no
//! record arrives before its device.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use crate::library::symbol;

/// Returns the libcuda that the program has loaded, null if there is none.
fn libcuda() -> *mut c_void {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
    // SAFETY: finds a library that is loaded already, or nothing.
    unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) }
}

/// Returns a function of the libcuda that the program has loaded; null if there is none.
pub fn function(name: &CStr) -> *mut c_void {
    let handle = libcuda();
    // SAFETY: the handle is that of a loaded library, and the name ends in 0.
    if handle.is_null() { handle } else { unsafe { libc::dlsym(handle, name.as_ptr()) } }
}

/// Returns the version from `cuDriverGetVersion`, 0 if unavailable. The driver need not be initialised.
pub fn version() -> u32 {
    let handle = libcuda();
    let mut version: c_int = 0;
    // SAFETY: this is the function's type in cuda.h.
    let get = (!handle.is_null())
        .then(|| unsafe { symbol::<unsafe extern "C" fn(*mut c_int) -> u32>(handle, c"cuDriverGetVersion") })
        .flatten();
    // SAFETY: `version` is writable.
    match get.map(|get| unsafe { get(&mut version) }) {
        Some(0) => version.max(0) as u32,
        _ => 0,
    }
}

/// Returns the free memory of a context's device; `None` if the driver does not say. May be called from a callback about
/// the context.
pub fn free_memory(context: *mut c_void) -> Option<u64> {
    let handle = libcuda();
    if handle.is_null() {
        return None;
    }
    let (mut free, mut total, mut popped) = (0_usize, 0_usize, ptr::null_mut());
    // SAFETY: these are the functions' types in cuda.h; the variables are writable. The thread's current context is the
    // same afterwards.
    unsafe {
        let push = symbol::<unsafe extern "C" fn(*mut c_void) -> u32>(handle, c"cuCtxPushCurrent_v2")?;
        let pop = symbol::<unsafe extern "C" fn(*mut *mut c_void) -> u32>(handle, c"cuCtxPopCurrent_v2")?;
        let get = symbol::<unsafe extern "C" fn(*mut usize, *mut usize) -> u32>(handle, c"cuMemGetInfo_v2")?;
        if push(context) != 0 {
            return None;
        }
        let outcome = get(&mut free, &mut total);
        pop(&mut popped);
        (outcome == 0).then_some(free as u64)
    }
}

/// The longest name of a device that is read, with its 0.
pub const NAME: usize = 256;
/// The most devices that are described.
const MOST_DEVICES: c_int = 1024;
/// `CUdevice_attribute`: the parts of the PCI address.
const PCI_BUS: c_int = 33;
const PCI_DEVICE: c_int = 34;
const PCI_DOMAIN: c_int = 50;
/// `CUdevice_attribute`: the compute capability, and the resources of a multiprocessor.
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const MULTIPROCESSORS: c_int = 16;
const THREADS: c_int = 39;
const BLOCKS: c_int = 106;
const REGISTERS: c_int = 82;
const SHARED_MEMORY: c_int = 81;
const RESERVED_SHARED_MEMORY: c_int = 111;

type GetUuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> u32;

/// The devices that this process sees, and the functions to describe them.
pub struct Devices {
    count: u32,
    get: Option<unsafe extern "C" fn(*mut c_int, c_int) -> u32>,
    name: Option<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32>,
    attribute: Option<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> u32>,
    /// Of the instance, if the GPU is partitioned.
    uuid: Option<GetUuid>,
    /// Of the whole GPU.
    gpu_uuid: Option<GetUuid>,
}

impl Devices {
    /// Counts the devices. May only be called after `cuInit` has returned, and not from a callback of CUPTI.
    pub fn open() -> Option<Self> {
        let handle = libcuda();
        if handle.is_null() {
            return None;
        }
        let mut devices = 0;
        // SAFETY: these are the functions' types in cuda.h; `devices` is writable.
        unsafe {
            let count = symbol::<unsafe extern "C" fn(*mut c_int) -> u32>(handle, c"cuDeviceGetCount")?;
            if count(&mut devices) != 0 {
                return None;
            }
            let gpu_uuid = symbol(handle, c"cuDeviceGetUuid");
            Some(Self {
                count: devices.clamp(0, MOST_DEVICES).cast_unsigned(),
                get: symbol(handle, c"cuDeviceGet"),
                name: symbol(handle, c"cuDeviceGetName"),
                attribute: symbol(handle, c"cuDeviceGetAttribute"),
                // Before CUDA 11.4 there is only one form, and no way to distinguish instances.
                uuid: symbol(handle, c"cuDeviceGetUuid_v2").or(gpu_uuid),
                gpu_uuid,
            })
        }
    }

    /// Returns the number of devices.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Describes a device; `None` if the driver does not know it.
    pub fn describe(&self, index: u32) -> Option<(wire::DeviceId, Name)> {
        let mut device = index.cast_signed();
        // SAFETY: `device` is writable.
        if self.get.is_some_and(|get| unsafe { get(&mut device, index.cast_signed()) } != 0) {
            return None;
        }
        let uuid = |get: Option<GetUuid>| {
            let mut bytes = [0; 16];
            // SAFETY: `bytes` is as long as a CUuuid.
            let known = get.is_some_and(|get| unsafe { get(&mut bytes, device) } == 0);
            if known { u128::from_be_bytes(bytes) } else { 0 }
        };
        let (own, gpu) = (uuid(self.uuid), uuid(self.gpu_uuid));
        let id = wire::DeviceId {
            index,
            uuid: if own == 0 { gpu } else { own },
            gpu: if gpu == 0 { own } else { gpu },
            pci: self.pci(device).unwrap_or(u64::MAX),
            major: self.number(MAJOR, device) as u8,
            minor: self.number(MINOR, device) as u8,
            multiprocessors: self.number(MULTIPROCESSORS, device),
            threads: self.number(THREADS, device),
            blocks: self.number(BLOCKS, device),
            registers: self.number(REGISTERS, device),
            shared_memory: self.number(SHARED_MEMORY, device),
            reserved_shared_memory: self.number(RESERVED_SHARED_MEMORY, device),
        };
        let mut text = [0u8; NAME];
        // SAFETY: the length passed is that of the buffer without its last byte, which stays 0.
        let named =
            self.name.is_some_and(|name| unsafe { name(text.as_mut_ptr().cast(), NAME as c_int - 1, device) } == 0);
        if !named {
            text[0] = 0;
        }
        Some((id, Name(text)))
    }

    /// Returns an attribute; `None` if the driver does not know it.
    fn read(&self, attribute: c_int, device: c_int) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: `value` is writable.
        (unsafe { (self.attribute?)(&mut value, attribute, device) } == 0).then_some(value)
    }

    /// Returns an attribute that is a count; 0 if the driver does not know it.
    fn number(&self, attribute: c_int, device: c_int) -> u32 {
        self.read(attribute, device).map_or(0, |value| value.max(0).cast_unsigned())
    }

    fn pci(&self, device: c_int) -> Option<u64> {
        let read = |attribute| self.read(attribute, device);
        let (bus, slot) = (read(PCI_BUS)?.try_into().ok()?, read(PCI_DEVICE)?.try_into().ok()?);
        Some(wire::pci_address(read(PCI_DOMAIN)?.cast_unsigned(), bus, slot))
    }
}

/// The name of a device.
pub struct Name([u8; NAME]);

impl Name {
    /// The text, without the 0.
    pub fn to_bytes(&self) -> &[u8] {
        CStr::from_bytes_until_nul(&self.0).map_or(&[], CStr::to_bytes)
    }
}
