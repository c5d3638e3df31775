//! Why GPUs were idle, by line of user code. `model::idle` explains how idle time is charged.

use std::collections::BTreeMap;

use model::{
    idle::{Cause, Charge, IdleWeight, Phase},
    profile::{DeviceInfo, Profile},
};
use serde::Serialize;
use text::units::share;

use crate::{
    idle_pools,
    user_code::{Place, UserCode},
    waits,
};

/// The maximum number of causes that are listed; the rest is added up.
const MAX_CAUSES: usize = 100;

/// The idle time of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceIdle {
    /// The GPU's number.
    pub device: u32,
    /// The same as shown.
    pub label: String,
    /// From the start of its first work to the end of its last.
    pub span_ns: u64,
    /// Of that, the time in which nothing ran.
    pub idle_ns: u64,
    /// The same as a share of `span_ns`, 0 to 1.
    pub idle_share: f64,
    /// Of `idle_ns`, what is charged by intervals: launches and recorded waits.
    pub exact_ns: u64,
    /// Of `idle_ns`, what is charged by samples.
    pub sampled_ns: u64,
    /// Of `idle_ns`, what there is no evidence for.
    pub unknown_ns: u64,
    /// What `idle_ns` is charged to. The parts add up to it.
    pub causes: Vec<IdleCause>,
    /// From the start of the recording to its first work; not part of `idle_ns`.
    pub before_ns: u64,
    /// What `before_ns` is charged to.
    pub before: Vec<IdleCause>,
    /// From its last work to the end of the recording; not part of `idle_ns`.
    pub after_ns: u64,
}

/// What idle time is charged to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleCause {
    /// What the thread that feeds the GPU did, or another one meanwhile.
    pub cause: ThreadState,
    /// Why it waited, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The innermost line of user code, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Idle time.
    pub ns: u64,
    /// Its share of the recorded time.
    pub share: f64,
    /// The samples that it is based on.
    pub samples: u64,
    /// For launches, the gaps; otherwise absent.
    #[serde(skip_serializing_if = "is_default")]
    pub gaps: u64,
    /// The longest of them.
    #[serde(skip_serializing_if = "is_default")]
    pub longest_ns: u64,
    /// The longest was before the first run of a kernel.
    #[serde(skip_serializing_if = "is_default")]
    pub first_use: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a thread did while its GPU was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadState {
    /// It ran, as samples show.
    Running,
    /// It waited.
    Waiting,
    /// It launched the work that ended the gap.
    Launching,
    /// Nothing is known about it, but another thread of its process ran meanwhile, as samples show.
    Meanwhile,
    /// There is no evidence.
    Unknown,
    /// Several causes, added up.
    Other,
}

impl ThreadState {
    /// Returns its name, as in JSON.
    pub fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Launching => "launching",
            Self::Meanwhile => "meanwhile",
            Self::Unknown => "unknown",
            Self::Other => "other",
        }
    }
}

/// Returns the idle times of the GPUs that worked. Empty if GPU work was recorded only part of the time: the gaps between
/// the recorded parts are not idle time.
pub fn of(profile: &Profile, code: &UserCode<'_>) -> Vec<DeviceIdle> {
    if profile.is_trace() || profile.sampled.estimated.launches > 0 {
        return Vec::new();
    }
    // In a time range, a GPU may have done nothing at all between its work before and after it.
    let worked = |info: &DeviceInfo| info.busy_ns > 0 || info.idle.of(Phase::Between) > 0;
    let working = profile.devices.iter().filter(|(_, info)| worked(info));
    working.map(|(device, info)| of_device(profile, code, *device, info)).collect()
}

