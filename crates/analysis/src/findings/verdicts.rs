//! Findings about what limits kernels, by the counters of the GPUs.

use model::{profile::Profile, verdict::Verdict};
use text::{short::shortened, units::percent};

use super::{
    advice::Setting,
    finding::{Evidence, Finding, Gain, Kind, share},
    kernels::launched_at,
};
use crate::{
    user_code::UserCode,
    verdicts::{self, KernelVerdict},
};

/// A smaller share of the recorded time is not worth a change.
const WORTH: f64 = 0.05;
/// The most characters of a kernel's name in a title.
const NAME: usize = 60;

/// The kernel with the most time is limited by something that can be changed.
pub fn limited(profile: &Profile, code: &UserCode<'_>, setting: Setting) -> Option<Finding> {
    let row = verdicts::all(profile).into_iter().next()?;
    let (kind, limit, advice) = match row.verdict {
        Verdict::Memory => (
            Kind::MemoryBound,
            match row.dram_bytes_per_second {
                Some(rate) => format!("is memory bound at {:.2} TB/s", rate / 1e12),
                None => "is memory bound".to_owned(),
            },
            setting.torch_or(
                "fuse it with its neighbours (torch.compile does) so that data is read once, or use smaller types",
                "fuse it with its neighbours so that data is read once, or use smaller types",
            ),
        ),
        Verdict::Latency => (
            Kind::LatencyBound,
            "is latency bound: SMs are active, but no unit is busy".to_owned(),
            "record with --stalls to see where its warps wait; more warps or more work for each thread hide latencies",
        ),
        Verdict::Small => (
            Kind::TooSmall,
            format!("is too small: on average {:.0} % of the SMs are active", row.sm_active.unwrap_or(0.0)),
            "give it more blocks: a larger batch, or several kernels at a time on different streams",
        ),
        // Nothing to change: the hardware does what it can.
        Verdict::Tensor | Verdict::Compute | Verdict::NotMeasured => return None,
    };
    if share(row.ns, profile.wall_ns()) < WORTH {
        return None;
    }
    Some(Finding {
        kind,
        title: format!(
            "the kernel with the most time, {} ({} of the recorded time), {limit}",
            shortened(&row.kernel, NAME),
            percent(row.ns, profile.wall_ns())
        ),
        evidence: evidence(&row),
        place: launched_at(profile, code, row.index),
        advice: advice.into(),
        share: share(row.ns, profile.wall_ns()),
        gain: Gain::of(row.ns, profile),
    })
}

fn evidence(row: &KernelVerdict) -> Vec<Evidence> {
    let mut all = vec![Evidence::ns("time", row.ns)];
    match (row.shared_samples, row.others_share) {
        (Some(samples), Some(others)) => {
            all.push(Evidence::count("samples shared with other kernels", samples));
            all.push(Evidence::count("percent of these that the others had, at most", (100.0 * others).ceil() as u64));
        }
        _ => all.push(Evidence::count("samples", row.samples)),
    }
    for (name, value) in [
        ("percent of SMs active", row.sm_active),
        ("percent of the tensor pipe", row.tensor),
        ("percent of the memory's peak", row.dram),
        ("percent of instructions issued", row.issued),
    ] {
        all.extend(value.map(|value| Evidence::count(name, value.round() as u64)));
    }
    all
}
