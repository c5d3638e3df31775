//! Findings about how kernels fill the device.

use std::collections::BTreeMap;

use cuda::occupancy::Limiter;
use model::profile::{Profile, What};
use text::{
    short::shortened,
    units::{count, counted, percent, time},
};

use super::{
    finding::{Evidence, Finding, Gain, Kind, share},
    kernels::launched_at,
};
use crate::{occupancy::ShapeOccupancy, user_code::UserCode};

/// A smaller share of the recorded time is not worth a change.
const WORTH: f64 = 0.05;
/// More warps hide most latencies; without samples, a smaller share is required.
const FEW_WARPS: f64 = 0.5;
const VERY_FEW_WARPS: f64 = 0.25;
/// The share of a kernel's samples that waits for latencies, which more warps would hide.
const WAITING: f64 = 0.5;
/// Shorter kernels do too little for a larger grid.
const SHORT_NS: u64 = 10_000;
/// More time in kernels than this, relative to the time in which any ran: they fill the device together.
const CONCURRENT: f64 = 1.25;
/// The most characters of a kernel's name in a title.
const NAME: usize = 60;

/// Stalls that more warps would hide.
const LATENCIES: [&str; 4] = ["long_scoreboard", "short_scoreboard", "wait", "imc_miss"];
/// Parts of the names of kernels that keep arithmetic units busy with few warps.
const FEW_WARPS_BY_DESIGN: [&str; 9] = ["gemm", "xmma", "cutlass", "nvjet", "flash", "fmha", "conv", "wgmma", "matmul"];

/// A kernel holds few warps, and waits.
pub fn low(profile: &Profile, code: &UserCode<'_>, all: &[ShapeOccupancy]) -> Option<Finding> {
    let waiting = waiting(profile);
    let few = |row: &&ShapeOccupancy| {
        let most = match waiting.get(&row.index) {
            Some(share) if *share >= WAITING => FEW_WARPS,
            Some(_) => return false,
            None if by_design(&row.kernel) => return false,
            None => VERY_FEW_WARPS,
        };
        // A grid that is smaller than a wave does not even reach what would fit.
        row.occupancy <= most && row.fill.limiter != Limiter::None && row.waves >= 1.0
    };
    let (row, ns) = heaviest(all, few)?;
    if share(ns, profile.wall_ns()) < WORTH {
        return None;
    }
    let mut evidence = vec![
        Evidence::ns("time", ns),
        Evidence::count("warps on an SM", row.fill.warps.into()),
        Evidence::count("of", row.fill.most_warps.into()),
        Evidence::count("threads in a block", row.threads.into()),
        Evidence::count("registers of a thread", row.registers.into()),
        Evidence::bytes("shared memory of a block", row.shared_memory.into()),
    ];
    if let Some(share) = waiting.get(&row.index) {
        evidence.push(Evidence::count("percent of samples that wait for latencies", (share * 100.0).round() as u64));
    }
    let try_this = match row.fill.limiter {
        Limiter::Registers => "use fewer registers: __launch_bounds__, smaller tiles, fewer values alive at once",
        Limiter::SharedMemory => "use less shared memory in a block: smaller tiles, fewer pipeline stages",
        Limiter::BlockSize => "choose a block size that divides the threads of an SM",
        Limiter::Blocks | Limiter::None => "use larger blocks: an SM holds a limited number of blocks",
    };
    let advice = match waiting.contains_key(&row.index) {
        true => format!("{try_this}; or more independent work in each thread"),
        false => format!("{try_this}, if it waits for memory: record --stalls shows that"),
    };
    Some(Finding {
        kind: Kind::LowOccupancy,
        title: format!(
            "{} holds {:.0} % of the warps of an SM, limited by {}: {} of the time",
            shortened(&row.kernel, NAME),
            100.0 * row.occupancy,
            row.limiter,
            percent(ns, profile.wall_ns())
        ),
        evidence,
        place: launched_at(profile, code, row.index),
        advice,
        share: share(ns, profile.wall_ns()),
        // A kernel is at most faster in proportion to its warps.
        gain: Gain::of(part(ns, 1.0 - row.occupancy), profile),
    })
}

