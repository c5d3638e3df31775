//! Samples the instructions that run on the GPU, and why their warps wait: `record --stalls`.
//!
//! CUPTI samples each context into a buffer in device memory. Its own threads read that buffer and add up the samples;
//! the sender collects the sums. If the hardware buffer overflows, no more samples arrive until sampling is disabled and
//! enabled again: that is done with twice the period, so that it does not happen all the time.
//!
//! CUPTI 13.0 on an H200 waits for ever if sampling is disabled while another thread launches, and so does that thread. So
//! that is done with the gate closed ([`crate::gate`]): it takes 50 ms, in which launches wait. Where launches do not return,
//! sampling stays enabled, and the memory that CUPTI may write to is not freed.
//!
//! The state has a lock, which the sender holds while it collects. A thread that creates or destroys a context may hold
//! locks of the driver that the sender waits for, so it waits for ours only for a limited time.
//!
//! If another process uses the counters, sampling can still be enabled, but after the first kernel CUPTI 13.0 delivers
//! neither callbacks nor records. So warpscope first requests the counters in a process of its own, which takes 0.15 to
//! 0.3 s, and enables sampling only if they are free. The hardware buffer is allocated by the first launch, so its size
//! cannot be measured around the call that enables sampling.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use cupti::ids::{domain, resource, result};
use cupti::pc_sampling::{
    Attribute, ConfigurationParams, ContextParams, Data, DataParams, Instruction, REASON_NAME, ReasonCount,
    ReasonCountParams, ReasonsParams, attribute, correlation_offset, instruction_stride,
};
use cupti::types::{CuptiResult, Subscriber};
use wire::{Notice, StallSampling};

use crate::library::{self, Cupti, PcSampling};
use crate::names::{NAMES_SEEN, Named};
use crate::notices::Notices;
use crate::queue::QUEUE;
use crate::{cubins, driver, environment, gate, lifecycle, sys, wakeup};

/// The hardware buffer of a context, in device memory.
const HARDWARE_BUFFER: u64 = 32 << 20;
/// Host memory in which CUPTI keeps data from it: about 90,000 instructions.
const SCRATCH: u64 = 16 << 20;
/// How often CUPTI's threads read it, in milliseconds.
const WORKER_SLEEP: u64 = 20;
/// Time between two collections.
const INTERVAL: u64 = 200_000_000;
/// The instructions that one call returns, and the most calls in a row.
const ROOM: usize = 2048;
const ROUNDS: usize = 256;
/// The most contexts that are sampled, and the most stall reasons.
const MOST_CONTEXTS: usize = 16;
const MOST_REASONS: usize = 256;
/// The longest period.
const LONGEST: u32 = 31;
/// How long the program's threads wait for the sender.
const PATIENCE: u64 = 1_000_000_000;
/// How long launches that have begun get to return before sampling is disabled.
const PATIENCE_TO_DISABLE: u64 = 100_000_000;

/// What CUPTI's names of stall reasons begin with.
const PREFIX: &[u8] = b"smsp__pcsamp_warps_issue_stalled_";
/// The end of the names of counts that are part of another one.
const PART: &[u8] = b"_not_issued";

/// The logarithm to base 2 of the cycles between two samples; 0 if kernels are not sampled.
static PERIOD: AtomicU32 = AtomicU32::new(0);

/// Kernels run one at a time, and samples identify their launch.
static SERIALISED: AtomicBool = AtomicBool::new(false);

/// Sampling has ended for this session: another client uses CUPTI, or has used it.
static ENDED: AtomicBool = AtomicBool::new(false);

static STATE: Mutex<State> = Mutex::new(State::new());

/// Contexts that were destroyed while the sender held the lock for too long: CUPTI must not be called for them any more.
static DESTROYED: [AtomicPtr<c_void>; MOST_CONTEXTS] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST_CONTEXTS];

fn is_destroyed(context: *mut c_void) -> bool {
    DESTROYED.iter().any(|destroyed| destroyed.load(Ordering::SeqCst) == context)
}

