//! Assigns the samples of the counters of GPUs to kernels, while samples and kernels arrive.
//!
//! ```text
//!   samples   |     a     |     b     |     c     |     d     |     e     |
//!   gemm      ========================
//!   softmax                            ===   ==========================
//!   belongs   gemm        gemm         -           softmax     -
//!                                      partial                 partial
//! ```
//!
//! A sample belongs to a kernel if the runs of this kernel cover nearly all of it, and nothing else ran. If short kernels
//! alternate, there is no such sample: one that a kernel had nearly to itself while the GPU was busy belongs to it with the
//! others' share, which bounds the error ([`crate::verdict`]).
//!
//! Operations arrive later than the samples around them, so samples stay open; an operation may also arrive before its samples, and waits
//! ahead.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::{
    event::{PmSamples, Uuid},
    gpu_counters::pm,
    verdict::{Assigned, KernelSamples, MIN_BUSY, MIN_COVERED, MIN_DOMINANT},
};

/// The maximum number of GPUs.
const MAX_GPUS: usize = 64;
/// The maximum number of open samples of a GPU: a minute at 1 ms.
const MAX_OPEN: usize = 1 << 16;
/// The maximum number of runs in the open samples of a GPU.
const MAX_PARTS: usize = 1 << 19;
/// The maximum number of operations of a GPU that wait for samples.
const MAX_AHEAD: usize = 1 << 17;

/// The counters of all GPUs.
#[derive(Default)]
pub struct CounterSamples {
    gpus: BTreeMap<Uuid, Monitor>,
    kernels: FxHashMap<u32, KernelSamples>,
    assigned: Assigned,
}

impl CounterSamples {
    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// Adds samples. Without any, they begin now: operations from here on wait for them.
    pub fn sample(&mut self, samples: &PmSamples) {
        if self.gpus.len() >= MAX_GPUS && !self.gpus.contains_key(&samples.gpu) {
            return;
        }
        let Self { gpus, kernels, assigned } = self;
        let monitor = gpus.entry(samples.gpu).or_insert_with(|| Monitor::new(samples.start));
        for (start, end, values) in samples.samples() {
            monitor.sample(start, end, samples.metrics.iter().copied().zip(values.iter().copied()));
            monitor.close_surplus(kernels, assigned);
        }
    }

    /// Adds an operation: a run of a kernel, or something else.
    pub fn add(&mut self, gpu: Uuid, start: u64, end: u64, kernel: Option<u32>) {
        let Self { gpus, kernels, assigned } = self;
        if let Some(monitor) = gpus.get_mut(&gpu).filter(|_| start < end) {
            assigned.late_ns = assigned.late_ns.saturating_add(monitor.add(start, end, kernel));
            monitor.close_surplus(kernels, assigned);
        }
    }

    /// Returns the samples of each kernel, and how all were assigned.
    pub fn finish(mut self) -> (FxHashMap<u32, KernelSamples>, Assigned) {
        for monitor in self.gpus.values_mut() {
            while monitor.close_oldest(&mut self.kernels, &mut self.assigned) {}
        }
        (self.kernels, self.assigned)
    }
}

/// The counters of one GPU.
struct Monitor {
    open: VecDeque<Sample>,
    /// Runs in the open samples.
    parts: usize,
    ahead: Vec<(u64, u64, Option<u32>)>,
    /// The beginning of the first sample, and the end of the last.
    span: (u64, u64),
}

struct Sample {
    start: u64,
    end: u64,
    values: [Option<u32>; pm::COUNT],
    ran: Ran,
}

/// What ran in a sample.
enum Ran {
    Nothing,
    /// One kernel, and when.
    Kernel(u32, Vec<(u64, u64)>),
    /// Several kernels, or something else, and when.
    Several(Vec<(u64, u64, Option<u32>)>),
}

