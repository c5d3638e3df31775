//! The functions of libcuda and libcupti, loaded at run time.

use std::{
    ffi::{CStr, c_int, c_uint},
    path::Path,
};

use cupti::{
    ids::result,
    pm_sampling::{
        AddMetrics, Availability, Call, ChipName, ConfigImage, ConfigSize, DataInfo, DataInitialize, DataSize, Decode,
        Enable, Evaluate, HostDeinitialize, HostInitialize, Initialize, Passes, SampleInfo, SetConfig, Switch,
    },
    types::CuptiResult,
};

use super::{
    record::{Failure, MAX_GPUS, Step},
    search::HOST,
};
use crate::library::{Library, functions};

functions! {
    /// The functions of PM sampling.
    pub struct Cupti -> CuptiResult {
        initialize = c"cuptiProfilerInitialize"(*mut Initialize);
        chip_name = c"cuptiDeviceGetChipName"(*mut ChipName);
        availability = c"cuptiPmSamplingGetCounterAvailability"(*mut Availability);
        host_initialize = c"cuptiProfilerHostInitialize"(*mut HostInitialize);
        host_deinitialize = c"cuptiProfilerHostDeinitialize"(*mut HostDeinitialize);
        add_metrics = c"cuptiProfilerHostConfigAddMetrics"(*mut AddMetrics);
        config_size = c"cuptiProfilerHostGetConfigImageSize"(*mut ConfigSize);
        config_image = c"cuptiProfilerHostGetConfigImage"(*mut ConfigImage);
        passes = c"cuptiProfilerHostGetNumOfPasses"(*mut Passes);
        evaluate = c"cuptiProfilerHostEvaluateToGpuValues"(*mut Evaluate);
        enable = c"cuptiPmSamplingEnable"(*mut Enable);
        disable = c"cuptiPmSamplingDisable"(*mut Switch);
        start = c"cuptiPmSamplingStart"(*mut Switch);
        stop = c"cuptiPmSamplingStop"(*mut Switch);
        set_config = c"cuptiPmSamplingSetConfig"(*mut SetConfig);
        data_size = c"cuptiPmSamplingGetCounterDataSize"(*mut DataSize);
        data_initialize = c"cuptiPmSamplingCounterDataImageInitialize"(*mut DataInitialize);
        decode = c"cuptiPmSamplingDecodeData"(*mut Decode);
        data_info = c"cuptiPmSamplingGetCounterDataInfo"(*mut DataInfo);
        sample_info = c"cuptiPmSamplingCounterDataGetSampleInfo"(*mut SampleInfo);
    }
}

functions! {
    /// The functions of libcuda that are needed to list GPUs.
    struct Driver -> c_uint {
        init = c"cuInit"(c_uint);
        count = c"cuDeviceGetCount"(*mut c_int);
        get = c"cuDeviceGet"(*mut c_int, c_int);
        uuid = c"cuDeviceGetUuid"(*mut [u8; 16], c_int);
    }
}

impl Cupti {
    /// Loads libcupti. The library that it loads itself when it is first used, libnvperf_host.so, is loaded from beside it:
    /// then no search path matters.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        if let Some(beside) = path.parent().map(|directory| directory.join(HOST))
            && beside.exists()
        {
            open(&beside, Failure { step: Step::LoadCupti, code: 1 })?;
        }
        Self::find(&open(path, Failure { step: Step::LoadCupti, code: 0 })?).map_err(lacks)
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
    let library = open(path, Failure { step: Step::LoadDriver, code: 0 })?;
    let Driver { init, count, get, uuid } = Driver::find(&library).map_err(lacks)?;
    let check = |code: u32| if code == 0 { Ok(()) } else { Err(Failure { step: Step::Driver, code }) };
    let mut number = 0;
    // SAFETY: called once, before any other function of the driver; the number is writable.
    unsafe {
        check(init(0))?;
        check(count(&mut number))?;
    }
    let mut all = Vec::new();
    for index in 0..number.min(MAX_GPUS.into()) {
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

fn open(path: &Path, failure: Failure) -> Result<Library, Failure> {
    Library::open(path, libc::RTLD_GLOBAL).map_err(|_| failure)
}

fn lacks(_: &CStr) -> Failure {
    Failure { step: Step::Functions, code: 0 }
}