fn of_device(profile: &Profile, code: &UserCode<'_>, device: u32, info: &DeviceInfo) -> DeviceIdle {
    let idle = &info.idle;
    let idle_ns = idle.of(Phase::Between);
    let span_ns = info.busy_ns.saturating_add(idle_ns);
    let parts = |phase| idle.parts_of(phase).map(|(charge, weight)| (explained(profile, charge), *weight));
    let sum = |wanted: &dyn Fn(Cause) -> bool| {
        let all = parts(Phase::Between).filter(|(charge, _)| wanted(charge.cause));
        all.fold(0_u64, |sum, (_, weight)| sum.saturating_add(weight.ns))
    };
    DeviceIdle {
        device,
        label: info.label.clone(),
        span_ns,
        idle_ns,
        idle_share: share(idle_ns, span_ns),
        exact_ns: sum(&Cause::is_exact),
        sampled_ns: sum(&|cause| matches!(cause, Cause::Running | Cause::Meanwhile)),
        unknown_ns: sum(&|cause| cause == Cause::Unknown),
        causes: causes(profile, code, parts(Phase::Between)),
        before_ns: idle.of(Phase::Before),
        before: causes(profile, code, parts(Phase::Before)),
        after_ns: idle.of(Phase::After),
    }
}

/// Returns what idle time is charged to, by the names of frames. A thread of warpscope or CUPTI, or one that spins until it
/// gets work, explains nothing by running meanwhile.
pub fn explained(profile: &Profile, charge: &Charge) -> Charge {
    let is_idle = |stack| profile.is_own_cost(stack) || idle_pools::is_idle(&profile.frames(stack));
    match (charge.cause, charge.stack) {
        (Cause::Meanwhile, Some(stack)) if is_idle(stack) => Charge { cause: Cause::Unknown, stack: None, ..*charge },
        _ => *charge,
    }
}

/// Adds up idle time by what was done and where, the longest first.
fn causes(profile: &Profile, code: &UserCode<'_>, parts: impl Iterator<Item = (Charge, IdleWeight)>) -> Vec<IdleCause> {
    let whole = profile.wall_ns();
    let mut sums: BTreeMap<(ThreadState, Option<String>, Option<Place>), IdleWeight> = BTreeMap::new();
    for (charge, weight) in parts {
        let (doing, reason) = state(profile, &charge);
        let place = charge.stack.map(|stack| code.place(charge.process, stack));
        sums.entry((doing, reason, place)).or_default().add(&weight);
    }
    let cause = |((cause, reason, place), weight): (_, IdleWeight)| IdleCause {
        cause,
        reason,
        place,
        ns: weight.ns,
        share: share(weight.ns, whole),
        samples: weight.samples,
        gaps: weight.gaps,
        longest_ns: weight.longest_ns,
        first_use: weight.first_use,
    };
    let mut all: Vec<IdleCause> = sums.into_iter().map(cause).collect();
    all.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
    if all.len() > MAX_CAUSES {
        let rest = all.split_off(MAX_CAUSES - 1);
        let ns = rest.iter().fold(0_u64, |sum, cause| sum.saturating_add(cause.ns));
        all.push(IdleCause {
            cause: ThreadState::Other,
            reason: None,
            place: None,
            ns,
            share: share(ns, whole),
            samples: rest.iter().map(|cause| cause.samples).sum(),
            gaps: 0,
            longest_ns: 0,
            first_use: false,
        });
    }
    all
}

/// Returns what a thread did, and why it waited, if it did.
pub fn state(profile: &Profile, charge: &Charge) -> (ThreadState, Option<String>) {
    match charge.cause {
        Cause::Launching => (ThreadState::Launching, None),
        Cause::Running => (ThreadState::Running, None),
        Cause::Meanwhile => (ThreadState::Meanwhile, None),
        Cause::Unknown => (ThreadState::Unknown, None),
        Cause::Waiting(_) => (ThreadState::Waiting, Some(wait_reason(profile, charge))),
    }
}

/// Returns why a thread waited.
pub fn wait_reason(profile: &Profile, charge: &Charge) -> String {
    match charge.cause {
        Cause::Waiting(reason) => waits::reason_of(profile, reason, charge.stack),
        _ => waits::WAITING,
    }
    .to_owned()
}
