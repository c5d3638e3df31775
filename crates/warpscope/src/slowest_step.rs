//! Why the slowest step took longer than others: it is compared with one of median length, as two recordings are.

use analysis::{
    diff::{Diff, Run},
    steps::warm_up_of,
};
use model::{filter::Filters, profile::Profile, steps::Step};

use text::units::time;

use crate::{load::range_of, recordings::Recordings};

/// A slowest step that is longer than the median by less than this needs no explanation.
const SLOWER: f64 = 1.2;

/// Says why the slowest step took longer than one of median length, if it did.
pub fn explained(source: &Recordings, profile: &Profile) -> anyhow::Result<Option<String>> {
    let series = profile.steps.as_ref().and_then(|steps| steps.series.first());
    let Some(series) = series.filter(|_| profile.part.is_none()) else { return Ok(None) };
    let mut steps: Vec<&Step> = series.steps[warm_up_of(series)..].iter().filter(|step| step.is_followed).collect();
    steps.sort_by_key(|step| step.ns());
    let (Some(median), Some(slowest)) = (steps.get(steps.len() / 2), steps.last()) else { return Ok(None) };
    if (slowest.ns() as f64) < median.ns() as f64 * SLOWER {
        return Ok(None);
    }
    let run = |step: &Step| -> anyhow::Result<Run> {
        let number = vec![step.number.to_string()];
        let range = Filters { step: number, step_time: Some((step.start, step.end)), ..Filters::default() };
        Ok(Run::of(&range_of(source, profile.clone(), &range)?))
    };
    let diff = Diff::of(&[run(median)?], &[run(slowest)?]);
    let reasons = diff.reasons().unwrap_or_else(|| "no single change explains it".to_owned());
    let (more, times) = (slowest.ns() - median.ns(), slowest.ns() as f64 / median.ns().max(1) as f64);
    Ok(Some(format!(
        "step {} took {times:.1} times the median, {} more than step {}: {reasons}",
        slowest.number,
        time(more),
        median.number
    )))
}
