//! How long steps take: their distribution, without the first ones if these are slower.

use std::collections::BTreeMap;

use model::{
    profile::Profile,
    steps::{Difference, Level, Outlier, Series, Step, Steps},
};
use serde::Serialize;
use text::{
    short::short,
    units::{counted, time},
};

use super::{
    measured::{SLOWER, measured_of, median, percentile, warm_up_of},
    outliers,
};

/// Other loops that are named.
const MOST_LEVELS: usize = 10;
/// The length of a place in a sentence, where it can be shortened to that.
const PLACE: usize = 60;

/// A part of a step: its name, and its time.
type Part = (&'static str, fn(&Step) -> u64);

/// What a step is made of. These overlap: a GPU works while the CPU does.
const PARTS: [Part; 7] = [
    ("busy_ns", |step| step.busy_ns),
    ("launching_ns", |step| step.launching_ns),
    ("waiting_ns", |step| step.waiting_ns),
    ("kernel_ns", |step| step.work.kernel_ns),
    ("communication_ns", |step| step.work.communication_ns),
    ("copy_ns", |step| step.work.copy_ns),
    ("cpu_ns", |step| step.cpu_ns),
];

/// The steps of a recording: those of the threads that run the loop with most steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// What they are steps of.
    pub place: String,
    /// All of them.
    pub count: u64,
    /// Threads.
    pub threads: u64,
    /// The first steps, which took longer and are left out of the times below.
    pub warm_up: u64,
    /// The median of their durations.
    pub median_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The slowest.
    pub slowest: Option<Slowest>,
    /// Those that took longer than the median of their thread by a factor of 1.5.
    pub slow: u64,
    /// The slowest of these, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<StepOutlier>,
    /// The median time in which no GPU worked for the process.
    pub idle_ns: u64,
    /// What steps are made of: medians, without those that are 0.
    pub made_of: BTreeMap<&'static str, u64>,
    /// The most GPU memory that a process used in any step, if allocations were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The median of the last quarter over that of the first, less 1.
    pub trend: f64,
    /// Other loops, outer ones first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<StepLevel>,
}

/// The slowest step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slowest {
    /// Its number in its thread.
    pub step: u64,
    /// Its duration.
    pub ns: u64,
    /// When it began, since the start of the recording.
    pub start_ns: u64,
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
}

/// A step that took much longer than others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepOutlier {
    /// The step.
    #[serde(flatten)]
    pub step: Slowest,
    /// Its duration over the median of its thread.
    pub times: f64,
    /// The steps of about median length that it was compared with.
    pub compared: Vec<u64>,
    /// The GPU that was compared.
    pub gpu: String,
    /// What took longer in it than in each of these; empty if nothing explains a good part of the difference.
    pub differences: Vec<Difference>,
}

/// A loop that could be the steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepLevel {
    /// Where its iterations begin.
    pub place: String,
    /// Iterations.
    pub count: u64,
}

impl StepSummary {
    /// Sums up steps; `None` if there are none.
    pub fn of(steps: &Steps, profile: &Profile) -> Option<Self> {
        let place = &steps.series.first()?.place;
        let all: Vec<&Series> = steps.series.iter().filter(|series| series.place == *place).collect();
        let (mut warm_up, mut slow) = (0, 0);
        let mut measured: Vec<(&Series, &Step)> = Vec::new();
        for series in &all {
            warm_up += warm_up_of(series) as u64;
            let of_series: Vec<&Step> = measured_of(series).collect();
            let limit = median(&of_series.iter().map(|step| step.ns()).collect::<Vec<_>>()) as f64 * SLOWER;
            slow += of_series.iter().filter(|step| step.ns() as f64 > limit).count() as u64;
            measured.extend(of_series.into_iter().map(|step| (*series, step)));
        }
        let times: Vec<u64> = measured.iter().map(|(_, step)| step.ns()).collect();
        let idle: Vec<u64> = measured.iter().map(|(_, step)| step.idle_ns()).collect();
        let made_of = PARTS.map(|(name, part)| {
            let times: Vec<u64> = measured.iter().map(|(_, step)| part(step)).collect();
            (name, median(&times))
        });
        let quarter = (times.len() / 4).max(1).min(times.len());
        let (early, late) = (median(&times[..quarter]), median(&times[times.len() - quarter..]));
        let slowest = measured.iter().max_by_key(|(_, step)| (step.ns(), std::cmp::Reverse(step.start)));
        let start = profile.recording().start.as_ref().map_or(0, |start| start.time);
        let one = |series: &Series, step: &Step| Slowest {
            step: step.number,
            ns: step.ns(),
            start_ns: step.start.saturating_sub(start),
            pid: profile.processes.get(&series.process).map_or(0, |info| info.pid),
            tid: series.tid,
        };
        let explained = |outlier: &Outlier| {
            let series = steps.series.get(outlier.series)?;
            let step = one(series, series.steps.iter().find(|step| step.number == outlier.number)?);
            let median = median(&measured_of(series).map(Step::ns).collect::<Vec<_>>());
            let Outlier { compared, gpu, differences, .. } = outlier.clone();
            Some(StepOutlier { times: step.ns as f64 / median.max(1) as f64, step, compared, gpu, differences })
        };
        let count = all.iter().map(|series| series.steps.len() as u64).sum();
        let is_other = |level: &&Level| level.place != *place || level.iterations != count;
        let others = steps.levels.iter().filter(is_other).take(MOST_LEVELS);
        Some(Self {
            place: place.clone(),
            count,
            threads: all.len() as u64,
            warm_up,
            median_ns: median(&times),
            p90_ns: percentile(&times, 90),
            p99_ns: percentile(&times, 99),
            slowest: slowest.map(|(series, step)| one(series, step)),
            slow,
            outliers: steps.outliers.iter().filter_map(explained).collect(),
            idle_ns: median(&idle),
            made_of: made_of.into_iter().filter(|(_, ns)| *ns > 0).collect(),
            memory_bytes: measured.iter().map(|(_, step)| step.memory_bytes).max().filter(|bytes| *bytes > 0),
            trend: if all.len() > 1 || early == 0 { 0.0 } else { late as f64 / early as f64 - 1.0 },
            levels: others.map(|l| StepLevel { place: l.place.clone(), count: l.iterations }).collect(),
        })
    }

