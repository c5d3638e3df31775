//! Compares steps: recordings of different length have the same steps.
//!
//! The median step is compared with the median step. Steps that follow each other are not independent: a program slows down and
//! recovers. So with one recording on a side, its steps are divided into parts that follow each other, and the medians of these
//! parts differ significantly, or do not, as several recordings would. That says nothing about how much runs differ from runs.

use std::{collections::BTreeSet, io};

use model::{
    profile::Profile,
    steps::{Step, StepPart},
};
use serde::Serialize;
use text::short::short;

use super::{
    change::Change,
    explain::{Explanation, Part, SMALL},
    run::{Amount, Amounts, BUSY, Run, RunSteps, Unit},
};
use crate::{
    Events, names,
    steps::{busiest, measured_of, median, parts},
    user_code::without_line,
};

/// The parts into which the steps of a recording are divided, at most.
const PARTS: usize = 10;
/// The least steps of a part.
const LEAST: usize = 3;
/// The most bars of a strip of steps.
const BARS: usize = 120;
/// The most parts of a step that are listed; the rest is added up.
const LISTED: usize = 8;
/// The length of a place in a sentence, where it can be shortened to that.
const PLACE: usize = 60;

/// How steps have changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepsChange {
    /// What they are steps of.
    pub place: String,
    /// The median step; the counts are steps.
    #[serde(flatten)]
    pub median: Change,
    /// What a step is made of on average: the GPU is busy or idle at every moment. Idle time is by its cause, the longest first; absent
    /// if the sides used different GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_of: Vec<MadeOf>,
    /// The lengths of the steps before and after, in their order: of many, medians of those that follow each other. Of several
    /// recordings, those of the first.
    pub times: [Vec<u64>; 2],
    /// Which change explains the difference, for each step; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

/// A part of a step, on average, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MadeOf {
    /// What: the GPU is busy, or idle for a reason.
    pub name: String,
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

impl Run {
    /// Adds the steps of a recording, if they were found. `events` opens it from its beginning.
    pub fn add_steps<'a>(
        &mut self,
        profile: &Profile,
        events: &mut dyn FnMut() -> io::Result<Events<'a>>,
    ) -> io::Result<()> {
        let found = profile.steps.as_ref().filter(|_| profile.part.is_none());
        let Some(series) = found.and_then(|steps| steps.series.first()) else { return Ok(()) };
        let measured: Vec<Step> = measured_of(series).copied().collect();
        let (Some(first), Some(last)) = (measured.first(), measured.last()) else { return Ok(()) };
        let whole = Step { end: last.end, ..*first };
        let mut steps = RunSteps {
            place: without_line(&series.place),
            times: measured.iter().map(Step::ns).collect(),
            ..RunSteps::default()
        };
        let mut all = parts(profile, &[whole], events)?;
        if let Some(device) = busiest(profile, series, &all)
            && let Some(of) = all.pop().and_then(|mut all| all.remove(&device))
        {
            steps.gpu = profile.device_label(device).to_owned();
            steps.parts.insert(BUSY.to_owned(), Amount { amount: of.busy_ns, count: 0 });
            for (part, (ns, samples)) in of.parts {
                let (sums, name) = match part {
                    StepPart::Idle { reason, place, cause, .. } => (&mut steps.parts, idle(cause, place, reason)),
                    StepPart::Kernel { name, .. } => (&mut steps.kernels, name),
                    StepPart::Copy { .. } => continue,
                };
                let sum = sums.entry(name).or_default();
                sum.amount = sum.amount.saturating_add(ns);
                sum.count += samples;
            }
        }
        self.steps = Some(steps);
        Ok(())
    }
}

/// Returns the name of idle time, as in the table of idle time.
fn idle(cause: &str, place: Option<String>, reason: Option<String>) -> String {
    use crate::idle::ThreadState;
    let is = |state: ThreadState| cause == state.text();
    let place = place.map(|place| without_line(&place)).unwrap_or_default();
    match reason {
        _ if is(ThreadState::Launching) => names::LAUNCHING.to_owned(),
        _ if is(ThreadState::Meanwhile) => format!("{place} {}", names::MEANWHILE),
        _ if is(ThreadState::Unknown) => "[unknown]".to_owned(),
        Some(reason) => format!("{place} {reason}"),
        None => place,
    }
}

impl StepsChange {
    /// Compares two sides, if all their recordings have steps of the same place.
    pub(super) fn of(before: &[Run], after: &[Run]) -> Option<Self> {
        let all: Option<Vec<&RunSteps>> = before.iter().chain(after).map(|run| run.steps.as_ref()).collect();
        let all = all?;
        let place = &all.first()?.place;
        if all.iter().any(|steps| steps.place != *place) {
            return None;
        }
        let (a, b) = all.split_at(before.len());
        let several = a.len() > 1 && b.len() > 1;
        let medians = |side: &[&RunSteps]| side.iter().map(|steps| median(&steps.times)).collect::<Vec<u64>>();
        let count =
            |side: &[&RunSteps]| side.iter().map(|steps| steps.times.len() as u64).sum::<u64>() / side.len() as u64;
        let amounts =
            |of: Vec<u64>, count: u64| of.into_iter().map(|amount| Amount { amount, count }).collect::<Vec<_>>();
        let mut row =
            Change::of("median step", Unit::Ns, &amounts(medians(a), count(a)), &amounts(medians(b), count(b)));
        if !several {
            let of_parts = |side: &[&RunSteps]| {
                amounts(
                    side.iter().flat_map(|steps| medians_of_parts(&steps.times, independent(&steps.times))).collect(),
                    0,
                )
            };
            row.significant = Change::of("", Unit::Ns, &of_parts(a), &of_parts(b)).significant;
        }
        let explanation = explanation(&row, a, b);
        let times = [a, b].map(|side| medians_of_parts(&side[0].times, side[0].times.len().min(BARS)));
        Some(Self { place: place.clone(), median: row, made_of: made_of(a, b), times, explanation })
    }

