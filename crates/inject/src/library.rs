//! Finds libcupti and binds its functions at run time.

use core::ffi::{CStr, c_char, c_void};
use core::mem::{MaybeUninit, transmute_copy};
use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

use cupti::pc_sampling::{Configure, GetData, GetReasonCount, GetReasons, RegisterIdentify, Switch};
use cupti::pm_sampling;
use cupti::range_profiler;
use cupti::types::{
    ActivityFlushAll, ActivityGetNextRecord, ActivityGetNumDroppedRecords, ActivityRegisterCallbacks,
    ActivityRegisterTimestampCallback, ActivitySwitch, CuptiResult, EnableAllDomains, EnableCallback, EnableDomain,
    Finalize, GetCallbackName, GetGraphId, GetGraphNodeId, GetResultString, GetStreamId, GetTimestamp, GetVersion,
    SetThreadIdType, Subscribe, SubscribeV2, Unsubscribe,
};

use crate::search::{Candidate, Surroundings, candidates};
use crate::{environment, sys};

/// The functions of libcupti that the library calls. Functions missing from some releases are options.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "each is named after its function")]
pub struct Cupti {
    pub get_version: GetVersion,
    pub subscribe: Subscribe,
    pub unsubscribe: Unsubscribe,
    pub enable_callback: EnableCallback,
    pub register_callbacks: ActivityRegisterCallbacks,
    pub next_record: ActivityGetNextRecord,
    pub dropped_records: ActivityGetNumDroppedRecords,
    pub enable: ActivitySwitch,
    pub disable: ActivitySwitch,
    pub flush_all: ActivityFlushAll,
    pub get_result_string: Option<GetResultString>,
    pub subscribe_v2: Option<SubscribeV2>,
    pub register_timestamp: Option<ActivityRegisterTimestampCallback>,
    pub set_thread_id_type: Option<SetThreadIdType>,
    pub get_timestamp: Option<GetTimestamp>,
    pub get_stream_id: Option<GetStreamId>,
    pub get_graph_node_id: Option<GetGraphNodeId>,
    pub get_graph_id: Option<GetGraphId>,
    pub get_graph_exec_id: Option<GetGraphId>,
    pub enable_domain: Option<EnableDomain>,
    pub get_callback_name: Option<GetCallbackName>,
    pub enable_all_domains: Option<EnableAllDomains>,
    pub finalize: Option<Finalize>,
    pub pc_sampling: Option<PcSampling>,
    pub range_profiler: Option<RangeProfiler>,
}

/// The functions of PC sampling.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "each is named after its function")]
pub struct PcSampling {
    pub enable: Switch,
    pub disable: Switch,
    pub configure: Configure,
    pub get_data: GetData,
    pub get_reason_count: GetReasonCount,
    pub get_reasons: GetReasons,
    pub register_identify: RegisterIdentify,
}

/// The functions of the range profiler. Absent before 12.6.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "each is named after its function")]
pub struct RangeProfiler {
    pub initialize: pm_sampling::Call<pm_sampling::Initialize>,
    pub chip_name: pm_sampling::Call<pm_sampling::ChipName>,
    pub host_initialize: pm_sampling::Call<pm_sampling::HostInitialize>,
    pub host_deinitialize: pm_sampling::Call<pm_sampling::HostDeinitialize>,
    pub add_metrics: pm_sampling::Call<pm_sampling::AddMetrics>,
    pub config_size: pm_sampling::Call<pm_sampling::ConfigSize>,
    pub config_image: pm_sampling::Call<pm_sampling::ConfigImage>,
    pub passes: pm_sampling::Call<pm_sampling::Passes>,
    pub evaluate: pm_sampling::Call<pm_sampling::Evaluate>,
    pub enable: pm_sampling::Call<range_profiler::Enable>,
    pub disable: pm_sampling::Call<range_profiler::Switch>,
    pub set_config: pm_sampling::Call<range_profiler::SetConfig>,
    pub start: pm_sampling::Call<range_profiler::Switch>,
    pub stop: pm_sampling::Call<range_profiler::Stop>,
    pub push: pm_sampling::Call<range_profiler::Push>,
    pub pop: pm_sampling::Call<range_profiler::Switch>,
    pub decode: pm_sampling::Call<range_profiler::Decode>,
    pub data_size: pm_sampling::Call<range_profiler::DataSize>,
    pub data_initialize: pm_sampling::Call<range_profiler::DataInitialize>,
    pub data_info: pm_sampling::Call<range_profiler::DataInfo>,
}

