//! The tiers that a call passes through on its way to the GPU. Times are summed by tier.

use serde::Serialize;

use crate::event::{Function, Layer};

/// The position of a function between the program and the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The program and its libraries.
    Program,
    /// The CUDA runtime: `cudaMalloc`.
    Runtime,
    /// The CUDA driver library: `cuMemAlloc`.
    Driver,
    /// System calls on the driver's device files: requests to the kernel driver.
    SystemCalls,
    /// Functions of the operating system's kernel.
    Kernel,
}

/// The sums of a tier's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierSum {
    /// Calls that returned.
    pub calls: u64,
    /// Time in which at least one was in progress, added over threads.
    pub total_ns: u64,
    /// Of this, outside nested calls.
    pub self_ns: u64,
}

impl Tier {
    /// All tiers, from the program to the hardware.
    pub const ALL: [Self; 5] = [Self::Program, Self::Runtime, Self::Driver, Self::SystemCalls, Self::Kernel];

    /// Returns the tier of a function; a tracepoint has none, because it has no duration.
    pub fn of(function: &Function) -> Option<Self> {
        match function.layer {
            Layer::Library => Some(Self::of_name(&function.name)),
            Layer::Driver => Some(Self::SystemCalls),
            Layer::Kernel => Some(Self::Kernel),
            Layer::Point => None,
        }
    }

    /// Returns the tier of a function of a library or program.
    pub fn of_name(name: &str) -> Self {
        let is_c = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let then_upper = |prefix| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(char::is_uppercase));
        match name {
            _ if !is_c => Self::Program,
            _ if then_upper("cuda") || name.starts_with("__cuda") => Self::Runtime,
            _ if then_upper("cu") => Self::Driver,
            _ => Self::Program,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that CUDA functions are recognised by name, and that other libraries and C++ names belong to the program.
    #[test]
    fn tiers_by_name() {
        for (name, tier) in [
            ("cudaMalloc", Tier::Runtime),
            ("__cudaRegisterFunction", Tier::Runtime),
            ("cuMemAlloc_v2", Tier::Driver),
            ("cublasSgemm_v2", Tier::Program),
            ("cudnnCreate", Tier::Program),
            ("cudart::init()", Tier::Program),
            ("cuTensor::Plan::run(int)", Tier::Program),
            ("ncclAllReduce", Tier::Program),
            ("main", Tier::Program),
        ] {
            assert_eq!(Tier::of_name(name), tier, "{name}");
        }
    }
}
