//! What limits each kernel at each line of code, by hardware counters of single launches (`record --limits`).
//!
//! The rules are those of docs/counters.md, in their order.

use std::collections::BTreeMap;

use cuda::occupancy::{Limiter, Occupancy, Shape};
use model::{
    limits::{Measured, metric as m},
    profile::Profile,
};
use serde::{Serialize, Serializer};

use crate::{
    names,
    user_code::{Place, UserCode},
};

/// From this share of its peak on, in percent, a unit limits a kernel.
pub const BOUND: f64 = 60.0;
/// A kernel that can hold fewer warps than this share of those that fit is limited by its occupancy.
const LOW_OCCUPANCY: f64 = 0.25;
/// A grid whose waves are less full than this has a tail.
const FULL_WAVES: f64 = 0.75;
/// With fewer instructions issued than this, in percent of the peak, no pipe is near its own: the slowest, FP64 on GPUs for
/// graphics, takes 64 times as long.
const IDLE: f64 = 0.9;
/// Threads in a warp.
const WARP: f64 = 32.0;
/// Fewer active threads in an instruction than this share of a warp are said.
const DIVERGENT: f64 = 0.5;
/// Threads of a warp whose loads are next to each other need 4 sectors of 4-byte words; more than this are said.
const SCATTERED: f64 = 16.0;
/// The most rows in a summary.
const MOST: usize = 100;

/// What limits a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The tensor pipe.
    Tensor,
    /// The FP64 pipe.
    Fp64,
    /// The pipe of FP32 arithmetic.
    Fp32,
    /// The pipe of integers, comparisons and the like.
    Integer,
    /// Special functions and conversions.
    Special,
    /// The issue of instructions.
    Issue,
    /// The memory of the device.
    Dram,
    /// The L2 cache.
    L2,
    /// The data of L1 and shared memory.
    L1,
    /// Shared memory: accesses of a warp to the same bank wait for each other.
    BankConflicts,
    /// Requests to load and store.
    LoadStore,
    /// The grid does not give work to all multiprocessors.
    SmallGrid,
    /// The last wave of blocks is mostly empty.
    Tail,
    /// Few warps fit at a time.
    Occupancy,
    /// Warps wait, and no unit is busy.
    Latency,
    /// No unit that was measured is near its peak, and others were not measured.
    Undecided,
    /// No launch of it was measured.
    NotMeasured,
}

impl Limit {
    /// Returns it in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Tensor => "tensor pipe",
            Self::Fp64 => "FP64 pipe",
            Self::Fp32 => "FP32 pipe",
            Self::Integer => "integer pipe",
            Self::Special => "special functions",
            Self::Issue => "issue",
            Self::Dram => "DRAM",
            Self::L2 => "L2 cache",
            Self::L1 => "L1 cache",
            Self::BankConflicts => "bank conflicts",
            Self::LoadStore => "loads and stores",
            Self::SmallGrid => "small grid",
            Self::Tail => "tail",
            Self::Occupancy => "occupancy",
            Self::Latency => "latency",
            Self::Undecided => "undecided",
            Self::NotMeasured => "not measured",
        }
    }

    /// Returns what would have to change.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Tensor => "it does what the hardware can: smaller types (FP8) or less work",
            Self::Fp64 => "use FP32, or TF32 and FP64 where it is needed",
            Self::Fp32 => "use tensor cores or half precision",
            Self::Integer => "fewer index computations and conversions: wider loads, less unrolled addressing",
            Self::Special => "fewer divisions, roots, exponentials and conversions",
            Self::Issue => "fewer instructions: wider loads and stores, packed types",
            Self::Dram => "read and write less: fuse kernels, smaller types, blocks that stay in the caches",
            Self::L2 => "reuse data in shared memory or registers; spread atomic operations",
            Self::L1 => "reuse data in registers; wider and neighbouring accesses",
            Self::BankConflicts => "pad or swizzle arrays in shared memory",
            Self::LoadStore => "wider loads and stores; neighbouring threads should access neighbouring words",
            Self::SmallGrid => "more blocks: a larger batch, split the reduction, or several kernels at a time",
            Self::Tail => "blocks of another size, or a grid that fills whole waves (persistent kernels)",
            Self::Occupancy => "fewer registers or less shared memory for each block, or more work for each thread",
            Self::Latency => "more loads in flight, more warps; --stalls shows where warps wait",
            Self::Undecided => "not all pipes were measured: record for longer",
            Self::NotMeasured => "it ran only in graphs or beside others, or the budget was spent: record for longer",
        }
    }
}

