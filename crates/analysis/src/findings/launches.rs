//! Findings about launches and synchronisation.

use std::collections::{BTreeMap, BTreeSet};

use cuda::calls::Role;
use model::{
    event::{Direction, ProcessId},
    idle::{Cause, Phase},
    profile::{Profile, What},
};
use text::units::{count, percent, time};

use super::{
    advice::Setting,
    finding::{Evidence, Finding, Gain, Kind, share},
};
use crate::{
    host_waits::HostWaits,
    idle::DeviceIdle,
    user_code::{Place, UserCode},
};

/// Fewer gaps or waits are not a loop.
pub(super) const MANY: u64 = 1_000;
const MANY_WAITS: u64 = 100;
/// A smaller share of a GPU's time in short gaps is normal: even queued kernels start a microsecond apart.
const GAPS: f64 = 0.2;
/// Waits for a smaller share of the time cost nothing worth mentioning.
const WAITING: f64 = 0.01;
/// A GPU that is idle for a smaller share does not suffer from synchronisation: the host waits for work that runs.
const IDLE: f64 = 0.1;
/// A copy to the host of at most this size is a value that the program looks at, such as `loss.item()`.
const VALUE_BYTES: u64 = 4096;

/// What to try if the GPU waits for launches.
pub(super) fn fewer_launches(setting: Setting) -> &'static str {
    setting.torch_or(
        "launch fewer and longer kernels: use CUDA graphs or torch.compile, or larger batches",
        "launch fewer and longer kernels: use CUDA graphs, fuse kernels, or use larger batches",
    )
}

/// A GPU waits for launches: its kernels are shorter than the gaps between them.
pub fn bound(profile: &Profile, devices: &[DeviceIdle], setting: Setting) -> Option<Finding> {
    let bound = |device: &DeviceIdle| {
        let (gaps, gap_ns) = profile.devices.get(&device.device)?.idle.short_gaps;
        let ours = |key: &model::profile::GpuKey| key.device == device.device && matches!(key.what, What::Kernel(_));
        let (kernels, kernel_ns) = profile
            .gpu
            .iter()
            .filter(|(key, _)| ours(key))
            .fold((0, 0_u64), |sum, (_, weight)| (sum.0 + weight.count, sum.1.saturating_add(weight.ns)));
        let (mean_gap, mean_kernel) = (gap_ns / gaps.max(1), kernel_ns / kernels.max(1));
        (gaps >= MANY && share(gap_ns, device.span_ns) >= GAPS && mean_kernel < mean_gap).then(|| Finding {
            kind: Kind::LaunchBound,
            title: format!(
                "GPU {} is launch-bound: {} of its time is in gaps of {} on average, between kernels of {}",
                device.label,
                percent(gap_ns, device.span_ns),
                time(mean_gap),
                time(mean_kernel)
            ),
            evidence: vec![
                Evidence::count("gaps", gaps),
                Evidence::ns("in total", gap_ns),
                Evidence::count("kernels", kernels),
            ],
            place: None,
            advice: fewer_launches(setting).into(),
            share: share(gap_ns, profile.wall_ns()),
            gain: Gain::of(gap_ns, profile),
        })
    };
    devices.iter().filter_map(bound).max_by(|a, b| a.share.total_cmp(&b.share))
}

/// The program waits for the GPU again and again, and the GPU then waits for the program.
pub fn waits(profile: &Profile, code: &UserCode<'_>, devices: &[DeviceIdle], setting: Setting) -> Option<Finding> {
    let waits = HostWaits::of_feeders(profile, &feeders(profile, devices));
    let idle = devices.iter().map(|device| device.idle_share).fold(0.0, f64::max);
    let waiting = share(waits.ns, profile.wall_ns());
    if waits.count < MANY_WAITS || waiting < WAITING || idle < IDLE {
        return None;
    }
    let mut evidence = vec![
        Evidence::count("waits", waits.count),
        Evidence::ns("in total", waits.ns),
        Evidence::ns("mean", waits.ns / waits.count),
    ];
    let place = match (values(profile, code), waiting_at(profile, code)) {
        (Some((place, copies)), _) if 2 * copies >= waits.count => {
            evidence.push(Evidence::count("values copied there", copies));
            Some(place)
        }
        (_, Some((place, ns, all))) if ns >= all.div_ceil(2) => {
            evidence.push(Evidence::ns("samples and waits there", ns));
            Some(place)
        }
        _ => None,
    };
    let at = place.as_ref().map(|place| format!(", most of them at {}", place.short())).unwrap_or_default();
    Some(Finding {
        kind: Kind::Synchronization,
        title: format!(
            "the host waited {} times for the GPU, {} in total{at}; afterwards the GPU waits for the host",
            count(waits.count),
            time(waits.ns)
        ),
        evidence,
        place,
        advice: setting
            .torch_or(
                "synchronise less often: read values such as loss.item() only every few steps, or with non_blocking copies",
                "synchronise less often: copy results with cudaMemcpyAsync, and read them a step later or every few steps",
            )
            .into(),
        share: waiting,
        // Neither the work of the GPU nor that of the host becomes shorter.
        gain: Gain::of(devices.iter().map(|device| device.idle_ns).max().unwrap_or(0).min(waits.ns), profile),
    })
}

/// The threads that keep a GPU waiting: image and id.
fn feeders(profile: &Profile, devices: &[DeviceIdle]) -> BTreeSet<(ProcessId, u32)> {
    let mut feeders = BTreeSet::new();
    for device in devices {
        let Some(info) = profile.devices.get(&device.device) else { continue };
        let mut idle: BTreeMap<(ProcessId, u32), u64> = BTreeMap::new();
        for (charge, weight) in
            info.idle.parts_of(Phase::Between).filter(|(charge, _)| charge.cause != Cause::Meanwhile)
        {
            let sum = idle.entry((charge.process, charge.tid)).or_default();
            *sum = sum.saturating_add(weight.ns);
        }
        feeders.extend(idle.into_iter().filter(|(_, ns)| share(*ns, device.span_ns) >= IDLE).map(|(thread, _)| thread));
    }
    feeders
}

/// The line that copies the most single values to the host, and how many: exact.
fn values(profile: &Profile, code: &UserCode<'_>) -> Option<(Place, u64)> {
    let mut lines: BTreeMap<Place, u64> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        if let (What::Copy(Direction::DtoH, class), Some(stack)) = (key.what, key.stack)
            && class <= VALUE_BYTES
        {
            *lines.entry(code.place(key.process, stack)).or_default() += weight.count;
        }
    }
    lines.into_iter().max_by_key(|(_, copies)| *copies)
}

/// The line with the most time in calls that wait for the GPU, by samples and recorded waits, and the time in all of them.
fn waiting_at(profile: &Profile, code: &UserCode<'_>) -> Option<(Place, u64, u64)> {
    let mut lines: BTreeMap<Place, u64> = BTreeMap::new();
    let waits = |name: &str| cuda::call(name).is_some_and(|call| call.role == Role::Synchronize);
    for (&(process, stack), weight) in profile.cpu.iter().chain(&profile.waited) {
        if profile.frames(stack).iter().any(|frame| waits(&frame.name)) {
            let sum = lines.entry(code.place(process, stack)).or_default();
            *sum = sum.saturating_add(weight.ns);
        }
    }
    let all = lines.values().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
    lines.into_iter().max_by_key(|(_, ns)| *ns).map(|(place, ns)| (place, ns, all))
}
