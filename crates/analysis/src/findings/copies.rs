//! Findings about copies.

use std::collections::BTreeMap;

use model::{
    event::Direction,
    profile::{GpuWeight, Profile, What},
};
use text::units::{bytes, counted, percent, time};

use super::{
    advice::Setting,
    finding::{Evidence, Finding, Gain, Kind, share},
};
use crate::{
    idle::DeviceIdle,
    user_code::{Place, UserCode},
};

/// A smaller share of a GPU's time is not worth a change.
const ALONE: f64 = 0.1;
/// A smaller share of the time of GPUs in copies of pageable memory is not worth a change, nor is a shorter time.
const PAGEABLE: f64 = 0.05;
const PAGEABLE_NS: u64 = 10_000_000;

/// Copies run while no kernel does.
pub fn alone(profile: &Profile, code: &UserCode<'_>, devices: &[DeviceIdle], setting: Setting) -> Option<Finding> {
    let without_kernel = |device: &DeviceIdle| {
        profile.devices.get(&device.device).map_or(0, |info| info.busy_ns.saturating_sub(info.kernel_busy_ns))
    };
    let device = devices.iter().max_by_key(|device| without_kernel(device))?;
    let alone = without_kernel(device);
    if share(alone, device.span_ns) < ALONE {
        return None;
    }
    let mut lines: BTreeMap<Place, GpuWeight> = BTreeMap::new();
    for (key, weight) in profile.gpu.iter().filter(|(key, _)| key.device == device.device) {
        if let (What::Copy(..), Some(stack)) = (key.what, key.capture.or(key.stack)) {
            lines.entry(code.place(key.process, stack)).or_default().add(weight);
        }
    }
    let (place, most) = lines.into_iter().max_by_key(|(_, weight)| weight.ns)?;
    Some(Finding {
        kind: Kind::CopiesAlone,
        title: format!(
            "GPU {} only copies for {} of its time, most at {}: no kernel runs meanwhile",
            device.label,
            percent(alone, device.span_ns),
            place.short()
        ),
        evidence: vec![
            Evidence::ns("without a kernel", alone),
            Evidence::ns("copies at this line", most.ns),
            Evidence::bytes("copied there", most.bytes),
        ],
        place: Some(place),
        advice: setting
            .torch_or(
                "overlap copies with kernels: copy from pinned memory on another stream (non_blocking=True)",
                "overlap copies with kernels: copy from pinned memory on another stream (cudaMemcpyAsync)",
            )
            .into(),
        share: share(alone, profile.wall_ns()),
        gain: Gain::of(alone, profile),
    })
}

/// Returns how long GPUs were in use, added up.
pub(super) fn spans(devices: &[DeviceIdle]) -> u64 {
    devices.iter().fold(0, |sum, device| sum.saturating_add(device.span_ns))
}

/// Copies use memory that is not pinned.
pub fn pageable(profile: &Profile, code: &UserCode<'_>, devices: &[DeviceIdle], setting: Setting) -> Option<Finding> {
    let mut all = GpuWeight::default();
    let mut lines: BTreeMap<(Place, Direction), GpuWeight> = BTreeMap::new();
    for (&(process, stack, direction), weight) in &profile.pageable {
        all.add(weight);
        if let Some(stack) = stack {
            lines.entry((code.place(process, stack), direction)).or_default().add(weight);
        }
    }
    if all.ns < PAGEABLE_NS || share(all.ns, spans(devices)) < PAGEABLE {
        return None;
    }
    let ((place, direction), most) = lines.into_iter().max_by_key(|(_, weight)| weight.ns)?;
    let rate = |weight: &GpuWeight| (weight.bytes as f64 * 1e9 / weight.ns.max(1) as f64) as u64;
    let from = if direction == Direction::HtoD { "from" } else { "to" };
    Some(Finding {
        kind: Kind::PageableCopies,
        title: format!(
            "{} {from} pageable memory move {} at {}/s, most at {}",
            counted(all.count, "copy", "copies"),
            bytes(all.bytes),
            bytes(rate(&all)),
            place.short()
        ),
        evidence: vec![
            Evidence::ns("time", all.ns),
            Evidence::ns("at this line", most.ns),
            Evidence::bytes("copied there", most.bytes),
        ],
        place: Some(place),
        advice: format!(
            "pin the memory ({}): such copies took {}, and cannot overlap with anything",
            setting.torch_or("pin_memory=True", "cudaMallocHost, cudaHostRegister"),
            time(all.ns)
        ),
        share: share(all.ns, profile.wall_ns()),
        gain: Gain::of(all.ns, profile),
    })
}
