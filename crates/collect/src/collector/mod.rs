//! The loop of a recording: waits for anything to come, and passes it on to the sink.
//!
//! ```text
//!   prepare   loads the BPF programs and everything that can fail before there is anything to write
//!   run       waits, until the command or the time ends
//!   gather    one round: reads every source, in the order that matters
//!   records   a record of the BPF programs becomes an event
//!   finish    takes what is still on its way, and detaches
//! ```

mod finish;
mod gather;
mod parts;
mod prepare;
mod records;
mod run;

pub use finish::{Collected, Cost};
pub use parts::Collector;
pub use prepare::{Limits, Options, Prepared};
pub use run::Until;