    /// Returns a sentence.
    pub fn sentence(&self) -> String {
        let mut text = format!("{} of {}", counted(self.count, "step", "steps"), short(&self.place, PLACE));
        if self.threads > 1 {
            text += &format!(" in {} threads", self.threads);
        }
        let Some(slowest) = &self.slowest else { return text };
        text += &format!(": median {}, p99 {}", time(self.median_ns), time(self.p99_ns));
        text += &format!(", slowest step {} {}", slowest.step, time(slowest.ns));
        if self.threads > 1 {
            text += &format!(" (thread {})", slowest.tid);
        }
        if self.warm_up > 0 {
            text += &format!("; {} of warm-up left out", self.warm_up);
        }
        text
    }
}

impl StepOutlier {
    /// Says why it took longer; `None` if that is not certain.
    pub fn sentence(&self) -> Option<String> {
        let parts: Vec<String> = self.differences.iter().map(outliers::said).collect();
        let begin = format!("step {}: {:.1} times the median", self.step.step, self.times);
        (!parts.is_empty()).then(|| format!("{begin}; {}", parts.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(times: &[u64]) -> Series {
        let mut start = 1_000;
        let mut steps = Vec::new();
        for (time, number) in times.iter().zip(1..) {
            let is_followed = number < times.len() as u64;
            steps.push(Step { number, start, end: start + time, is_followed, busy_ns: time / 2, ..Step::default() });
            start += time;
        }
        Series { place: "train (train.py:31)".into(), tid: 7, steps, ..Series::default() }
    }

    fn summary(all: &[&[u64]]) -> Option<StepSummary> {
        let steps = Steps { series: all.iter().map(|times| series(times)).collect(), ..Steps::default() };
        StepSummary::of(&steps, &Profile::default())
    }

    /// Check the distribution: without the slow first steps, and without the last one, which is not followed.
    #[test]
    fn warm_up_is_left_out() {
        let mut times = vec![900_000, 60_000, 10_000];
        times.extend(10_001..=10_096);
        times.extend([50_000, 1]);
        let found = summary(&[&times]).expect("steps");
        assert_eq!((found.count, found.warm_up), (101, 2));
        assert_eq!((found.median_ns, found.p90_ns, found.p99_ns), (10_048, 10_088, 50_000));
        assert_eq!(found.idle_ns, 5_024);
        let slowest = found.slowest.clone().expect("a slowest");
        assert_eq!((slowest.step, slowest.ns, slowest.tid), (100, 50_000, 7));
        assert_eq!(
            found.sentence(),
            "101 steps of train (train.py:31): median 10.0 µs, p99 50.0 µs, slowest step 100 50.0 µs; 2 of warm-up left out"
        );
    }

    /// Check that a quick step among the slow first ones is part of the warm-up, and that a slow one later is not.
    #[test]
    fn warm_up_may_be_uneven() {
        let mut times = vec![12_000, 600_000, 60_000, 11_000, 50_000, 70_000, 10_000];
        times.extend(10_001..=10_096);
        assert_eq!(summary(&[&times]).expect("steps").warm_up, 6);
        let mut times: Vec<u64> = (10_001..=10_096).collect();
        times[7] = 900_000;
        assert_eq!(summary(&[&times]).expect("steps").warm_up, 0);
    }

    /// Check that there is nothing to say without steps, and little about a single one.
    #[test]
    fn few_steps() {
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[&[5]]).expect("one").sentence(), "1 step of train (train.py:31)");
        let two = summary(&[&[5, 6, 7], &[5, 9, 9]]).expect("two threads");
        assert_eq!((two.count, two.threads, two.trend), (6, 2, 0.0));
    }

    /// Check that steps that become slower have a trend.
    #[test]
    fn steps_become_slower() {
        let times: Vec<u64> = (0..81).map(|step| 1_000 + step * 10).collect();
        let trend = summary(&[&times]).expect("steps").trend;
        assert!((0.5..0.6).contains(&trend), "{trend}");
    }
}