static CUPTI: OnceLock<Cupti> = OnceLock::new();
static VERSION: AtomicU32 = AtomicU32::new(0);

/// Returns the bound functions, if any.
pub fn cupti() -> Option<&'static Cupti> {
    CUPTI.get()
}

/// Returns the version from `cuptiGetVersion`; 0 before it was read.
pub fn cupti_version() -> u32 {
    VERSION.load(Ordering::Relaxed)
}

/// Installs the functions to use from now on.
pub fn install(cupti: Cupti, version: u32) -> &'static Cupti {
    VERSION.store(version, Ordering::Relaxed);
    CUPTI.get_or_init(|| cupti)
}

impl Cupti {
    /// Returns CUPTI's name for a result.
    pub fn describe(&self, result: CuptiResult) -> String {
        let mut text: *const c_char = core::ptr::null();
        // SAFETY: `text` is writable; CUPTI's strings are static.
        let known = self.get_result_string.is_some_and(|get| unsafe { get(result, &mut text) } == 0);
        if known && !text.is_null() {
            // SAFETY: as above.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            format!("{text} ({result})")
        } else {
            format!("error {result}")
        }
    }

    /// Looks up the functions in a loaded library; the error names the first missing one.
    fn bind(handle: *mut c_void) -> Result<Self, &'static CStr> {
        // SAFETY: each function type is the one that CUPTI's headers declare for that name.
        unsafe {
            Ok(Self {
                get_version: required(handle, c"cuptiGetVersion")?,
                subscribe: required(handle, c"cuptiSubscribe")?,
                unsubscribe: required(handle, c"cuptiUnsubscribe")?,
                enable_callback: required(handle, c"cuptiEnableCallback")?,
                register_callbacks: required(handle, c"cuptiActivityRegisterCallbacks")?,
                next_record: required(handle, c"cuptiActivityGetNextRecord")?,
                dropped_records: required(handle, c"cuptiActivityGetNumDroppedRecords")?,
                enable: required(handle, c"cuptiActivityEnable")?,
                disable: required(handle, c"cuptiActivityDisable")?,
                flush_all: required(handle, c"cuptiActivityFlushAll")?,
                get_result_string: symbol(handle, c"cuptiGetResultString"),
                subscribe_v2: symbol(handle, c"cuptiSubscribe_v2"),
                register_timestamp: symbol(handle, c"cuptiActivityRegisterTimestampCallback"),
                set_thread_id_type: symbol(handle, c"cuptiSetThreadIdType"),
                get_timestamp: symbol(handle, c"cuptiGetTimestamp"),
                get_stream_id: symbol(handle, c"cuptiGetStreamIdEx"),
                get_graph_node_id: symbol(handle, c"cuptiGetGraphNodeId"),
                get_graph_id: symbol(handle, c"cuptiGetGraphId"),
                get_graph_exec_id: symbol(handle, c"cuptiGetGraphExecId"),
                enable_domain: symbol(handle, c"cuptiEnableDomain"),
                get_callback_name: symbol(handle, c"cuptiGetCallbackName"),
                enable_all_domains: symbol(handle, c"cuptiEnableAllDomains"),
                finalize: symbol(handle, c"cuptiFinalize"),
                pc_sampling: PcSampling::bind(handle),
                range_profiler: RangeProfiler::bind(handle),
            })
        }
    }
}

impl PcSampling {
    /// Looks up the functions; `None` if one is missing.
    fn bind(handle: *mut c_void) -> Option<Self> {
        // SAFETY: each function type is the one that CUPTI's headers declare for that name.
        unsafe {
            Some(Self {
                enable: symbol(handle, c"cuptiPCSamplingEnable")?,
                disable: symbol(handle, c"cuptiPCSamplingDisable")?,
                configure: symbol(handle, c"cuptiPCSamplingSetConfigurationAttribute")?,
                get_data: symbol(handle, c"cuptiPCSamplingGetData")?,
                get_reason_count: symbol(handle, c"cuptiPCSamplingGetNumStallReasons")?,
                get_reasons: symbol(handle, c"cuptiPCSamplingGetStallReasons")?,
                register_identify: symbol(handle, c"cuptiRegisterComputeCrcCallback")?,
            })
        }
    }
}