/// A kernel at a line of code. Shares are in percent of the peak while it ran; absent if they were not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelLimit {
    /// Its name.
    pub kernel: String,
    /// The line of user code that launched it.
    #[serde(serialize_with = "frame")]
    pub line: Place,
    /// What limits it.
    pub limit: Limit,
    /// The share of the peak of what limits it.
    pub of_peak: Option<f64>,
    /// All runs of the kernel at this line together.
    pub ns: u64,
    /// Their share of the GPU time of all work.
    pub share: f64,
    /// Runs.
    pub runs: u64,
    /// Launches that were measured.
    pub measured: u64,
    /// None of them was at this line: values are those of the kernel's launches at other lines.
    pub elsewhere: bool,
    /// Multiprocessors that had work.
    pub sm_active: Option<f64>,
    /// Warps, of those that fit, while a multiprocessor had work: the achieved occupancy.
    pub warps: Option<f64>,
    /// Instructions issued.
    pub issue: Option<f64>,
    /// The tensor pipe.
    pub tensor: Option<f64>,
    /// The FP32 pipe.
    pub fp32: Option<f64>,
    /// The FP64 pipe.
    pub fp64: Option<f64>,
    /// The memory of the device.
    pub dram: Option<f64>,
    /// Its bytes per second, read and written.
    pub dram_bytes_per_second: Option<f64>,
    /// The L2 cache: requests, or data returned.
    pub l2: Option<f64>,
    /// L1 and shared memory.
    pub l1: Option<f64>,
    /// Sectors found in L1, in percent.
    pub l1_hits: Option<f64>,
    /// Sectors found in L2, in percent.
    pub l2_hits: Option<f64>,
    /// Active threads of an instruction, of 32.
    pub threads: Option<f64>,
    /// Sectors of a request to load from global memory: 4 if neighbouring threads load neighbouring 4-byte words.
    pub sectors: Option<f64>,
    /// Cycles that accesses to shared memory waited for others to the same bank, in percent of its cycles.
    pub bank_conflicts: Option<f64>,
    /// Floating-point operations per second, at most: each instruction of a pipe counts as a multiplication and an addition.
    pub flops: Option<f64>,
    /// Those operations for each byte of the device's memory.
    pub flops_per_byte: Option<f64>,
    /// What limits it and what it could be, in a sentence.
    pub meaning: String,
}

fn frame<S: Serializer>(place: &Place, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&place.frame)
}

/// The kernels of a recording by what limits them, and how they were measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitSummary {
    /// Kernels by line, those with the most time first.
    pub kernels: Vec<KernelLimit>,
    /// The GPU time of kernels of which a launch was measured.
    pub judged_ns: u64,
    /// The GPU time of all kernels.
    pub kernel_ns: u64,
    /// Launches that were measured.
    pub measured: u64,
    /// Launches that were measured, but did not run alone.
    pub disturbed: u64,
    /// Launches that were measured, but have no values.
    pub lost: u64,
    /// Launches of communication kernels, which are never measured.
    pub communication: u64,
    /// Time that measuring took in the program's threads.
    pub took_ns: u64,
}

