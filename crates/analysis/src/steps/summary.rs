//! How long steps take: their distribution, without the first ones if these are slower.

use model::{
    profile::Profile,
    steps::{Level, Series, Step, Steps},
};
use serde::Serialize;
use text::{
    short::short,
    units::{counted, time},
};

/// The first steps belong to the warm-up while they take longer than the median by this factor.
const SLOWER: f64 = 1.5;
/// At most this part of the steps is warm-up.
const MOST_WARM_UP: usize = 4;
/// Other loops that are named.
const MOST_LEVELS: usize = 10;
/// The length of a place in a sentence, where it can be shortened to that.
const PLACE: usize = 60;

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
    /// The median time in which no GPU worked for the process.
    pub idle_ns: u64,
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
        let mut warm_up = 0;
        let mut measured: Vec<(&Series, &Step)> = Vec::new();
        for series in &all {
            let first = warm_up_of(series);
            warm_up += first as u64;
            measured.extend(series.steps[first..].iter().filter(|step| step.is_followed).map(|step| (*series, step)));
        }
        let times: Vec<u64> = measured.iter().map(|(_, step)| step.ns()).collect();
        let idle: Vec<u64> = measured.iter().map(|(_, step)| step.idle_ns()).collect();
        let quarter = (times.len() / 4).max(1).min(times.len());
        let (early, late) = (median(&times[..quarter]), median(&times[times.len() - quarter..]));
        let slowest = measured.iter().max_by_key(|(_, step)| (step.ns(), std::cmp::Reverse(step.start)));
        let start = profile.recording().start.as_ref().map_or(0, |start| start.time);
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
            slowest: slowest.map(|(series, step)| Slowest {
                step: step.number,
                ns: step.ns(),
                start_ns: step.start.saturating_sub(start),
                pid: profile.processes.get(&series.process).map_or(0, |info| info.pid),
                tid: series.tid,
            }),
            idle_ns: median(&idle),
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

/// Returns the number of first steps that are slower than the others.
pub fn warm_up_of(series: &Series) -> usize {
    let followed: Vec<u64> = series.steps.iter().filter(|step| step.is_followed).map(Step::ns).collect();
    let limit = median(&followed) as f64 * SLOWER;
    let first = series.steps.iter().take_while(|step| step.is_followed && step.ns() as f64 > limit).count();
    first.min(series.steps.len() / MOST_WARM_UP)
}

fn median(values: &[u64]) -> u64 {
    percentile(values, 50)
}

/// Returns the smallest value that is not exceeded by this part of the values; 0 if there are none.
fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
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
        let steps = Steps { series: all.iter().map(|times| series(times)).collect(), levels: Vec::new() };
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
