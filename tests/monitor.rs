//! `warpscope monitor`: numbers to the unit, on the simulated GPU.

mod exact;
mod faults;
mod many;
mod processes;
mod prometheus;