/// Sums up the limits of a profile; `None` if nothing was to be measured.
pub(crate) fn summary(profile: &Profile) -> Option<LimitSummary> {
    if profile.limit_totals.is_empty() && profile.limits.is_empty() {
        return None;
    }
    let mut kernels = all(profile);
    let judged = |row: &&KernelLimit| !matches!(row.limit, Limit::NotMeasured | Limit::Undecided);
    let time = |wanted: &dyn Fn(&&KernelLimit) -> bool| {
        kernels.iter().filter(wanted).fold(0_u64, |sum, row| sum.saturating_add(row.ns))
    };
    let (judged_ns, kernel_ns) = (time(&judged), time(&|_| true));
    kernels.truncate(MOST);
    let total = |of: fn(&model::event::LimitTotals) -> u64| {
        profile.limit_totals.values().fold(0_u64, |sum, totals| sum.saturating_add(of(totals)))
    };
    Some(LimitSummary {
        kernels,
        judged_ns,
        kernel_ns,
        measured: total(|totals| totals.measured),
        disturbed: total(|totals| totals.disturbed),
        lost: total(|totals| totals.lost),
        communication: total(|totals| totals.communication),
        took_ns: total(|totals| totals.took_ns),
    })
}

/// What was measured of a kernel, and how its measured launches filled the device.
#[derive(Clone, Default)]
struct Sum {
    measured: Measured,
    /// The fill of the shape with the most measured launches, and their number.
    fill: Option<(u64, Occupancy, Shape)>,
}

impl Sum {
    fn add(&mut self, measured: &Measured, fill: Option<(Occupancy, Shape)>) {
        self.measured.merge(measured);
        if let Some((fill, shape)) = fill
            && self.fill.is_none_or(|(launches, ..)| launches < measured.launches)
        {
            self.fill = Some((measured.launches, fill, shape));
        }
    }
}

/// Returns what limits each kernel at each line, those with the most time first. Empty if nothing was measured.
pub(crate) fn all(profile: &Profile) -> Vec<KernelLimit> {
    if profile.limits.is_empty() {
        return Vec::new();
    }
    let code = UserCode::new(profile);
    let mut at_lines: BTreeMap<(u32, Place), Sum> = BTreeMap::new();
    let mut of_kernels: BTreeMap<u32, Sum> = BTreeMap::new();
    for (key, measured) in &profile.limits {
        let device = profile.devices.get(&key.device);
        let fill = device.and_then(|device| Occupancy::of(&device.limits, &key.shape)).map(|fill| (fill, key.shape));
        let line = code.place(key.process, key.stack);
        at_lines.entry((key.kernel, line)).or_default().add(measured, fill);
        of_kernels.entry(key.kernel).or_default().add(measured, fill);
    }
    let mut times: BTreeMap<(u32, Place), (u64, u64)> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        let Some(kernel) = key.what.kernel() else { continue };
        let line = match key.capture.or(key.stack) {
            Some(stack) => code.place(key.process, stack),
            None => Place { frame: names::LAUNCH_NOT_SEEN.to_owned(), file: String::new() },
        };
        let (ns, runs) = times.entry((kernel, line)).or_default();
        (*ns, *runs) = (ns.saturating_add(weight.ns), runs.saturating_add(weight.count));
    }
    let whole = profile.gpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
    let none = Sum::default();
    let row = |((kernel, line), (ns, runs)): ((u32, Place), (u64, u64))| {
        let own = at_lines.get(&(kernel, line.clone()));
        let sum = own.or_else(|| of_kernels.get(&kernel)).unwrap_or(&none);
        let share = if whole == 0 { 0.0 } else { ns as f64 / whole as f64 };
        let (limit, of_peak) = judge(sum);
        KernelLimit {
            kernel: names::kernel(profile, kernel).to_owned(),
            line,
            ns,
            share,
            runs,
            elsewhere: own.is_none() && sum.measured.launches > 0,
            ..described(sum, limit, of_peak)
        }
    };
    let mut rows: Vec<KernelLimit> = times.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (&a.kernel, &a.line).cmp(&(&b.kernel, &b.line))));
    rows
}

