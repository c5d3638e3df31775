//! Converts the sums in the kernel to events.

use bpf::{Recorder, calls::ErrorSum as ErrorCount};
use cuda::calls::KernelRef;
use model::{
    calls::Memory,
    event::{ErrorSum, Event, FunctionId, KernelSum, MemorySum, ProcessId, Sum},
};

/// Reads the sums from the kernel and pushes them as events.
pub fn read(recorder: &Recorder, push: &mut dyn FnMut(Event)) {
    for sum in recorder.sums() {
        push(Event::Sum(Sum {
            function: FunctionId(sum.function),
            process: ProcessId(sum.image),
            class: sum.class,
            nested: sum.nested,
            count: sum.count,
            errors: sum.errors,
            ns: sum.ns,
            max_ns: sum.max_ns,
            min_ns: sum.min_ns,
            bytes: sum.bytes,
            self_ns: sum.self_ns,
            outer_ns: sum.outer_ns,
            buckets: sum.buckets,
        }));
    }
    for sum in recorder.error_sums() {
        let function = FunctionId(sum.function);
        let ErrorCount { code, enclosed, count, .. } = sum;
        push(Event::ErrorSum(ErrorSum { function, code, enclosed, count }));
    }
    for sum in recorder.memory_sums() {
        let memory = Memory {
            allocations: sum.allocations,
            bytes: sum.allocated_bytes,
            failed: sum.failed,
            frees: sum.frees,
            failed_frees: sum.failed_frees,
            unknown_frees: sum.unknown_frees,
            missed_frees: sum.missed_frees,
            released: sum.released,
            untracked: sum.untracked,
            live: sum.live,
            live_bytes: sum.live_bytes,
            peak_bytes: sum.peak_bytes,
        };
        let (process, space) = (ProcessId(sum.image), sum.space as u8);
        push(Event::MemorySum(MemorySum { process, space, memory }));
    }
    for sum in recorder.kernel_sums() {
        let kernel = match (sum.address, sum.handle) {
            (0, _) => None,
            (address, true) => Some(KernelRef::Handle(address)),
            (address, false) => Some(KernelRef::HostStub(address)),
        };
        let process = ProcessId(sum.image);
        push(Event::KernelSum(KernelSum { process, kernel, count: sum.count }));
    }
}
