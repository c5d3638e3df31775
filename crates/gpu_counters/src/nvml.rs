//! GPU state from the driver through NVML: utilisation, memory, power, temperature, clocks, buses, errors, processes.
//!
//! NVML is optional. The library is loaded at run time; if it is missing, there is one message. A missing function or a
//! GPU that does not respond only costs that value.

mod abi;
mod device;
mod gpm;
mod meter;
mod sampler;
mod session;
mod xid;

pub use self::{
    device::Device,
    meter::Meter,
    sampler::Sampler,
    session::{GpmReading, Nvml, Reading},
};
