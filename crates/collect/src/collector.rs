//! The loop of a recording: waits for input, and passes it on to the sink.
//!
//! ```text
//!   prepare   loads the BPF programs and everything that can fail before there is anything to write
//!   attach    follows running processes, and records their GPU activity
//!   run       waits, until the command or the time ends
//!   gather    one round: reads every source, in the order that matters
//!   follow    follows processes: what begins, maps files and ends
//!   records   converts records of the BPF programs to events
//!   reported  takes the launches that threads reported by themselves, in order with the records
//!   forget    removes stacks that are no longer needed
//!   finish    reads what is still pending, and detaches
//! ```

mod attach;
mod finish;
mod follow;
mod forget;
mod gather;
mod parts;
mod prepare;
mod records;
mod reported;
mod rescan;
mod run;

pub use finish::{Collected, Cost};
pub use parts::Collector;
pub use prepare::{Limits, Options, Prepared};
pub use run::Until;