/// Returns what limits a kernel, by the first of the rules that holds, and the share of its peak.
fn judge(sum: &Sum) -> (Limit, Option<f64>) {
    let value = |metric| sum.measured.value(metric);
    let Some(active) = value(m::SM_ACTIVE).filter(|_| sum.measured.launches > 0) else {
        return (Limit::NotMeasured, None);
    };
    let shared = sum.measured.ratio(m::BANK_CONFLICTS, m::SHARED_WAVEFRONTS).is_some_and(|conflicts| conflicts > 0.5);
    let units = [
        (Limit::Tensor, value(m::TENSOR)),
        (Limit::Fp64, value(m::FP64)),
        (Limit::Dram, value(m::DRAM)),
        (Limit::L2, l2(sum)),
        (if shared { Limit::BankConflicts } else { Limit::L1 }, value(m::L1_DATA)),
        (Limit::Fp32, value(m::FMA)),
        (Limit::Integer, value(m::ALU)),
        (Limit::Special, value(m::XU)),
        (Limit::LoadStore, value(m::LSU)),
    ];
    let busiest = units
        .into_iter()
        .filter_map(|(limit, value)| Some((limit, value?)))
        .reduce(|most, next| if next.1 > most.1 { next } else { most });
    if let Some((limit, share)) = busiest.filter(|(_, share)| *share >= BOUND) {
        return (limit, Some(share));
    }
    if let Some(share) = value(m::ISSUE).filter(|share| *share >= BOUND) {
        return (Limit::Issue, Some(share));
    }
    let fill = sum.fill.map(|(_, fill, _)| fill);
    if active < BOUND {
        let tail = fill.is_some_and(|fill| fill.waves > 1 && fill.wave_share() < FULL_WAVES);
        return (if tail { Limit::Tail } else { Limit::SmallGrid }, Some(active));
    }
    match fill {
        Some(fill) if fill.share() <= LOW_OCCUPANCY && fill.limiter != Limiter::None => {
            (Limit::Occupancy, Some(100.0 * fill.share()))
        }
        _ if idle_pipes(sum) => (Limit::Latency, busiest.map(|(_, share)| share)),
        _ => (Limit::Undecided, busiest.map(|(_, share)| share)),
    }
}

/// Whether all pipes were measured, or so few instructions are issued that none can be near its peak.
fn idle_pipes(sum: &Sum) -> bool {
    let value = |metric| sum.measured.value(metric);
    let pipes = [m::FP64, m::FMA, m::ALU, m::XU, m::LSU];
    pipes.into_iter().all(|pipe| value(pipe).is_some()) || value(m::ISSUE).is_some_and(|issue| issue < IDLE)
}

/// The L2 cache has several parts: the busiest counts.
fn l2(sum: &Sum) -> Option<f64> {
    let parts = [m::L2_SECTORS, m::L2_TAGS, m::L2_ATOMICS, m::L2_TO_SM];
    parts.into_iter().filter_map(|metric| sum.measured.value(metric)).reduce(f64::max)
}

