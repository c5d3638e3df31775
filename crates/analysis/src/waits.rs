//! Time off the CPU: what threads waited for.

use cuda::calls::Role;
use model::{
    event::{Counter, CounterId, CounterPoint, NamedFrame, OFF_CPU, PointId, ProcessId, SHORT_WAITS, StackId},
    profile::Profile,
};

use crate::idle_pools;

/// Threads that could have run.
pub const CPU: &str = "[waiting for a CPU]";
/// Page faults.
const MEMORY: &str = "[waiting for memory]";
/// Waits whose reason is not in the recording.
pub const WAITING: &str = "[waiting]";
/// Waits in a call that waits for the GPU.
const GPU: &str = "[waiting for the GPU]";

/// Whether an event is the time off the CPU.
pub fn is_off_cpu(counter: &Counter) -> bool {
    counter.source == OFF_CPU
}

/// Returns what to call the hits of an event, one and several.
pub fn hits(source: &str) -> (&'static str, &'static str) {
    if source == OFF_CPU { ("wait", "waits") } else { ("hit", "hits") }
}

/// Returns the counter of the time off the CPU, if it was recorded.
pub fn counter(profile: &Profile) -> Option<CounterId> {
    profile.counters.all.values().find(|counter| is_off_cpu(counter)).map(|counter| counter.id)
}

/// Whether a reason has no stack.
pub fn without_stack(reason: &CounterPoint) -> bool {
    reason.function == SHORT_WAITS
}

/// Returns the innermost frame of a CPU sample in a call that waits for the GPU: such a call may spin. One that copies may
/// also do so, but it may as well copy.
pub fn spinning(stack: &[NamedFrame]) -> Option<&'static str> {
    let synchronizes = |frame: &NamedFrame| cuda::call(&frame.name).is_some_and(|call| call.role == Role::Synchronize);
    stack.iter().any(synchronizes).then_some(GPU)
}

/// Returns the innermost frame of a wait: its reason. In a call that waits for the GPU, the driver may wait in any way; so
/// may a thread of a pool that waits for work.
pub fn reason<'a>(reason: &'a CounterPoint, stack: &[NamedFrame]) -> &'a str {
    let waits_for_gpu = |frame: &NamedFrame| {
        cuda::call(&frame.name).is_some_and(|call| matches!(call.role, Role::Synchronize | Role::Copy))
    };
    match &*reason.function {
        reason @ (CPU | MEMORY | SHORT_WAITS) => reason,
        _ if stack.iter().any(waits_for_gpu) => GPU,
        _ if idle_pools::is_idle(stack) => idle_pools::WORK,
        reason => reason,
    }
}

/// Returns the reason of a wait, by its point and its stack.
pub fn reason_of(profile: &Profile, point: PointId, stack: Option<StackId>) -> &str {
    match (profile.counters.points.get(&point), stack) {
        (Some(point), Some(stack)) => reason(point, &profile.frames(stack)),
        (Some(point), None) => &point.function,
        (None, _) => WAITING,
    }
}

/// The waits of one stack for one reason.
pub(crate) struct Waited<'a> {
    /// The image.
    pub process: ProcessId,
    /// Absent for short waits, which have none.
    pub stack: Option<StackId>,
    /// What they waited for.
    pub reason: &'a str,
    /// Their time.
    pub ns: u64,
    /// Their number.
    pub count: u64,
}

/// Returns all time off the CPU, except that of warpscope's own code.
pub(crate) fn all(profile: &Profile) -> impl Iterator<Item = Waited<'_>> {
    let hits = counter(profile).into_iter().flat_map(|id| profile.counters.of(id));
    hits.filter(|(_, _, stack, _)| !profile.is_injected(*stack)).map(|(point, process, stack, hits)| {
        let stack = (!without_stack(point)).then_some(stack);
        let reason = reason_of(profile, point.id, stack);
        Waited { process, stack, reason, ns: hits.weight, count: hits.count }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::FrameKind;

    /// Check that a wait in a synchronising call is one for the GPU, unless the thread could have run.
    #[test]
    fn waits_in_synchronising_calls_are_for_the_gpu() {
        let point = |function: &str| CounterPoint { function: function.into(), ..CounterPoint::default() };
        let stack = |names: &[&str]| -> Vec<NamedFrame> {
            let frame = |name: &&str| NamedFrame { kind: FrameKind::Native, name: (*name).into(), module: "".into() };
            names.iter().map(frame).collect()
        };
        let synchronize = stack(&["main", "cudaStreamSynchronize", "[libcuda.so]", "poll"]);
        for reason in ["[waiting for a lock]", "[waiting for events]", "[waiting]"] {
            assert_eq!(super::reason(&point(reason), &synchronize), GPU);
            assert_eq!(super::reason(&point(reason), &stack(&["main", "poll"])), reason);
        }
        assert_eq!(reason(&point(CPU), &synchronize), CPU);
        assert_eq!(spinning(&synchronize), Some(GPU));
        assert_eq!(spinning(&stack(&["main", "cudaMemcpy", "memcpy"])), None);
    }
}
