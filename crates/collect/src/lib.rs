//! The collector that `record`, `trace` and `monitor` share: it starts and follows processes, reads what the BPF programs and
//! the injected libraries report, and passes it on as [`model::event::Event`]s. It knows none of the commands.
//!
//! ```text
//!   attaching the injected library in running processes
//!   command   the target: its user, environment, signals, private directory
//!   process   which processes run, what they have mapped, and since when
//!   injector  the injected library itself
//!   sessions  the injected libraries: what CUPTI recorded arrives here
//!   shared_memory  files in memory that processes map, too
//!   snapshot  what the threads of processes do now, for `hang`: without probes, and without stopping them
//!   stacks    unwind tables for the kernel's walker; stacks walked here; Python frames
//!   calls     functions that are traced, one by one or summed up
//!   source    what these have in common, which an option adds to a recording:
//!   events    what `--event` names, counted by stack
//!   memory    what allocates and frees GPU memory
//!   gpu_counters  the energy of GPUs, and how busy their parts are
//!   disassembly, source_lines  the instructions and source lines of kernels, for `--stalls`
//!   flight    the recent past, written when something happens
//!   handover  work that one thread handed to another
//!   collector the loop that waits for all of these, in the order that matters
//!   sink      where events go
//! ```

pub mod attaching;
pub mod calls;
mod collector;
pub mod command;
pub mod confined;
mod disassembly;
pub mod events;
pub mod flight;
pub mod gpu_counters;
mod handover;
mod injector;
pub mod memory;
pub mod process;
pub mod sessions;
mod shared_memory;
pub mod sink;
pub mod snapshot;
mod source;
mod source_lines;
pub mod stacks;

pub use collector::{Collected, Collector, Cost, Limits, Options, Prepared, Until};
pub use injector::INJECTOR;

/// The size of the ring buffer of a recording: room for about half a million launches between two reads.
pub const RING_BYTES: u32 = 32 << 20;