fn described(sum: &Sum, limit: Limit, of_peak: Option<f64>) -> KernelLimit {
    let value = |metric| sum.measured.value(metric);
    let percent = |of, by| sum.measured.ratio(of, by).map(|ratio| (100.0 * ratio).min(100.0));
    let bytes = match (value(m::DRAM_READ), value(m::DRAM_WRITE)) {
        (None, None) => None,
        (read, write) => Some(read.unwrap_or(0.0) + write.unwrap_or(0.0)),
    };
    let operations = [
        (m::FMA_THREADS, 2.0),
        (m::FP64_THREADS, 2.0),
        (m::FP16_TENSOR_OPS, 1.0),
        (m::FP8_TENSOR_OPS, 1.0),
        (m::FP64_TENSOR_OPS, 1.0),
        (m::BF16_TENSOR_OPS, 1.0),
        (m::TF32_TENSOR_OPS, 1.0),
    ];
    let flops = operations
        .iter()
        .filter_map(|(metric, each)| Some(value(*metric)? * each))
        .reduce(|sum, more| sum + more)
        // Without the pipe that it uses most, the sum would be too small.
        .filter(|_| value(m::FMA_THREADS).is_some());
    let hits = value(m::L2_HITS).zip(value(m::L2_MISSES)).filter(|(hits, misses)| hits + misses > 0.0);
    let mut row = KernelLimit {
        kernel: String::new(),
        line: Place { frame: String::new(), file: String::new() },
        limit,
        of_peak,
        ns: 0,
        share: 0.0,
        runs: 0,
        measured: sum.measured.launches,
        elsewhere: false,
        sm_active: value(m::SM_ACTIVE),
        warps: value(m::WARPS),
        issue: value(m::ISSUE),
        tensor: value(m::TENSOR),
        fp32: value(m::FMA),
        fp64: value(m::FP64),
        dram: value(m::DRAM),
        dram_bytes_per_second: bytes,
        l2: l2(sum),
        l1: value(m::L1_DATA),
        l1_hits: percent(m::L1_HITS, m::L1_SECTORS),
        l2_hits: hits.map(|(hits, misses)| 100.0 * hits / (hits + misses)),
        threads: sum.measured.ratio(m::THREAD_INSTRUCTIONS, m::INSTRUCTIONS),
        sectors: sum.measured.ratio(m::LOAD_SECTORS, m::LOAD_REQUESTS),
        bank_conflicts: percent(m::BANK_CONFLICTS, m::SHARED_WAVEFRONTS),
        flops,
        flops_per_byte: flops.zip(bytes).filter(|(_, bytes)| *bytes > 0.0).map(|(flops, bytes)| flops / bytes),
        meaning: String::new(),
    };
    row.meaning = meaning(&row, sum);
    row
}

fn meaning(row: &KernelLimit, sum: &Sum) -> String {
    let fill = sum.fill.map(|(_, fill, shape)| (fill, shape));
    let mut text = match (row.limit, fill, row.of_peak) {
        (Limit::NotMeasured, ..) => String::new(),
        (Limit::SmallGrid, Some((fill, shape)), Some(active)) => {
            format!(
                "{} blocks for {} multiprocessors: {active:.0} % of them active; ",
                shape.blocks,
                multiprocessors(&fill)
            )
        }
        (Limit::Tail, Some((fill, _)), Some(active)) => format!(
            "{} waves, {} blocks of {} in the last: {active:.0} % of the multiprocessors active; ",
            fill.waves, fill.last_wave, fill.wave
        ),
        (Limit::Occupancy, Some((fill, _)), _) => {
            format!("{} of {} warps fit, by {}; ", fill.warps, fill.most_warps, fill.limiter.text())
        }
        (Limit::SmallGrid, _, Some(active)) => format!("{active:.0} % of the multiprocessors active; "),
        (Limit::Latency | Limit::Undecided, _, Some(most)) => format!("no unit above {most:.0} % of its peak; "),
        (_, _, Some(share)) => format!("{share:.0} % of its peak; "),
        (_, _, None) => String::new(),
    };
    if let Some(threads) = row.threads.filter(|threads| *threads < DIVERGENT * WARP) {
        text += &format!("{threads:.1} of 32 threads active in an instruction: branches diverge; ");
    }
    if let Some(sectors) = row.sectors.filter(|sectors| *sectors >= SCATTERED) {
        text += &format!("{sectors:.0} sectors for a load: threads of a warp load far from each other; ");
    }
    text + row.limit.advice()
}

