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
    let is_loss = ["late", "lost", "missed", "paused", "summed"].iter().any(|word| definition.name.contains(word));
    let act = if is_in(health::ALL) && is_loss {
        "Alert on any increase: something is missing in the other metrics. docs/monitor.md says what to change."
    } else {
        match definition.kind {
            Kind::Counter => "Use rate() of the series that end in _total.",
            Kind::Histogram => "Use histogram_quantile() of rate() of the series that end in _bucket.",
            Kind::Info => "Join it by its labels.",
            Kind::Gauge | Kind::Maximum => "Alert on its value over some minutes, not on one scrape.",
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
