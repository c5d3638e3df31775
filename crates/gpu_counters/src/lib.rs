//! What GPUs report about themselves: their state and energy from NVML, and how busy their parts are, from CUPTI's PM sampling
//! or NVML's performance monitors (GPM).
//!
//! ```text
//!   readings   what a recording takes, as events
//!   sampler    starts the process that samples with CUPTI, and reads what it writes
//!   pm         that process
//!   nvml       the driver's library, in this process
//!   library    loads both libraries
//!   clock      the clock of recordings
//!   simulated  the libraries of the simulated GPU
//! ```

mod clock;
mod library;
pub mod nvml;
mod pm;
mod readings;
mod sampler;
mod simulated;

pub use self::{
    pm::{
        process::run_if_named,
        search::{environments, libraries},
    },
    readings::{Readings, used_by_others},
};