/// Replaces the first `old` by `new`.
fn note_destroyed(old: *mut c_void, new: *mut c_void) {
    let replaces =
        |place: &AtomicPtr<c_void>| place.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    // There are as many places as samplers.
    let _ = DESTROYED.iter().any(replaces);
}

struct State {
    samplers: Vec<Sampler>,
    /// The reasons whose samples are sent, by index.
    reasons: [bool; MOST_REASONS],
    totals: wire::StallTotals,
    sent: wire::StallTotals,
    /// When to collect next.
    due: u64,
}

impl State {
    const fn new() -> Self {
        const NOTHING: wire::StallTotals = wire::StallTotals {
            samples: 0,
            other_kernels: 0,
            dropped: 0,
            unsent: 0,
            full: 0,
            contexts: 0,
            refused: 0,
            buffer: 0,
            memory: 0,
            period: 0,
            cubins_refused: 0,
            serialised: 0,
        };
        Self { samplers: Vec::new(), reasons: [false; MOST_REASONS], totals: NOTHING, sent: NOTHING, due: 0 }
    }
}

/// A context that is sampled.
struct Sampler {
    context: *mut c_void,
    period: u32,
    /// The hardware buffer is full: no more samples arrive until sampling is enabled again.
    full: bool,
    /// Where CUPTI writes on request, and where it writes what is left when sampling is disabled.
    current: Buffer,
    last: Buffer,
}

// SAFETY: the pointers are to a context, which CUPTI accepts on any thread, and to memory that the sampler owns.
unsafe impl Send for Sampler {}

/// Room for instructions and their reasons.
struct Buffer {
    data: Box<Data>,
    /// What `data` points to.
    _instructions: Vec<u64>,
    _reasons: Vec<ReasonCount>,
}

impl Buffer {
    /// Returns `None` without memory.
    fn new(reasons: usize) -> Option<Self> {
        let stride = instruction_stride(library::cupti_version());
        let mut instructions: Vec<u64> = Vec::new();
        let mut all: Vec<ReasonCount> = Vec::new();
        instructions.try_reserve_exact(ROOM * stride / 8).ok()?;
        all.try_reserve_exact(ROOM * reasons).ok()?;
        instructions.resize(ROOM * stride / 8, 0);
        all.resize(ROOM * reasons, ReasonCount::default());
        for index in 0..ROOM {
            // SAFETY: both are within their vectors. An instruction is made of words, and all zeros is a value of it.
            unsafe {
                let instruction = instructions.as_mut_ptr().byte_add(index * stride).cast::<Instruction>();
                (*instruction).size = stride;
                (*instruction).reasons = all.as_mut_ptr().add(index * reasons);
            }
        }
        let data = Data {
            size: size_of::<Data>(),
            room: ROOM,
            samples: 0,
            dropped: 0,
            count: 0,
            remaining: 0,
            range: 0,
            instructions: instructions.as_mut_ptr().cast(),
            other_kernels: 0,
            full: 0,
        };
        Some(Self { data: Box::new(data), _instructions: instructions, _reasons: all })
    }

    /// Sends what CUPTI wrote, and empties the buffer.
    fn deliver(&mut self, reasons: &[bool; MOST_REASONS], totals: &mut wire::StallTotals) {
        let stride = instruction_stride(library::cupti_version());
        let serialised = SERIALISED.load(Ordering::Relaxed);
        let correlation = correlation_offset(library::cupti_version()).filter(|_| serialised);
        totals.other_kernels += self.data.other_kernels;
        totals.dropped += self.data.dropped;
        for index in 0..self.data.count.min(ROOM) {
            // SAFETY: CUPTI has filled in this many, at this distance.
            let at = unsafe { &*self.data.instructions.byte_add(index * stride).cast::<Instruction>() };
            let correlation = correlation.map_or(0, |offset| {
                // SAFETY: the release has this field there.
                unsafe { self.data.instructions.byte_add(index * stride + offset).cast::<u32>().read() }
            });
            deliver_one(at, correlation, reasons, totals);
        }
        (self.data.count, self.data.dropped, self.data.other_kernels, self.data.full) = (0, 0, 0, 0);
    }
}

