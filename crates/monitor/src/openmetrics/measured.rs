//! How metrics are measured: the part of their explanation that their help texts leave out.

use super::{
    device, health, process,
    text::{Definition, Kind},
};

/// How a metric is measured, how exact it is, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Where it comes from.
    pub how: &'static str,
    /// How exact it is.
    pub exact: &'static str,
    /// What to do with it.
    pub act: &'static str,
}

/// Returns how a metric is measured.
pub fn measured(definition: &Definition) -> Measured {
    let is_in = |families: &[&Definition]| families.iter().any(|family| family.name == definition.name);
    let act = if is_in(health::ALL) {
        "Not zero where something is lost or missed: docs/monitor.md says what to change."
    } else {
        match definition.kind {
            Kind::Counter => "Use rate() of the series that end in _total.",
            Kind::Histogram => "Use histogram_quantile() of rate() of the series that end in _bucket.",
            Kind::Gauge | Kind::Maximum | Kind::Info => "Alert on it for some minutes, not for one scrape.",
        }
    };
    let (how, exact) = if is_in(device::ALL) {
        (
            "Read from NVML, the driver's management library.",
            "As exact as NVML: many values are means over its own interval.",
        )
    } else if is_in(process::ALL) {
        (
            "BPF programs at the functions of libcuda and libcudart add up calls in the kernel, by process.",
            "Exact from when the process is monitored; what was missed has a metric of its own.",
        )
    } else {
        ("warpscope counts what it does itself.", "Exact, unless the help text says estimated.")
    };
    Measured { how, exact, act }
}
