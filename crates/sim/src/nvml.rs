//! libnvidia-ml: lists the GPUs, counts their energy, and plays their performance monitors.
//!
//! warpscope loads it into its own process, where nothing runs on the GPU. So libcuda notes each kernel in the file that
//! `meter` names ([`meter`]), and the counters here are computed from it.

mod exports;
mod gpm;
pub mod meter;
