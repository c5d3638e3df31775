//! `warpscope monitor` gives exact numbers on the simulated GPU.

mod console;
mod containers;
mod deploy;
pub mod exact;
mod faults;
mod limited;
mod lines;
mod many;
mod processes;
mod prometheus;
mod remote;
mod short;
mod top;