impl Sample {
    /// Adds an operation; returns how many more runs are kept.
    fn add(&mut self, start: u64, end: u64, kernel: Option<u32>) -> usize {
        let (start, end) = (start.max(self.start), end.min(self.end));
        if start >= end {
            return 0;
        }
        match (&mut self.ran, kernel) {
            (Ran::Nothing, Some(kernel)) => {
                self.ran = Ran::Kernel(kernel, vec![(start, end)]);
                1
            }
            (Ran::Kernel(known, runs), Some(kernel)) if *known == kernel => {
                runs.push((start, end));
                1
            }
            (Ran::Kernel(known, runs), _) => {
                let known = Some(*known);
                let before = std::mem::take(runs).into_iter().map(|(start, end)| (start, end, known));
                self.ran = Ran::Several(before.chain([(start, end, kernel)]).collect());
                1
            }
            (Ran::Nothing, None) => {
                self.ran = Ran::Several(vec![(start, end, None)]);
                1
            }
            (Ran::Several(all), _) => {
                all.push((start, end, kernel));
                1
            }
        }
    }
}

/// Returns the kernel with the most time among operations, the time in which only it ran, and the time in which others did,
/// alone or beside it.
fn dominant(all: &[(u64, u64, Option<u32>)]) -> Option<(u32, u64, u64)> {
    let mut times: FxHashMap<u32, u64> = FxHashMap::default();
    for (start, end, kernel) in all {
        if let Some(kernel) = kernel {
            *times.entry(*kernel).or_default() += end - start;
        }
    }
    let (&most, _) = times.iter().max_by_key(|(kernel, ns)| (**ns, std::cmp::Reverse(**kernel)))?;
    let time = |wanted: &dyn Fn(Option<u32>) -> bool| {
        covered(all.iter().filter(|(.., kernel)| wanted(*kernel)).map(|(start, end, _)| (*start, *end)).collect())
    };
    let (busy, others) = (time(&|_| true), time(&|kernel| kernel != Some(most)));
    Some((most, busy - others, others))
}

/// Returns the time that intervals cover.
fn covered(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut total, mut until) = (0, 0);
    for (start, end) in intervals {
        total += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    total
}

impl Monitor {
    fn new(start: u64) -> Self {
        Self { open: VecDeque::new(), parts: 0, ahead: Vec::new(), span: (start, start) }
    }

    fn sample(&mut self, start: u64, end: u64, values: impl Iterator<Item = (u32, u32)>) {
        if !self.has_begun() {
            // The event that declared the GPU was made a moment later on a busy machine.
            self.span = (start, start);
        }
        let (_, last) = self.span;
        // Of recordings that are read as one, each may have samples of the same GPU. Two samples of one recording may overlap a
        // little, because the clocks are compared anew from time to time.
        let overlap = last.saturating_sub(start);
        if end <= start || overlap > (end - start) / 2 {
            return;
        }
        let start = start.max(last);
        self.span.1 = end;
        let mut sample = Sample { start, end, values: [None; pm::COUNT], ran: Ran::Nothing };
        for (metric, value) in values {
            if let Some(place) = sample.values.get_mut(metric as usize) {
                *place = Some(value);
            }
        }
        let mut parts = 0;
        self.ahead.retain_mut(|(from, to, kernel)| {
            parts += sample.add(*from, *to, *kernel);
            *from = (*from).max(end);
            *from < *to
        });
        self.parts += parts;
        self.open.push_back(sample);
    }

    fn has_begun(&self) -> bool {
        self.span.0 < self.span.1
    }

    /// Returns the time of the operation in samples that are closed, and what could not be kept.
    fn add(&mut self, start: u64, end: u64, kernel: Option<u32>) -> u64 {
        // Without samples yet, they may also begin earlier than they were declared.
        let (first, last) = if self.has_begun() { self.span } else { (end, 0) };
        let open = self.open.front().map_or(last, |sample| sample.start);
        let mut late = open.min(end).saturating_sub(start.max(first));
        let at = self.open.partition_point(|sample| sample.end <= start);
        for sample in self.open.iter_mut().skip(at).take_while(|sample| sample.start < end) {
            self.parts += sample.add(start, end, kernel);
        }
        if end > last {
            if self.ahead.len() < MAX_AHEAD {
                self.ahead.push((start.max(last), end, kernel));
            } else {
                late = late.saturating_add(end - start.max(last));
            }
        }
        late
    }