    /// Says how the median step has changed, and what explains that; `None` if it has not.
    pub fn sentence(&self) -> Option<String> {
        let explanation = self.explanation.as_ref()?;
        let row = &self.median;
        let begin = format!(
            "the median step of {} has become {} {} ({})",
            short(&self.place, PLACE),
            text::units::time(row.difference().unsigned_abs()),
            if row.difference() > 0 { "longer" } else { "shorter" },
            row.percent().unwrap_or_default(),
        );
        Some(match explanation.reasons() {
            Some(reasons) => format!("{begin}; in each, {reasons}"),
            None => begin,
        })
    }
}

/// Explains the difference by what each side did for each step.
fn explanation(row: &Change, before: &[&RunSteps], after: &[&RunSteps]) -> Option<Explanation> {
    let is_small = row.change.is_none_or(|change| change.abs() < SMALL);
    if row.significant == Some(false) || (is_small && row.significant != Some(true)) {
        return None;
    }
    let Some(gpu) = same_gpu(before, after) else {
        return Some(Explanation { wall_ns: row.difference(), gpu: None, parts: Vec::new() });
    };
    let parts = changes(before, after, |steps| &steps.parts);
    let mut kernels = changes(before, after, |steps| &steps.kernels);
    kernels.sort_by_key(|part| std::cmp::Reverse(part.ns.unsigned_abs()));
    let kernels = kernels.into_iter().map(|part| (part.name, part.ns));
    Some(Explanation::of_parts(row.difference(), Some(gpu.to_owned()), parts, kernels))
}

/// Returns the GPU that works longest in the steps of all recordings.
fn same_gpu<'a>(before: &[&'a RunSteps], after: &[&RunSteps]) -> Option<&'a str> {
    let gpu = &before.first()?.gpu;
    let is_same = !gpu.is_empty() && before.iter().chain(after).all(|steps| steps.gpu == *gpu);
    is_same.then_some(gpu)
}

/// Returns the parts of an average step of both sides.
fn made_of(before: &[&RunSteps], after: &[&RunSteps]) -> Vec<MadeOf> {
    if same_gpu(before, after).is_none() {
        return Vec::new();
    }
    let (a, b) = (steps(before), steps(after));
    let mean = |side: &[&RunSteps], name: &String, steps: f64| {
        (sum(side, |steps| &steps.parts, name).0 / steps).round() as u64
    };
    let part =
        |name: &String| MadeOf { name: name.clone(), before: mean(before, name, a), after: mean(after, name, b) };
    let names: BTreeSet<&String> = before.iter().chain(after).flat_map(|steps| steps.parts.keys()).collect();
    let mut all: Vec<MadeOf> = names.into_iter().map(part).collect();
    all.sort_by_key(|part| (part.name != BUSY, std::cmp::Reverse(part.before.max(part.after))));
    let rest = all.split_off(all.len().min(LISTED));
    let other = |of: fn(&MadeOf) -> u64| rest.iter().map(of).sum();
    if !rest.is_empty() {
        all.push(MadeOf {
            name: "[other]".to_owned(),
            before: other(|part| part.before),
            after: other(|part| part.after),
        });
    }
    all
}

/// Returns the number of steps of a side.
fn steps(side: &[&RunSteps]) -> f64 {
    side.iter().map(|steps| steps.times.len()).sum::<usize>().max(1) as f64
}

/// Returns the time and the samples of something in all steps of a side.
fn sum(side: &[&RunSteps], of: fn(&RunSteps) -> &Amounts, name: &String) -> (f64, f64) {
    let amounts = side.iter().filter_map(|steps| of(steps).get(name));
    amounts.fold((0.0, 0.0), |(ns, samples), amount| (ns + amount.amount as f64, samples + amount.count as f64))
}

/// Returns the changes for each step, without those of samples that may be chance.
fn changes(before: &[&RunSteps], after: &[&RunSteps], of: fn(&RunSteps) -> &Amounts) -> Vec<Part> {
    let (a, b) = (steps(before), steps(after));
    let names: BTreeSet<&String> = before.iter().chain(after).flat_map(|steps| of(steps).keys()).collect();
    let change = |name: &String| {
        let ((ns, samples), (ns_after, samples_after)) = (sum(before, of, name), sum(after, of, name));
        // The number of samples differs by its square root.
        let chance = 2.0 * (samples / a.powi(2) + samples_after / b.powi(2)).sqrt();
        let is_beyond = chance == 0.0 || (samples_after / b - samples / a).abs() > chance;
        is_beyond.then(|| Part { name: name.clone(), ns: (ns_after / b - ns / a).round() as i64, kernel: None })
    };
    names.into_iter().filter_map(change).collect()
}

/// Returns the number of parts whose medians are compared.
fn independent(times: &[u64]) -> usize {
    (times.len() / LEAST).clamp(1, PARTS)
}

/// Returns the medians of parts of the steps that follow each other.
fn medians_of_parts(times: &[u64], parts: usize) -> Vec<u64> {
    (0..parts).map(|part| median(&times[part * times.len() / parts..(part + 1) * times.len() / parts])).collect()
}
