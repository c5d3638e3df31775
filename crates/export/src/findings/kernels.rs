//! Findings about kernels.

use std::collections::BTreeMap;

use model::profile::{GpuWeight, Profile, What};
use text::units::{count, percent, time};

use super::finding::{Evidence, Finding, Kind, share};
use crate::user_code::{Place, UserCode};

/// A launch costs the CPU and the GPU several microseconds. Below this mean duration, the launch costs about as much as
/// the kernel.
const TINY_NS: u64 = 10_000;
/// A line with fewer kernels is not worth a change.
const MANY: u64 = 1_000;
/// A line with a smaller share of all kernels is not what slows the program down.
const SHARE: f64 = 0.1;

/// Many short kernels are launched one by one from one line.
pub fn tiny(profile: &Profile, code: &UserCode<'_>) -> Option<Finding> {
    let mut lines: BTreeMap<Place, GpuWeight> = BTreeMap::new();
    let mut kernels = 0_u64;
    for (key, weight) in &profile.gpu {
        // Kernels of a graph are launched together.
        if let (What::Kernel(_), Some(stack), None) = (key.what, key.stack, key.capture) {
            lines.entry(code.place(key.process, stack)).or_default().add(weight);
        }
        kernels += if matches!(key.what, What::Kernel(_)) { weight.count } else { 0 };
    }
    let mean = |weight: &GpuWeight| weight.ns / weight.count.max(1);
    let is_tiny =
        |weight: &GpuWeight| mean(weight) < TINY_NS && weight.count >= MANY && share(weight.count, kernels) >= SHARE;
    let (place, weight) = lines.into_iter().filter(|(_, w)| is_tiny(w)).max_by_key(|(_, weight)| weight.count)?;
    // Each takes at least as long as a launch.
    let affected = weight.count.saturating_mul(TINY_NS);
    Some(Finding {
        kind: Kind::TinyKernels,
        title: format!(
            "{} kernels of {} on average ({} of all) are launched one by one at {}",
            count(weight.count),
            time(mean(&weight)),
            percent(weight.count, kernels),
            place.short()
        ),
        evidence: vec![
            Evidence::count("kernels", weight.count),
            Evidence::ns("mean duration", mean(&weight)),
            Evidence::ns("longest", weight.max_ns),
        ],
        place: Some(place),
        advice: "capture them in a CUDA graph, or fuse them: torch.compile does both".into(),
        share: share(affected, profile.wall_ns()),
    })
}
