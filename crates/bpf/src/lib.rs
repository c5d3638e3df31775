//! The only crate that talks to the kernel's eBPF: programs, probes, the ring buffer, and what this kernel allows.
//!
//! [`Recorder`] follows processes, samples CPUs, watches a marker function and traces calls; [`Mappings`] reports every file
//! mapped as code; [`features`] says what this kernel supports.
//!
//! What a function of CUDA does is passed in ([`calls::Gather`]). The programs themselves know how calls change live memory
//! and contexts (`memory.h`), the result "not ready" (`sums.h`) and the names of the driver's devices (`driver.h`).

mod breakpoint;
mod btf;
pub mod calls;
mod cause;
mod contract;
mod cost;
mod counting;
mod error;
pub mod features;
mod handover;
mod hits;
mod hooks;
mod links;
mod map;
mod mappings;
mod options;
mod perf;
mod programs;
mod python;
mod record;
mod recorder;
mod shared_memory;
mod shares;
mod sums;
mod tensor_probes;
mod tensors;
mod thread_sampler;
mod threads;
pub mod tracefs;
mod tracing;
mod unwind_maps;

pub use breakpoint::Breakpoint;
pub use btf::{KernelFunction, KernelResult, functions_of, kernel_functions};
pub use cause::Cause;
pub use cost::{CostProgram, ProgramCost};
pub use error::{Error, Result};
pub use handover::TaskCall;
pub use hits::{
    HitKey, HitPoint, HitProbe, HitRecord, HitSource, HitSum, HitWeight, MAX_HIT_POINTS, MAX_HITS, WAIT_REASONS,
    WaitRecord,
};
pub use hooks::{Refused, try_hook};
pub use mappings::{MapEvent, Mapped, Mappings};
pub use options::{Cgroup, Marker, Options, Tracing};
pub use python::{PYTHON_STEPS, PythonCode, PythonFrame, PythonKind, PythonMaps, PythonProcess, PythonStack};
pub use record::{
    Handover, LaunchRecord, Losses, Memo, NewImage, Origin, RawStack, Recognised, Record, StackRecord, Started,
};
pub use recorder::Recorder;
pub use shares::Share;
pub use sums::SumRooms;
pub use tensors::{MAX_TENSOR_POINTS, TensorChange, TensorPoint, TensorProbe, TensorRecord};
pub use thread_sampler::{ThreadSampler, UserStack};
pub use threads::{ThreadState, Threads};
pub use tracing::{Probe, Repeats, Watch};
pub use unwind_maps::{Code, MOST_FRAMES, MOST_PER_IMAGE, Place, UnwindMaps};

/// Returns the current time, on the clock of all records.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
