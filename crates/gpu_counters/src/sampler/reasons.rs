//! Says why there are no samples, and what to do about it.

use std::{os::unix::process::ExitStatusExt, path::Path, process::ExitStatus};

use cupti::ids::result;

use super::Choice;
use crate::pm::{
    record::{Failure, Step, UNTRUSTED},
    search::HOST,
};

/// Says why PM sampling did not begin.
pub fn text(failure: Failure, choice: &Choice) -> String {
    let Failure { step, code } = failure;
    let library = choice.library.as_deref().unwrap_or(Path::new("the simulated libcupti")).display();
    match (step, code) {
        (Step::LoadDriver, _) => "PM sampling needs libcuda.so.1, which could not be loaded".into(),
        (Step::Driver, _) => format!("the driver could not be initialised for PM sampling (CUDA error {code})"),
        (Step::LoadCupti, 0) => format!("{library} could not be loaded for PM sampling"),
        (Step::LoadCupti, UNTRUSTED) => format!(
            "{library} is not loaded as root because others than root can change it: install the CUDA toolkit's CUPTI, or \
             make its files and directories root's"
        ),
        (Step::LoadCupti, _) => format!("{HOST} beside {library} could not be loaded for PM sampling"),
        (Step::Functions, _) => format!("{library} has no PM sampling: use a newer one, such as that of CUDA 13.0"),
        (_, result::INSUFFICIENT_PRIVILEGES | result::VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES) if choice.trusted => {
            "the driver refused PM sampling: load the NVIDIA kernel module with NVreg_RestrictProfilingToAdminUsers=0"
                .into()
        }
        (_, result::INSUFFICIENT_PRIVILEGES | result::VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES) => format!(
            "the driver permits PM sampling only to root, and {library} is not loaded as root because others than root can \
             change it: install the CUDA toolkit's CUPTI, or load the NVIDIA kernel module with \
             NVreg_RestrictProfilingToAdminUsers=0"
        ),
        (_, result::HARDWARE_BUSY) => {
            "another tool uses the GPU's counters: stop it (ncu, Nsight Systems, or DCGM with `dcgmi profile --pause`)"
                .into()
        }
        (_, result::MIG_DEVICE_NOT_SUPPORTED) => "CUPTI does not support PM sampling on a partitioned GPU (MIG)".into(),
        (_, result::CONFIDENTIAL_COMPUTING_NOT_SUPPORTED) => {
            "CUPTI does not support PM sampling with confidential computing".into()
        }
        (_, result::NOT_SUPPORTED | result::INVALID_CHIP_NAME) => {
            "CUPTI does not support PM sampling on this GPU".into()
        }
        (_, result::OUT_OF_MEMORY) => format!("PM sampling got no memory ({})", step.function()),
        _ => format!("PM sampling failed: {} returned error {code}", step.function()),
    }
}

/// Says why sampling ended.
pub fn ended(failure: Failure) -> String {
    format!("{} returned error {}", failure.step.function(), failure.code)
}

/// Says how the process ended that should have gone on.
pub fn gone(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Some((_, Some(signal))) => format!("signal {signal} ended the process that samples them"),
        Some((Some(code), _)) => format!("the process that samples them exited with status {code}"),
        _ => "the process that samples them ended".into(),
    }
}
