//! Samples the counters of GPUs with CUPTI's PM sampling, in a process of its own.
//!
//! PM sampling sees the whole GPU, whichever process uses it, and needs no CUDA context. So it runs neither in the recorded
//! program nor in warpscope, but in a process that warpscope starts: if NVIDIA's code crashes there, only counters end. It
//! writes fixed [`record`]s to a pipe and ends when its standard input is closed.
//!
//! ```text
//!   warpscope  <-- records (pipe) ---  sampling process   dlopen libcuda, libcupti
//!              --- stdin: end of file means stop ->
//! ```

mod device;
mod functions;
pub mod metrics;
mod output;
pub mod process;
pub mod record;
mod sampling;
pub mod search;
pub mod trust;