    /// Closes the oldest samples if there are too many.
    fn close_surplus(&mut self, kernels: &mut FxHashMap<u32, KernelSamples>, assigned: &mut Assigned) {
        while self.parts > MAX_PARTS || self.open.len() > MAX_OPEN {
            self.close_oldest(kernels, assigned);
        }
    }

    /// Assigns the oldest sample; `false` if there is none.
    fn close_oldest(&mut self, kernels: &mut FxHashMap<u32, KernelSamples>, assigned: &mut Assigned) -> bool {
        let Some(Sample { start, end, values, ran }) = self.open.pop_front() else { return false };
        assigned.samples += 1;
        let known = |(metric, value): (u32, Option<u32>)| Some((metric, value?));
        let values = || (0..).zip(values).filter_map(known);
        let reaches =
            |ns: u64, whole: u64, percent: u64| u128::from(ns) * 100 >= u128::from(whole) * u128::from(percent);
        match ran {
            Ran::Nothing => assigned.idle += 1,
            Ran::Several(all) => {
                self.parts -= all.len();
                match dominant(&all) {
                    Some((kernel, own, others))
                        if reaches(own, own + others, MIN_DOMINANT) && reaches(own + others, end - start, MIN_BUSY) =>
                    {
                        assigned.mostly += 1;
                        kernels.entry(kernel).or_default().add_shared(values(), (own, others, end - start));
                    }
                    _ => assigned.shared += 1,
                }
            }
            Ran::Kernel(kernel, runs) => {
                self.parts -= runs.len();
                if reaches(covered(runs), end - start, MIN_COVERED) {
                    assigned.of_kernels += 1;
                    kernels.entry(kernel).or_default().add(values());
                } else {
                    assigned.partial += 1;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Uuid = Uuid(7);
    const KERNELS: [&str; 2] = ["gemm", "softmax"];

    fn samples(start: u64, widths: &[u64], first: u32) -> PmSamples {
        let mut end = 0;
        let times = widths.iter().map(|width| {
            end += width;
            (end - width, end)
        });
        let times: Vec<_> = times.collect();
        let values = (first..).take(times.len()).collect();
        PmSamples { gpu: GPU, start, metrics: vec![pm::SM_ACTIVE], times, values }
    }

    /// Returns name, samples and mean of each kernel, in hundredths.
    fn kernels(samples_of_gpus: CounterSamples) -> (Vec<(&'static str, u64, f64)>, Assigned) {
        let (sums, assigned) = samples_of_gpus.finish();
        let mut rows: Vec<_> = sums
            .into_iter()
            .map(|(kernel, sums)| (KERNELS[kernel as usize], sums.samples, sums.mean(pm::SM_ACTIVE).unwrap() * 100.0))
            .collect();
        rows.sort_unstable_by_key(|row| row.0);
        (rows, assigned)
    }

    /// Check the drawing above: samples belong to the kernel that fills them alone, whatever arrives first, and whenever the GPU
    /// was declared.
    #[test]
    fn samples_belong_to_one_kernel() {
        let operations = [(1_000, 1_200, Some(0)), (1_210, 1_240, Some(1)), (1_270, 1_450, Some(1))];
        for (late, declared) in [(false, 900), (true, 900), (false, 1_300), (true, 1_300)] {
            let mut samples_of_gpus = CounterSamples::default();
            samples_of_gpus.sample(&samples(declared, &[], 1));
            let pm = samples(1_000, &[100; 5], 10);
            if late {
                samples_of_gpus.sample(&pm);
            }
            for (start, end, kernel) in operations {
                samples_of_gpus.add(GPU, start, end, kernel);
            }
            if !late {
                samples_of_gpus.sample(&pm);
            }
            let (rows, assigned) = kernels(samples_of_gpus);
            assert_eq!(rows, [("gemm", 2, 10.5), ("softmax", 1, 13.0)]);
            let expected = Assigned { samples: 5, of_kernels: 3, partial: 2, ..Assigned::default() };
            assert_eq!(assigned, expected);
        }
    }

    /// Check the thresholds, that concurrent runs count once, and that other operations leave at most a bounded sample.
    #[test]
    fn other_work_takes_a_sample_away() {
        let assign = |operations: &[(u64, u64, Option<u32>)]| {
            let mut samples_of_gpus = CounterSamples::default();
            samples_of_gpus.sample(&samples(1_000, &[100], 50));
            operations.iter().for_each(|(start, end, kernel)| samples_of_gpus.add(GPU, *start, *end, *kernel));
            let (_, Assigned { of_kernels, mostly, shared, partial, idle, .. }) = samples_of_gpus.finish();
            (of_kernels, mostly, shared, partial, idle)
        };
        assert_eq!(assign(&[(1_005, 1_200, Some(0))]), (1, 0, 0, 0, 0));
        assert_eq!(assign(&[(1_006, 1_200, Some(0))]), (0, 0, 0, 1, 0));
        assert_eq!(assign(&[(1_000, 1_050, Some(0)), (1_000, 1_050, Some(0))]), (0, 0, 0, 1, 0));
        assert_eq!(assign(&[(1_050, 1_100, Some(0)), (900, 1_055, Some(0))]), (1, 0, 0, 0, 0));
        assert_eq!(assign(&[(900, 1_200, Some(0)), (1_090, 1_100, Some(1))]), (0, 1, 0, 0, 0));
        assert_eq!(assign(&[(900, 1_200, Some(0)), (1_089, 1_100, Some(1))]), (0, 0, 1, 0, 0));
        assert_eq!(assign(&[(1_000, 1_045, Some(0)), (1_050, 1_055, Some(1))]), (0, 1, 0, 0, 0));
        assert_eq!(assign(&[(1_000, 1_044, Some(0)), (1_050, 1_054, Some(1))]), (0, 0, 1, 0, 0), "mostly idle");
        assert_eq!(assign(&[(900, 1_200, Some(0)), (1_000, 1_001, None)]), (0, 1, 0, 0, 0));
        assert_eq!(assign(&[(1_000, 1_001, None)]), (0, 0, 1, 0, 0));
        assert_eq!(assign(&[(1_100, 1_200, Some(1)), (1_050, 1_050, Some(1)), (0, 1_000, None)]), (0, 0, 0, 0, 1));
    }

    /// Check that memory is bounded, and that what arrives too late is counted.
    #[test]
    fn late_operations_are_counted() {
        let mut samples_of_gpus = CounterSamples::default();
        samples_of_gpus.sample(&samples(1_000, &vec![10; MAX_OPEN + 5], 0));
        assert_eq!(samples_of_gpus.gpus[&GPU].open.len(), MAX_OPEN);
        samples_of_gpus.add(GPU, 500, 1_060, Some(0));
        // The same samples again, as another recording of the same GPU has them. The next one overlaps the last a little.
        samples_of_gpus.sample(&samples(1_000, &[10; 3], 0));
        let end = samples_of_gpus.gpus[&GPU].span.1;
        samples_of_gpus.sample(&samples(end - 4, &[10], 0));
        let (sums, assigned) = samples_of_gpus.finish();
        assert_eq!((sums[&0].samples, assigned.late_ns), (1, 50));
        assert_eq!((assigned.samples, assigned.idle), (MAX_OPEN as u64 + 6, MAX_OPEN as u64 + 5));
    }

    /// Check that short runs do not take unlimited memory.
    #[test]
    fn short_runs_are_bounded() {
        let mut samples_of_gpus = CounterSamples::default();
        samples_of_gpus.sample(&samples(0, &[10_000_000; 2], 0));
        for n in 0..MAX_PARTS as u64 + 10 {
            samples_of_gpus.add(GPU, 10 * n, 10 * n + 10, Some(0));
        }
        assert!(samples_of_gpus.gpus[&GPU].parts <= MAX_PARTS);
    }
}
