//! PC sampling: each run of a kernel adds the samples that the script defines. They are counted when the kernel is
//! launched, so that their number does not depend on timing.
//!
//! Where CUPTI 13.0 would wait for ever, because sampling is disabled while another thread launches, this ends the
//! process.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cupti::ids::result;
use cupti::pc_sampling::{
    ConfigurationParams, ContextParams, Data, DataParams, IdentifyCubin, Instruction, REASON_NAME, ReasonCount,
    ReasonCountParams, ReasonsParams, attribute, correlation_offset, instruction_stride,
};

use super::{code, gpu};
use crate::activity::{Activity, Detail};
use crate::script::{PmFault, StallFault};

/// The reasons, without their prefix. The index of a reason is not its place in the answer of CUPTI.
const REASONS: [&str; 19] = [
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instructions",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
    "warpgroup_arrive",
];

/// All names by index: two that are no stall reasons, then each reason and the part of its samples at which no warp of
/// the scheduler issued.
fn names() -> Vec<String> {
    let other = ["smsp__pcsamp_sample_count".to_owned(), "smsp__pcsamp_samples_data_dropped".to_owned()];
    let reason = |name: &str| format!("smsp__pcsamp_warps_issue_stalled_{name}");
    let both = REASONS.iter().flat_map(|name| [reason(name), reason(&format!("{name}_not_issued"))]);
    other.into_iter().chain(both).collect()
}

fn index(reason: &str) -> Option<u32> {
    REASONS.iter().position(|name| *name == reason).map(|place| 2 + 2 * place as u32)
}

/// The device memory that CUPTI takes besides the hardware buffer, as on an H200.
const MEMORY: u64 = 70 << 20;