impl RangeProfiler {
    /// Looks up the functions; `None` if one is missing.
    fn bind(handle: *mut c_void) -> Option<Self> {
        // SAFETY: each function type is the one that CUPTI's headers declare for that name.
        unsafe {
            Some(Self {
                initialize: symbol(handle, c"cuptiProfilerInitialize")?,
                chip_name: symbol(handle, c"cuptiDeviceGetChipName")?,
                host_initialize: symbol(handle, c"cuptiProfilerHostInitialize")?,
                host_deinitialize: symbol(handle, c"cuptiProfilerHostDeinitialize")?,
                add_metrics: symbol(handle, c"cuptiProfilerHostConfigAddMetrics")?,
                config_size: symbol(handle, c"cuptiProfilerHostGetConfigImageSize")?,
                config_image: symbol(handle, c"cuptiProfilerHostGetConfigImage")?,
                passes: symbol(handle, c"cuptiProfilerHostGetNumOfPasses")?,
                evaluate: symbol(handle, c"cuptiProfilerHostEvaluateToGpuValues")?,
                enable: symbol(handle, c"cuptiRangeProfilerEnable")?,
                disable: symbol(handle, c"cuptiRangeProfilerDisable")?,
                set_config: symbol(handle, c"cuptiRangeProfilerSetConfig")?,
                start: symbol(handle, c"cuptiRangeProfilerStart")?,
                stop: symbol(handle, c"cuptiRangeProfilerStop")?,
                push: symbol(handle, c"cuptiRangeProfilerPushRange")?,
                pop: symbol(handle, c"cuptiRangeProfilerPopRange")?,
                decode: symbol(handle, c"cuptiRangeProfilerDecodeData")?,
                data_size: symbol(handle, c"cuptiRangeProfilerGetCounterDataSize")?,
                data_initialize: symbol(handle, c"cuptiRangeProfilerCounterDataImageInitialize")?,
                data_info: symbol(handle, c"cuptiRangeProfilerGetCounterDataInfo")?,
            })
        }
    }
}

/// Looks up a function of a loaded library.
///
/// # Safety
/// `F` must be a function pointer of the type that the library declares for the symbol.
pub unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is from dlopen and the name ends in 0.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // SAFETY: both are one pointer long, and the caller guarantees the type.
    (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
}

/// Like [`symbol`], for a required function.
///
/// # Safety
/// As for [`symbol`].
unsafe fn required<F: Copy>(handle: *mut c_void, name: &'static CStr) -> Result<F, &'static CStr> {
    // SAFETY: the caller guarantees the type.
    unsafe { symbol(handle, name) }.ok_or(name)
}

/// Finds libcupti: returns its functions and its path, or a message that lists the locations tried.
pub fn find(driver: u32) -> Result<(Cupti, String), String> {
    let maps = sys::maps();
    let around = Surroundings { variable: &environment::variable, list: &list, maps: &maps, driver };
    let mut tried = String::from("no usable libcupti; tried");
    for candidate in candidates(&around) {
        let (name, flags) = match &candidate {
            Candidate::Loaded(name) => (name, libc::RTLD_NOLOAD),
            Candidate::File(path) if !std::fs::exists(path).unwrap_or(false) => continue,
            Candidate::File(path) => (path, 0),
            Candidate::Search(name) => (name, 0),
        };
        let Ok(c_name) = CString::new(name.as_str()) else { continue };
        // SAFETY: loading runs the library's constructors; libcupti is designed to be loaded into any program.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | flags) };
        if handle.is_null() {
            // Reading the message clears it, so that the program's own dlerror does not return it.
            let reason = load_error();
            if flags == 0 {
                tried.push_str(&format!(" {reason};"));
            }
            continue;
        }
        match Cupti::bind(handle) {
            Ok(cupti) => return Ok((cupti, path_of(&cupti).unwrap_or_else(|| name.clone()))),
            Err(missing) => tried.push_str(&format!(" {name}: lacks {};", missing.to_string_lossy())),
        }
    }
    Err(tried)
}

fn load_error() -> String {
    // SAFETY: the text is valid until the thread's next call of the dl functions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn list(directory: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Returns the file that the functions were loaded from.
fn path_of(cupti: &Cupti) -> Option<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable, and all zeros is a value of the type.
    let info = unsafe {
        libc::dladdr(cupti.get_version as *const c_void, info.as_mut_ptr());
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name as long as the library is loaded, which is until the process ends.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}