fn deliver_one(at: &Instruction, correlation: u32, reasons: &[bool; MOST_REASONS], totals: &mut wire::StallTotals) {
    let name = match at.function.is_null() {
        true => c"",
        // SAFETY: CUPTI's names end in 0.
        false => unsafe { CStr::from_ptr(at.function) },
    };
    let function = match NAMES_SEEN.intern(name.to_bytes(), |message| QUEUE.append(message, 0)) {
        Named::Id(id) => Some(id),
        Named::Full | Named::Unsent => None,
    };
    for place in 0..at.reason_count.min(MOST_REASONS) {
        // SAFETY: CUPTI has filled in this many.
        let ReasonCount { index, samples } = unsafe { *at.reasons.add(place) };
        if samples == 0 || !reasons.get(index as usize).is_some_and(|wanted| *wanted) {
            continue;
        }
        totals.samples += u64::from(samples);
        let message = wire::StallSamples {
            cubin: at.cubin as u32,
            function: function.unwrap_or(0),
            offset: at.offset,
            reason: index,
            count: samples,
            correlation,
        };
        let mut bytes = [0; wire::StallSamples::SIZE];
        message.encode(&mut bytes);
        if function.is_none() || !QUEUE.append(&bytes, 0) {
            totals.unsent += u64::from(samples);
        }
    }
}