/// The correlation id of a launch, 0 in continuous mode; a function, and an offset in it.
type Place = (u32, &'static CStr, u64);

/// A context that is sampled.
#[derive(Default)]
struct Sampled {
    /// Samples by instruction and reason, not collected yet.
    sums: BTreeMap<Place, BTreeMap<u32, u32>>,
    dropped: u64,
    samples: u64,
    /// The hardware buffer is full.
    full: bool,
    /// Device memory in use for it.
    memory: u64,
    /// Where the rest goes at the end: the address of a [`Data`].
    rest: usize,
    /// The mode that was configured.
    mode: u64,
    /// Runs of each kernel.
    runs: BTreeMap<&'static CStr, u64>,
}

static CONTEXTS: Mutex<BTreeMap<u32, Sampled>> = Mutex::new(BTreeMap::new());
static IDENTIFY: OnceLock<IdentifyCubin> = OnceLock::new();
/// The identity of the last cubin that was loaded.
static CUBIN: AtomicU64 = AtomicU64::new(0);
/// Another tool used the counters when a sampled kernel was launched. As CUPTI 13.0 on an H200, this one reports nothing any
/// more, although sampling could be enabled.
static LOST: AtomicBool = AtomicBool::new(false);
/// Calls of `cuptiPCSamplingGetData`.
static CALLS: AtomicU64 = AtomicU64::new(0);

fn contexts() -> MutexGuard<'static, BTreeMap<u32, Sampled>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A module with this cubin was loaded.
pub fn loaded(cubin: &[u8]) {
    if let Some(identify) = IDENTIFY.get() {
        let mut identity = 0;
        // SAFETY: the client registered the function for this purpose; the bytes are as many as stated.
        unsafe { identify(cubin.as_ptr().cast(), cubin.len(), &mut identity) };
        CUBIN.store(identity, Ordering::Relaxed);
    }
}

/// Whether CUPTI reports nothing any more.
pub fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// A kernel was launched.
pub fn launched(activity: &Activity) {
    let (Detail::Kernel { name, .. }, Ok(gpu)) = (activity.detail, gpu()) else { return };
    let script = (gpu.script)();
    if script.pm_fault == Some(PmFault::Busy) && contexts().contains_key(&activity.context) {
        LOST.store(true, Ordering::Relaxed);
        return;
    }
    if script.stalls.is_empty() || name.is_null() {
        return;
    }
    let mut contexts = contexts();
    let Some(sampled) = contexts.get_mut(&activity.context).filter(|sampled| !sampled.full) else { return };
    // SAFETY: the names of kernels are never freed.
    let function = unsafe { CStr::from_ptr::<'static>(name) };
    let drop = script.stall_drop.occurs();
    let correlation = if sampled.mode == attribute::SERIALISED { activity.correlation } else { 0 };
    let run = sampled.runs.entry(function).or_default();
    *run += 1;
    let run = *run;
    let of_run = script.stalls.iter().filter(|stall| stall.runs.contains(&run));
    for stall in of_run.filter(|stall| stall.function.as_bytes() == function.to_bytes()) {
        sampled.samples += u64::from(stall.samples);
        if drop {
            sampled.dropped += u64::from(stall.samples);
        } else if let Some(reason) = index(&stall.reason) {
            let reasons = sampled.sums.entry((correlation, function, stall.offset)).or_default();
            *reasons.entry(reason).or_default() += stall.samples;
            *reasons.entry(reason + 1).or_default() += stall.samples / 2;
        }
    }
}

fn context(of: &ContextParams, size: usize) -> Result<u32, u32> {
    if of.size != size {
        return Err(result::INVALID_PARAMETER);
    }
    let gpu = gpu()?;
    (gpu.context_ids)(of.context).map(|(id, _)| id).ok_or(result::INVALID_PARAMETER)
}

fn sampled<R>(of: &ContextParams, size: usize, work: impl FnOnce(&mut Sampled) -> Result<R, u32>) -> Result<R, u32> {
    let id = context(of, size)?;
    if is_lost() {
        return Err(result::UNKNOWN);
    }
    work(contexts().get_mut(&id).ok_or(code::INVALID_OPERATION)?)
}

/// Writes as many sums as fit.
fn write(sampled: &mut Sampled, data: *mut Data) -> Result<(), u32> {
    // SAFETY: the client passes its structure, or null.
    let data =
        unsafe { data.as_mut() }.filter(|data| data.size == size_of::<Data>()).ok_or(result::INVALID_PARAMETER)?;
    let version = (gpu()?.script)().release.version;
    let stride = instruction_stride(version);
    (data.count, data.samples, data.dropped) = (0, sampled.samples, sampled.dropped);
    (sampled.samples, sampled.dropped) = (0, 0);
    while data.count < data.room
        && let Some(((correlation, function, offset), reasons)) = sampled.sums.pop_first()
    {
        // SAFETY: the client provides `room` instructions at this distance, each with room for all reasons.
        unsafe {
            let place = data.instructions.byte_add(data.count * stride);
            let at = &mut *place.cast::<Instruction>();
            if at.size != stride {
                return Err(result::INVALID_PARAMETER);
            }
            (at.cubin, at.offset, at.function) = (CUBIN.load(Ordering::Relaxed), offset, function.as_ptr());
            at.reason_count = reasons.len();
            for (place, (index, samples)) in reasons.into_iter().enumerate() {
                *at.reasons.add(place) = ReasonCount { index, samples };
            }
            if let Some(offset) = correlation_offset(version) {
                place.byte_add(offset).cast::<u32>().write(correlation);
            }
        }
        data.count += 1;
    }
    data.remaining = sampled.sums.len();
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingEnable(params: *mut ContextParams) -> u32 {
    // SAFETY: the client passes its structure.
    let params = unsafe { &*params };
    code(context(params, size_of::<ContextParams>()).and_then(|id| {
        match (gpu()?.script)().stall_fault {
            Some(StallFault::Permission) => return Err(result::INSUFFICIENT_PRIVILEGES),
            Some(StallFault::Unsupported) => return Err(result::NOT_SUPPORTED),
            Some(StallFault::Busy) => return Err(result::HARDWARE_BUSY),
            None => {}
        }
        let mut contexts = contexts();
        if contexts.contains_key(&id) {
            return Err(code::INVALID_OPERATION);
        }
        contexts.insert(id, Sampled { memory: MEMORY, mode: attribute::CONTINUOUS, ..Sampled::default() });
        (gpu()?.take_memory)(params.context, MEMORY);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingDisable(params: *mut ContextParams) -> u32 {
    // SAFETY: the client passes its structure.
    let params = unsafe { &*params };
    code(context(params, size_of::<ContextParams>()).and_then(|id| {
        // CUPTI 13.0 and the thread that launches wait for each other for ever; here it ends the process.
        gpu()?.switches.require_quiet("PC sampling was disabled");
        let mut sampled = contexts().remove(&id).ok_or(code::INVALID_OPERATION)?;
        (gpu()?.take_memory)(params.context, sampled.memory.wrapping_neg());
        let rest = std::ptr::with_exposed_provenance_mut(sampled.rest);
        if sampled.rest == 0 { Ok(()) } else { write(&mut sampled, rest) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingSetConfigurationAttribute(params: *mut ConfigurationParams) -> u32 {
    // SAFETY: the client passes its structure.
    let params = unsafe { &*params };
    code(sampled(&params.of, size_of::<ConfigurationParams>(), |sampled| {
        for place in 0..params.count {
            // SAFETY: the client passes this many attributes.
            let attribute = unsafe { &mut *params.attributes.add(place) };
            match (attribute.kind, attribute.value[0]) {
                (attribute::PERIOD, 5..=31) => {}
                (attribute::MODE, mode @ (attribute::CONTINUOUS | attribute::SERIALISED)) => sampled.mode = mode,
                (attribute::SCRATCH | attribute::WORKER_SLEEP, 1..) => {}
                (attribute::HARDWARE_BUFFER, bytes @ 1..) => {
                    (gpu()?.take_memory)(params.of.context, bytes);
                    sampled.memory += bytes;
                }
                (attribute::DATA, data) => sampled.rest = data as usize,
                _ => {
                    attribute.status = code::INVALID_OPERATION;
                    return Err(result::INVALID_PARAMETER);
                }
            }
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingGetData(params: *mut DataParams) -> u32 {
    // SAFETY: the client passes its structure.
    let params = unsafe { &*params };
    code(sampled(&params.of, size_of::<DataParams>(), |sampled| {
        let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
        sampled.full |= (gpu()?.script)().stall_full == Some(call);
        if !sampled.full {
            return write(sampled, params.data);
        }
        // What was in the buffer is lost.
        sampled.sums.clear();
        // SAFETY: the client passes its structure, or null.
        let data = unsafe { params.data.as_mut() }.ok_or(result::INVALID_PARAMETER)?;
        (data.count, data.remaining, data.full) = (0, 0, 1);
        Err(result::OUT_OF_MEMORY)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingGetNumStallReasons(params: *mut ReasonCountParams) -> u32 {
    // SAFETY: the client passes its structure.
    let params = unsafe { &*params };
    code(sampled(&params.of, size_of::<ReasonCountParams>(), |_| {
        // SAFETY: the client passes the address of its number.
        unsafe { *params.count = names().len() };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiPCSamplingGetStallReasons(params: *mut ReasonsParams) -> u32 {
    // SAFETY: the client passes its structure.
    let params = unsafe { &*params };
    code(sampled(&params.of, size_of::<ReasonsParams>(), |_| {
        for (place, (index, name)) in names().iter().enumerate().rev().enumerate().take(params.count) {
            // SAFETY: the client passes arrays of this length, with room for each name.
            unsafe {
                *params.indexes.add(place) = index as u32;
                let to = (*params.names.add(place)).cast::<u8>();
                std::ptr::write_bytes(to, 0, REASON_NAME);
                std::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len().min(REASON_NAME - 1));
            }
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiRegisterComputeCrcCallback(identify: Option<IdentifyCubin>) -> u32 {
    code(identify.ok_or(result::INVALID_PARAMETER).map(|identify| {
        let _ = IDENTIFY.set(identify);
    }))
}
