//! The functions of libcuda and libcupti, loaded at run time.

use std::{
    ffi::{CStr, CString, c_int, c_void},
    mem::transmute_copy,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use cupti::{
    ids::result,
    pm_sampling::{
        AddMetrics, Availability, Call, ChipName, ConfigImage, ConfigSize, DataInfo, DataInitialize, DataSize, Decode,
        Enable, Evaluate, HostDeinitialize, HostInitialize, Initialize, Passes, SampleInfo, SetConfig, Switch,
    },
};

use crate::record::{Failure, Step};

/// The functions of PM sampling.
pub struct Cupti {
    pub initialize: Call<Initialize>,
    pub chip_name: Call<ChipName>,
    pub availability: Call<Availability>,
    pub host_initialize: Call<HostInitialize>,
    pub host_deinitialize: Call<HostDeinitialize>,
    pub add_metrics: Call<AddMetrics>,
    pub config_size: Call<ConfigSize>,
    pub config_image: Call<ConfigImage>,
    pub passes: Call<Passes>,
    pub evaluate: Call<Evaluate>,
    pub enable: Call<Enable>,
    pub disable: Call<Switch>,
    pub start: Call<Switch>,
    pub stop: Call<Switch>,
    pub set_config: Call<SetConfig>,
    pub data_size: Call<DataSize>,
    pub data_initialize: Call<DataInitialize>,
    pub decode: Call<Decode>,
    pub data_info: Call<DataInfo>,
    pub sample_info: Call<SampleInfo>,
}

impl Cupti {
    /// Loads libcupti. The library that it loads itself when it is first used, libnvperf_host.so, is loaded from beside it:
    /// then no search path matters.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        if let Some(beside) = path.parent().map(|directory| directory.join(crate::search::HOST))
            && beside.exists()
        {
            open(&beside).ok_or(Failure { step: Step::LoadCupti, code: 1 })?;
        }
        let handle = open(path).ok_or(Failure { step: Step::LoadCupti, code: 0 })?;
        // SAFETY: each function type is the one that CUPTI's headers declare for that name.
        unsafe {
            Ok(Self {
                initialize: symbol(handle, c"cuptiProfilerInitialize")?,
                chip_name: symbol(handle, c"cuptiDeviceGetChipName")?,
                availability: symbol(handle, c"cuptiPmSamplingGetCounterAvailability")?,
                host_initialize: symbol(handle, c"cuptiProfilerHostInitialize")?,
                host_deinitialize: symbol(handle, c"cuptiProfilerHostDeinitialize")?,
                add_metrics: symbol(handle, c"cuptiProfilerHostConfigAddMetrics")?,
                config_size: symbol(handle, c"cuptiProfilerHostGetConfigImageSize")?,
                config_image: symbol(handle, c"cuptiProfilerHostGetConfigImage")?,
                passes: symbol(handle, c"cuptiProfilerHostGetNumOfPasses")?,
                evaluate: symbol(handle, c"cuptiProfilerHostEvaluateToGpuValues")?,
                enable: symbol(handle, c"cuptiPmSamplingEnable")?,
                disable: symbol(handle, c"cuptiPmSamplingDisable")?,
                start: symbol(handle, c"cuptiPmSamplingStart")?,
                stop: symbol(handle, c"cuptiPmSamplingStop")?,
                set_config: symbol(handle, c"cuptiPmSamplingSetConfig")?,
                data_size: symbol(handle, c"cuptiPmSamplingGetCounterDataSize")?,
                data_initialize: symbol(handle, c"cuptiPmSamplingCounterDataImageInitialize")?,
                decode: symbol(handle, c"cuptiPmSamplingDecodeData")?,
                data_info: symbol(handle, c"cuptiPmSamplingGetCounterDataInfo")?,
                sample_info: symbol(handle, c"cuptiPmSamplingCounterDataGetSampleInfo")?,
            })
        }
    }
}

/// Calls a function of CUPTI.
///
/// # Safety
/// The pointers in `parameters` must be valid for the function.
pub unsafe fn call<P>(step: Step, function: Call<P>, parameters: &mut P) -> Result<(), Failure> {
    // SAFETY: the structure is valid, and the caller guarantees what it points to.
    match unsafe { function(parameters) } {
        result::SUCCESS => Ok(()),
        code => Err(Failure { step, code }),
    }
}

/// Loads libcuda, initialises it, and returns the UUIDs of the GPUs, by index.
pub fn gpus(path: &Path) -> Result<Vec<u128>, Failure> {
    let handle = open(path).ok_or(Failure { step: Step::LoadDriver, code: 0 })?;
    // SAFETY: each function type is the one that CUDA's headers declare for that name.
    let (init, count, get, uuid) = unsafe {
        let init: unsafe extern "C" fn(u32) -> u32 = symbol(handle, c"cuInit")?;
        let count: unsafe extern "C" fn(*mut c_int) -> u32 = symbol(handle, c"cuDeviceGetCount")?;
        let get: unsafe extern "C" fn(*mut c_int, c_int) -> u32 = symbol(handle, c"cuDeviceGet")?;
        let uuid: unsafe extern "C" fn(*mut [u8; 16], c_int) -> u32 = symbol(handle, c"cuDeviceGetUuid")?;
        (init, count, get, uuid)
    };
    let check = |code: u32| if code == 0 { Ok(()) } else { Err(Failure { step: Step::Driver, code }) };
    let mut number = 0;
    // SAFETY: called once, before any other function of the driver; the number is writable.
    unsafe {
        check(init(0))?;
        check(count(&mut number))?;
    }
    let mut all = Vec::new();
    for index in 0..number.min(crate::record::MAX_GPUS.into()) {
        let (mut device, mut bytes) = (0, [0; 16]);
        // SAFETY: both are writable.
        unsafe {
            check(get(&mut device, index))?;
            check(uuid(&mut bytes, device))?;
        }
        all.push(u128::from_be_bytes(bytes));
    }
    Ok(all)
}

fn open(path: &Path) -> Option<*mut c_void> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path ends in 0. The constructors are NVIDIA's, in a process that exists for them.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    (!handle.is_null()).then_some(handle)
}

/// # Safety
/// `F` must be a function pointer of the type that the library declares for the symbol.
unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> Result<F, Failure> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is from dlopen and the name ends in 0.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() {
        return Err(Failure { step: Step::Functions, code: 0 });
    }
    // SAFETY: both are one pointer long, and the caller guarantees the type.
    Ok(unsafe { transmute_copy(&address) })
}