/// A call of CUPTI that failed, and its result.
struct Failed(&'static str, CuptiResult);

fn check(call: &'static str, outcome: CuptiResult) -> Result<(), Failed> {
    if outcome == result::SUCCESS { Ok(()) } else { Err(Failed(call, outcome)) }
}

/// Begins a session, which has not sampled anything.
pub fn begin() {
    PERIOD.store(0, Ordering::Relaxed);
    ENDED.store(false, Ordering::Relaxed);
    cubins::begin();
    if let Some(mut state) = lock() {
        *state = State::new();
    }
}

/// Enables the callbacks that sampling needs, if it was requested.
pub fn subscribe(cupti: &Cupti, subscriber: Subscriber, notices: &mut Notices) {
    let wanted = environment::variable(wire::STALLS_VARIABLE).and_then(|text| text.parse().ok());
    let Some(StallSampling { period, serialised }) = wanted else { return };
    if ENDED.load(Ordering::Relaxed) {
        return;
    }
    let Some(sampling) = &cupti.pc_sampling else {
        let text = format!("{} this libcupti has no PC sampling", result::NOT_SUPPORTED);
        notices.add(Notice::NoStalls, text);
        return;
    };
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { (sampling.register_identify)(cubins::identify) };
    for cbid in [resource::CONTEXT_CREATED, resource::CONTEXT_DESTROY_STARTING] {
        // SAFETY: the subscriber was just created.
        let outcome = unsafe { (cupti.enable_callback)(1, subscriber, domain::RESOURCE, cbid) };
        notices.check(cupti, "cuptiEnableCallback(RESOURCE)", outcome);
    }
    // Without the launches of samples, it would be slower for nothing.
    let identifies = correlation_offset(library::cupti_version()).is_some();
    if serialised && !identifies {
        notices.add(Notice::NoStalls, format!("{} CUPTI before 12.4", wire::NOT_SERIALISED));
    }
    SERIALISED.store(serialised && identifies, Ordering::Relaxed);
    PERIOD.store(period, Ordering::Relaxed);
    // Also if no context follows: then this is why there are no samples.
    if let Some(mut state) = lock() {
        state.totals.period = period.max(state.totals.period);
        state.report();
    }
}

/// Takes the lock; `None` if the sender does not release it in time.
fn lock() -> Option<MutexGuard<'static, State>> {
    let until = sys::now() + PATIENCE;
    loop {
        match STATE.try_lock() {
            Ok(state) => return Some(state),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if sys::now() < until => wakeup::pause_for(500_000),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// Handles a callback about a context.
pub fn on_context(cbid: u32, context: *mut c_void) {
    let period = PERIOD.load(Ordering::Relaxed);
    let Some(cupti) = library::cupti().filter(|_| period != 0 && !context.is_null()) else { return };
    let Some(sampling) = &cupti.pc_sampling else { return };
    let Some(mut state) = lock() else {
        if cbid != resource::CONTEXT_CREATED {
            note_destroyed(ptr::null_mut(), context);
        }
        return;
    };
    let state = &mut *state;
    state.forget_destroyed();
    if cbid == resource::CONTEXT_CREATED {
        // It may have the address of one that was not sampled.
        note_destroyed(context, ptr::null_mut());
        let before = driver::free_memory(context);
        let begun = match state.samplers.len() < MOST_CONTEXTS && state.samplers.try_reserve(1).is_ok() {
            true => Sampler::begin(sampling, context, period, &mut state.reasons),
            false => Err(Failed("too many contexts", result::MAX_LIMIT_REACHED)),
        };
        match begun {
            Ok(sampler) => {
                state.totals.contexts += 1;
                if let (Some(before), Some(after)) = (before, driver::free_memory(context)) {
                    state.totals.memory = state.totals.memory.max(before.saturating_sub(after));
                }
                (state.totals.buffer, state.totals.period) = (HARDWARE_BUFFER, period.max(state.totals.period));
                state.totals.serialised = SERIALISED.load(Ordering::Relaxed).into();
                state.samplers.push(sampler);
            }
            Err(failed) => state.refuse(cupti, &failed),
        }
        // Before the first kernel: whether samples identify their launch.
        state.report();
    } else if let Some(index) = state.samplers.iter().position(|sampler| sampler.context == context) {
        let sampler = state.samplers.swap_remove(index);
        state.end(sampling, sampler);
    }
}

/// Collects samples, if it is time to. Called by the sender.
pub fn tick() {
    if PERIOD.load(Ordering::Relaxed) != 0
        && let Ok(mut state) = STATE.try_lock()
        && sys::now() >= state.due
    {
        state.collect();
        state.due = sys::now() + INTERVAL;
    }
}

/// Ends sampling because another client is about to use CUPTI. Called by the sender.
pub fn step_aside() {
    if PERIOD.load(Ordering::Relaxed) != 0 {
        finish();
        let mut notices = Notices::default();
        let text = format!("{} another client uses CUPTI", result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
        notices.add(Notice::NoStalls, text);
        notices.send();
    }
    ENDED.store(true, Ordering::Relaxed);
}

/// Collects the last samples and ends sampling. Called by the sender.
pub fn finish() {
    let Some(sampling) = library::cupti().and_then(|cupti| cupti.pc_sampling.as_ref()) else { return };
    if PERIOD.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    let Some(mut state) = lock() else { return };
    state.forget_destroyed();
    for sampler in core::mem::take(&mut state.samplers) {
        state.end(sampling, sampler);
        lifecycle::advance();
    }
    state.report();
}

impl State {
    /// Removes the samplers of destroyed contexts. CUPTI may still write to their memory.
    fn forget_destroyed(&mut self) {
        while let Some(index) = self.samplers.iter().position(|sampler| is_destroyed(sampler.context)) {
            let sampler = self.samplers.swap_remove(index);
            note_destroyed(sampler.context, ptr::null_mut());
            core::mem::forget(sampler);
        }
    }

    /// Collects the samples of all contexts.
    fn collect(&mut self) {
        let Some(cupti) = library::cupti() else { return };
        let Some(sampling) = &cupti.pc_sampling else { return };
        self.forget_destroyed();
        for mut sampler in core::mem::take(&mut self.samplers) {
            if is_destroyed(sampler.context) {
                self.samplers.push(sampler);
                continue;
            }
            let outcome = match self.collect_from(sampling, &mut sampler) {
                result::OUT_OF_MEMORY => self.restart(sampling, &mut sampler),
                outcome => check("cuptiPCSamplingGetData", outcome),
            };
            match outcome {
                Ok(()) => self.samplers.push(sampler),
                Err(failed) => {
                    self.end(sampling, sampler);
                    self.refuse(cupti, &failed);
                }
            }
        }
        self.report();
    }

    /// Begins again after the hardware buffer was full, with twice the period. If launches do not return, the next collection
    /// tries again.
    fn restart(&mut self, sampling: &PcSampling, sampler: &mut Sampler) -> Result<(), Failed> {
        let mut enabled = Ok(());
        gate::close_for(PATIENCE_TO_DISABLE, || {
            self.disable(sampling, sampler);
            sampler.period = (sampler.period + 1).min(LONGEST);
            sampler.full = false;
            self.totals.period = self.totals.period.max(sampler.period);
            enabled = sampler.enable(sampling, &mut self.reasons);
        });
        enabled
    }

    /// Collects the samples of a context; returns the result of the last call.
    fn collect_from(&mut self, sampling: &PcSampling, sampler: &mut Sampler) -> CuptiResult {
        for _ in 0..ROUNDS {
            let of = ContextParams { size: size_of::<DataParams>(), ..ContextParams::new(sampler.context) };
            let mut params = DataParams { of, data: &mut *sampler.current.data };
            // SAFETY: the context is sampled, and the buffer has the room that it states.
            let outcome = unsafe { (sampling.get_data)(&mut params) };
            let remaining = sampler.current.data.remaining;
            sampler.current.deliver(&self.reasons, &mut self.totals);
            let full = outcome == result::OUT_OF_MEMORY;
            self.totals.full += u64::from(full && !sampler.full);
            sampler.full |= full;
            if outcome != result::SUCCESS || remaining == 0 {
                return outcome;
            }
        }
        result::SUCCESS
    }

    /// Collects the last samples of a context, and disables sampling while no launch is under way.
    fn end(&mut self, sampling: &PcSampling, mut sampler: Sampler) {
        self.collect_from(sampling, &mut sampler);
        lifecycle::advance();
        if !gate::close_for(PATIENCE_TO_DISABLE, || self.disable(sampling, &mut sampler)) {
            // CUPTI's threads have read everything by then.
            wakeup::pause_for(2 * WORKER_SLEEP * 1_000_000);
            self.collect_from(sampling, &mut sampler);
            core::mem::forget(sampler);
        }
    }

    /// Disables sampling, and collects what was left. Called while no launch is under way.
    fn disable(&mut self, sampling: &PcSampling, sampler: &mut Sampler) {
        // SAFETY: the context is sampled.
        unsafe { (sampling.disable)(&mut ContextParams::new(sampler.context)) };
        sampler.last.deliver(&self.reasons, &mut self.totals);
    }

    /// Counts a context that cannot be sampled, and says why for the first.
    fn refuse(&mut self, cupti: &Cupti, Failed(call, outcome): &Failed) {
        if self.totals.refused == 0 {
            let mut notices = Notices::default();
            notices.add(Notice::NoStalls, format!("{outcome} {call}: {}", cupti.describe(*outcome)));
            notices.send();
        }
        self.totals.refused += 1;
    }

    /// Sends the totals, if they have changed.
    fn report(&mut self) {
        self.totals.cubins_refused = cubins::refused();
        if self.totals != self.sent {
            let mut bytes = [0; wire::StallTotals::SIZE];
            self.totals.encode(&mut bytes);
            if QUEUE.append(&bytes, 0) {
                self.sent = self.totals;
            }
        }
    }
}

impl Sampler {
    fn begin(
        sampling: &PcSampling,
        context: *mut c_void,
        period: u32,
        reasons: &mut [bool; MOST_REASONS],
    ) -> Result<Self, Failed> {
        let no_memory = || Failed("no memory", result::OUT_OF_MEMORY);
        let buffer = || Buffer::new(MOST_REASONS_RETURNED).ok_or_else(no_memory);
        let mut sampler = Self { context, period, full: false, current: buffer()?, last: buffer()? };
        sampler.enable(sampling, reasons)?;
        Ok(sampler)
    }

    /// Enables sampling. If that fails, sampling is disabled.
    fn enable(&mut self, sampling: &PcSampling, reasons: &mut [bool; MOST_REASONS]) -> Result<(), Failed> {
        let mut params = ContextParams::new(self.context);
        // SAFETY: the context exists.
        check("cuptiPCSamplingEnable", unsafe { (sampling.enable)(&mut params) })?;
        let configured = announce(sampling, self.context, reasons).and_then(|()| self.configure(sampling));
        if configured.is_err() {
            // SAFETY: as above.
            unsafe { (sampling.disable)(&mut params) };
        }
        configured
    }

    fn configure(&mut self, sampling: &PcSampling) -> Result<(), Failed> {
        let last: *mut Data = &mut *self.last.data;
        let mode = match SERIALISED.load(Ordering::Relaxed) {
            true => attribute::SERIALISED,
            false => attribute::CONTINUOUS,
        };
        let mut attributes = [
            Attribute::new(attribute::PERIOD, self.period.into()),
            Attribute::new(attribute::HARDWARE_BUFFER, HARDWARE_BUFFER),
            Attribute::new(attribute::SCRATCH, SCRATCH),
            Attribute::new(attribute::MODE, mode),
            Attribute::new(attribute::DATA, last.expose_provenance() as u64),
            // Last: releases before 11.8 do not know it.
            Attribute::new(attribute::WORKER_SLEEP, WORKER_SLEEP),
        ];
        let of = ContextParams { size: size_of::<ConfigurationParams>(), ..ContextParams::new(self.context) };
        let mut params = ConfigurationParams { of, count: attributes.len(), attributes: attributes.as_mut_ptr() };
        // SAFETY: the context is sampled, and the attributes are as many as stated.
        check("cuptiPCSamplingSetConfigurationAttribute", unsafe { (sampling.configure)(&mut params) })
    }
}

/// The most reasons that an instruction can have.
const MOST_REASONS_RETURNED: usize = 64;

/// Sends the names of the stall reasons, once.
fn announce(sampling: &PcSampling, context: *mut c_void, known: &mut [bool; MOST_REASONS]) -> Result<(), Failed> {
    let mut count = 0;
    let of = ContextParams { size: size_of::<ReasonCountParams>(), ..ContextParams::new(context) };
    let mut params = ReasonCountParams { of, count: &mut count };
    // SAFETY: the context is sampled, and the number is writable.
    check("cuptiPCSamplingGetNumStallReasons", unsafe { (sampling.get_reason_count)(&mut params) })?;
    // Each instruction has room for this many.
    if count > MOST_REASONS_RETURNED {
        return Err(Failed("too many stall reasons", result::MAX_LIMIT_REACHED));
    }
    let mut texts = [[0 as c_char; REASON_NAME]; MOST_REASONS_RETURNED];
    let mut names = [ptr::null_mut(); MOST_REASONS_RETURNED];
    let mut indexes = [u32::MAX; MOST_REASONS_RETURNED];
    names.iter_mut().zip(&mut texts).for_each(|(name, text)| *name = text.as_mut_ptr());
    let of = ContextParams { size: size_of::<ReasonsParams>(), ..ContextParams::new(context) };
    let mut params = ReasonsParams { of, count, indexes: indexes.as_mut_ptr(), names: names.as_mut_ptr() };
    // SAFETY: both arrays have at least `count` entries, and each name its room.
    check("cuptiPCSamplingGetStallReasons", unsafe { (sampling.get_reasons)(&mut params) })?;
    for (index, text) in indexes.iter().zip(&mut texts).take(count) {
        text[REASON_NAME - 1] = 0;
        // SAFETY: the last byte is 0.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_bytes();
        let Some(name) = text.strip_prefix(PREFIX).filter(|name| !name.ends_with(PART)) else { continue };
        let Some(wanted) = known.get_mut(*index as usize).filter(|wanted| !**wanted) else { continue };
        let mut bytes = [0; 7 + REASON_NAME];
        wire::encode_stall_reason(*index, name, &mut bytes);
        *wanted = QUEUE.append(&bytes[..wire::text_size(name)], 0);
    }
    Ok(())
}