fn multiprocessors(fill: &Occupancy) -> u64 {
    fill.wave / u64::from(fill.blocks.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::occupancy::tests::h200;

    /// A kernel with these values, of a range that is as long as the kernel.
    fn sum(values: &[(usize, f64)], shape: Option<Shape>) -> Sum {
        let mut measured = Measured::default();
        let mut all = vec![(m::TIME as u32, 1000.0), (m::SM_ACTIVE as u32, 99.0)];
        all.extend([m::FP64, m::FMA, m::ALU, m::XU, m::LSU].map(|pipe| (pipe as u32, 1.0)));
        for (metric, value) in values {
            all.retain(|(known, _)| known != &(*metric as u32));
            all.push((*metric as u32, *value));
        }
        measured.add(&all, 1000);
        let fill = shape.map(|shape| (Occupancy::of(&h200(), &shape).unwrap(), shape));
        let mut sum = Sum::default();
        sum.add(&measured, fill);
        sum
    }

    fn shape(blocks: u32, threads: u32, shared: u32) -> Option<Shape> {
        Some(Shape::of([blocks, 1, 1], [threads, 1, 1], 32, shared))
    }

    /// Check each rule with the values that kernels of known nature had on an H200 (tests/gpu_limits/kernels.cu).
    #[test]
    fn kernels_of_known_nature() {
        let wide = shape(1056, 256, 0);
        let conflicts = [(m::L1_DATA, 99.9), (m::BANK_CONFLICTS, 97.0), (m::SHARED_WAVEFRONTS, 100.0), (m::ISSUE, 4.1)];
        type Known<'a> = (&'a str, &'a [(usize, f64)], Option<Shape>, Limit);
        let tests: [Known<'_>; 14] = [
            ("stream_copy", &[(m::DRAM, 82.8), (m::L2_SECTORS, 40.0), (m::L1_DATA, 13.6)], wide, Limit::Dram),
            ("strided", &[(m::DRAM, 92.2), (m::L2_SECTORS, 42.7)], wide, Limit::Dram),
            ("random_gather", &[(m::DRAM, 52.1), (m::L2_TAGS, 51.0), (m::SM_ACTIVE, 81.0)], wide, Limit::Latency),
            ("bank_conflicts", &conflicts, wide, Limit::BankConflicts),
            ("divergent", &[(m::FMA, 76.8), (m::ISSUE, 94.6)], wide, Limit::Fp32),
            ("fp64", &[(m::FP64, 95.8), (m::ISSUE, 53.2)], wide, Limit::Fp64),
            ("fp32", &[(m::FMA, 93.9), (m::ISSUE, 99.8)], wide, Limit::Fp32),
            ("without its pipes", &[(m::ISSUE, 99.8)], wide, Limit::Issue),
            ("tensor_large", &[(m::TENSOR, 96.6), (m::ISSUE, 26.2)], wide, Limit::Tensor),
            ("tensor_tiny", &[(m::TENSOR, 1.4), (m::SM_ACTIVE, 1.4)], shape(2, 256, 0), Limit::SmallGrid),
            ("atomics", &[(m::L2_TAGS, 65.8), (m::L2_ATOMICS, 43.8)], wide, Limit::L2),
            ("latency_chain", &[(m::DRAM, 1.0), (m::SM_ACTIVE, 98.0)], shape(132, 32, 0), Limit::Latency),
            ("low_occupancy", &[(m::DRAM, 18.1), (m::SM_ACTIVE, 97.0)], shape(132, 64, 160 << 10), Limit::Occupancy),
            ("tail_wave", &[(m::FMA, 43.8), (m::SM_ACTIVE, 50.0)], shape(133, 256, 160 << 10), Limit::Tail),
        ];
        for (name, values, shape, limit) in tests {
            assert_eq!(judge(&sum(values, shape)).0, limit, "{name}");
        }
        let l2 = [(m::L2_SECTORS, 52.4), (m::L2_TO_SM, 76.7), (m::ISSUE, 62.1), (m::ALU, 46.7)];
        assert_eq!(judge(&sum(&l2, wide)), (Limit::L2, Some(76.7)));
    }

    /// Check that a kernel does not wait for latency as long as a pipe may be at its peak that was not measured.
    #[test]
    fn pipes_that_were_not_measured_may_be_busy() {
        let with = |issue: f64, pipe: Option<usize>| {
            let mut measured = Measured::default();
            let mut all = vec![(m::TIME as u32, 1.0), (m::SM_ACTIVE as u32, 99.0), (m::ISSUE as u32, issue)];
            all.extend([m::FP64, m::FMA, m::ALU, m::XU].map(|pipe| (pipe as u32, 1.0)));
            all.extend(pipe.map(|pipe| (pipe as u32, 1.0)));
            measured.add(&all, 1);
            judge(&Sum { measured, fill: None }).0
        };
        assert_eq!(
            (with(20.0, None), with(20.0, Some(m::LSU)), with(0.8, None)),
            (Limit::Undecided, Limit::Latency, Limit::Latency)
        );
    }

    /// Check each threshold, and that nothing is said without values.
    #[test]
    fn thresholds() {
        let at = |metric, value| judge(&sum(&[(metric, value)], shape(1056, 256, 0))).0;
        assert_eq!((at(m::DRAM, 60.0), at(m::DRAM, 59.9)), (Limit::Dram, Limit::Latency));
        assert_eq!((at(m::ISSUE, 60.0), at(m::ISSUE, 59.9)), (Limit::Issue, Limit::Latency));
        assert_eq!((at(m::SM_ACTIVE, 60.0), at(m::SM_ACTIVE, 59.9)), (Limit::Latency, Limit::SmallGrid));
        assert_eq!(judge(&Sum::default()), (Limit::NotMeasured, None));
        let few = |warps: u32| judge(&sum(&[], shape(1056, 32 * warps, 220 << 10))).0;
        assert_eq!((few(16), few(17)), (Limit::Occupancy, Limit::Latency), "16 of 64 warps are a quarter");
    }

    /// Check the sentences: which values they give, and when they speak of divergence and scattered loads.
    #[test]
    fn sentences_have_their_numbers() {
        let text = |values: &[(usize, f64)], shape| {
            let sum = sum(values, shape);
            let (limit, of_peak) = judge(&sum);
            described(&sum, limit, of_peak).meaning
        };
        let diverges = [(m::FMA, 76.8), (m::INSTRUCTIONS, 10.0), (m::THREAD_INSTRUCTIONS, 10.0)];
        let said = text(&diverges, shape(1056, 256, 0));
        assert!(said.starts_with("77 % of its peak; 1.0 of 32 threads active"), "{said}");
        let said = text(&[(m::SM_ACTIVE, 1.5)], shape(2, 256, 0));
        assert!(said.starts_with("2 blocks for 132 multiprocessors: 2 % of them active; more blocks"), "{said}");
        let said = text(&[(m::SM_ACTIVE, 50.0)], shape(133, 256, 160 << 10));
        assert!(said.starts_with("2 waves, 1 blocks of 132 in the last: 50 %"), "{said}");
        let scattered = |each: f64| [(m::DRAM, 90.0), (m::LOAD_SECTORS, each), (m::LOAD_REQUESTS, 1.0)];
        assert!(text(&scattered(16.0), None).contains("16 sectors for a load"));
        assert!(!text(&scattered(15.9), None).contains("sectors"));
    }

    /// Check that the operations of all pipes are added up, and that they are not given while one is missing.
    #[test]
    fn operations_need_all_pipes() {
        let some = sum(&[(m::BF16_TENSOR_OPS, 1e6)], None);
        assert_eq!(described(&some, Limit::Tensor, None).flops, None);
        let all = sum(&[(m::BF16_TENSOR_OPS, 1e6), (m::FMA_THREADS, 1e3), (m::DRAM_READ, 1e3)], None);
        let row = described(&all, Limit::Tensor, None);
        // A launch of 1,000 ns.
        assert_eq!(row.flops, Some((1e6 + 2e3) * 1e6));
        assert_eq!(row.flops_per_byte, Some(1002.0));
    }
}