/// A kernel has blocks for a part of the device only.
pub fn small_grid(profile: &Profile, code: &UserCode<'_>, all: &[ShapeOccupancy]) -> Option<Finding> {
    let small = |row: &&ShapeOccupancy| {
        2 * u64::from(row.multiprocessors_used) <= u64::from(row.multiprocessors)
            && row.ns / row.count.max(1) >= SHORT_NS
            && !concurrent(profile, row.device_number)
    };
    let (row, ns) = heaviest(all, small)?;
    if share(ns, profile.wall_ns()) < WORTH {
        return None;
    }
    Some(Finding {
        kind: Kind::SmallGrid,
        title: format!(
            "{} has {} for {} SMs: {} of the time, most of GPU {} is empty",
            shortened(&row.kernel, NAME),
            counted(row.blocks, "block", "blocks"),
            row.multiprocessors,
            percent(ns, profile.wall_ns()),
            row.device
        ),
        evidence: vec![
            Evidence::ns("time", ns),
            Evidence::ns("mean duration", row.ns / row.count.max(1)),
            Evidence::count("SMs used", row.multiprocessors_used.into()),
            Evidence::count("SMs", row.multiprocessors.into()),
        ],
        place: launched_at(profile, code, row.index),
        advice: "divide the work into more blocks, use larger batches, or run independent kernels on other streams"
            .into(),
        share: share(ns, profile.wall_ns()),
        gain: Gain::of(part(ns, 1.0 - f64::from(row.multiprocessors_used) / f64::from(row.multiprocessors)), profile),
    })
}

/// The last wave of a kernel leaves much of the device empty.
pub fn tail(profile: &Profile, code: &UserCode<'_>, all: &[ShapeOccupancy]) -> Option<Finding> {
    let lost = |row: &ShapeOccupancy| part(row.ns, 1.0 - row.fill.wave_share());
    let tailed = |row: &&ShapeOccupancy| row.fill.waves > 1 && !concurrent(profile, row.device_number);
    let row = all.iter().filter(tailed).max_by_key(|row| lost(row))?;
    let ns = lost(row);
    if share(ns, profile.wall_ns()) < WORTH {
        return None;
    }
    Some(Finding {
        kind: Kind::Tail,
        title: format!(
            "{} needs {:.2} waves: its last wave has {} blocks where {} fit",
            shortened(&row.kernel, NAME),
            row.waves,
            count(row.fill.last_wave),
            count(row.fill.wave)
        ),
        evidence: vec![
            Evidence::ns("time", row.ns),
            Evidence::ns("of that with an empty place, if blocks take equally long", ns),
            Evidence::count("blocks", row.blocks),
        ],
        place: launched_at(profile, code, row.index),
        advice: format!(
            "choose a grid of whole waves, such as a multiple of {} blocks, or blocks that take their work from a queue: \
             up to {} would be saved",
            count(row.fill.wave),
            time(ns)
        ),
        share: share(ns, profile.wall_ns()),
        gain: Gain::of(ns, profile),
    })
}

fn part(ns: u64, share: f64) -> u64 {
    (ns as f64 * share) as u64
}

/// Returns the shape with the most time of the kernel that has the most time in such shapes, and that time.
fn heaviest(all: &[ShapeOccupancy], is: impl Fn(&&ShapeOccupancy) -> bool) -> Option<(&ShapeOccupancy, u64)> {
    let mut sums: BTreeMap<u32, (&ShapeOccupancy, u64)> = BTreeMap::new();
    // The shapes with the most time come first.
    for row in all.iter().filter(is) {
        let sum = sums.entry(row.index).or_insert((row, 0));
        sum.1 = sum.1.saturating_add(row.ns);
    }
    sums.into_values().max_by_key(|(row, ns)| (*ns, std::cmp::Reverse(row.index)))
}

/// Returns the share of each kernel's samples that waits for latencies.
fn waiting(profile: &Profile) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for ((at, reason), samples) in &profile.stalls.samples {
        let Some(kernel) = profile.stalls.functions.get(&(at.session, at.function)) else { continue };
        let (waiting, all) = sums.entry(*kernel).or_default();
        *all = all.saturating_add(*samples);
        if LATENCIES.contains(&profile.stalls.reason(at.session, *reason)) {
            *waiting = waiting.saturating_add(*samples);
        }
    }
    sums.into_iter().map(|(kernel, (waiting, all))| (kernel, share(waiting, all))).collect()
}

fn by_design(kernel: &str) -> bool {
    let name = kernel.to_ascii_lowercase();
    FEW_WARPS_BY_DESIGN.iter().any(|part| name.contains(part))
}

/// Whether kernels of a device run at the same time.
fn concurrent(profile: &Profile, device: u32) -> bool {
    let is_kernel = |what: What| what.kernel().is_some();
    let profile = profile.whole();
    let of = profile.gpu.iter().filter(|(key, _)| key.device == device && is_kernel(key.what));
    let ns = of.fold(0_u64, |sum, (_, weight)| sum.saturating_add(weight.ns));
    let busy = profile.devices.get(&device).map_or(0, |info| info.kernel_busy_ns);
    ns as f64 > CONCURRENT * busy as f64
}
