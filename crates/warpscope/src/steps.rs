//! `--step`: which step is selected, and what steps are.

use std::io;

use analysis::{
    Events,
    steps::{Choice, Sequence, is_function, warm_up_of},
};
use anyhow::{Context, bail};
use model::{
    event::Event,
    filter::{self, Filters, patterns::Patterns},
    profile::Profile,
    steps::{Series, Step, Steps},
};

use crate::args;

/// What `--step` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The step that is selected.
    which: Option<Which>,
    /// What steps are, if not the iterations of the loop.
    definition: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Number(u64),
    Slowest,
}

impl<'a> Wanted<'a> {
    /// Parses the options.
    pub fn parse(options: &'a args::Filters) -> anyhow::Result<Self> {
        let mut wanted = Self::default();
        for step in &options.step {
            let which = match step.as_str() {
                "slowest" => Some(Which::Slowest),
                text => text.parse().ok().map(Which::Number),
            };
            let is_known = match which {
                Some(which) => wanted.which.replace(which).is_some(),
                None => wanted.definition.replace(step).is_some(),
            };
            if is_known {
                bail!("--step {step}: give one step, and one function or NVTX range at most");
            }
        }
        Ok(wanted)
    }

    /// Whether one step is selected.
    pub fn selects(&self) -> bool {
        self.which.is_some()
    }

    /// Finds all steps.
    pub fn find<'e>(
        &self,
        profile: &Profile,
        sequence: Sequence,
        events: &mut dyn FnMut() -> io::Result<Events<'e>>,
    ) -> anyhow::Result<Steps> {
        let Some(definition) = self.definition else {
            return Ok(analysis::steps::find(profile, sequence, &Choice::Loop, events)?);
        };
        let steps = match definition.strip_prefix("nvtx:") {
            Some(name) => {
                if profile.ranges.is_empty() {
                    bail!("the recording has no NVTX ranges: record with --nvtx");
                }
                let patterns = Patterns::parse(&[name.to_owned()])?;
                analysis::steps::find(profile, sequence, &Choice::Range(&|name| patterns.matches(name)), events)?
            }
            None => {
                let choice = Choice::Function(&|frame| is_function(frame, definition));
                analysis::steps::find(profile, sequence, &choice, events)?
            }
        };
        if steps.series.is_empty() {
            let what = if definition.starts_with("nvtx:") { "NVTX range" } else { "launch in a function" };
            bail!("--step {definition}: the recording has no {what} with this name");
        }
        Ok(steps)
    }

    /// Returns the time of the step that is selected, if one is.
    pub fn time(
        &self,
        steps: &Steps,
        options: &args::Filters,
        profile: &Profile,
    ) -> anyhow::Result<Option<(u64, u64)>> {
        let Some(which) = self.which else { return Ok(None) };
        let is_selected = filter::processes(&options.wanted(None), profile)?;
        let is_selected = |series: &&Series| is_selected.as_ref().is_none_or(|all| all.has_process(series.process));
        let mut series =
            steps.series.iter().filter(is_selected).filter(|s| options.tid.is_empty() || options.tid.contains(&s.tid));
        let series = series.next().context(analysis::Table::Steps.filled_by())?;
        let found: Option<&Step> = match which {
            Which::Number(number) => series.steps.iter().find(|step| step.number == number),
            Which::Slowest => {
                let first = warm_up_of(series);
                series.steps[first..].iter().filter(|step| step.is_followed).max_by_key(|step| step.ns())
            }
        };
        let all = series.steps.len();
        let step = found.with_context(|| format!("{} has steps 1 to {all}", series.place))?;
        Ok(Some((step.start, step.end.max(step.start + 1))))
    }
}

/// The most events of a recording whose steps are looked for at its end, which takes three passes over them.
const MAX_EVENTS: u64 = 1_000_000;
/// The most distinct stacks of one: finding loops takes longer for each. Few programs have more than a thousand.
const MAX_STACKS: usize = 8192;
/// The most events of a recording whose slow steps are explained at its end: that takes longer than to find them.
const MAX_EXPLAINED: u64 = 100_000;

/// Adds what further passes over the events find: the steps, and what late ranks did instead. Nothing of a recording that is too
/// long for that.
pub fn complete<'e>(profile: &mut Profile, events: &mut dyn FnMut() -> io::Result<Events<'e>>) {
    profile.steps = of_recording(profile, events);
    if !profile.communication.operations.is_empty()
        && events_of(profile) <= MAX_EVENTS
        && let Ok(reasons) = analysis::collectives::reasons(profile, events)
    {
        profile.communication.reasons = reasons;
    }
}

fn events_of(profile: &Profile) -> u64 {
    let ledger = &profile.ledger;
    ledger.launches + ledger.kernels + ledger.copies + ledger.memsets + ledger.samples
}

/// Returns the steps of a recording that has just been made, unless that takes long: `report` always has them.
fn of_recording<'e>(profile: &Profile, events: &mut dyn FnMut() -> io::Result<Events<'e>>) -> Option<Steps> {
    let count = events_of(profile);
    if profile.is_trace() || count > MAX_EVENTS || profile.stacks.len() > MAX_STACKS {
        return None;
    }
    let mut sequence = Sequence::default();
    for event in events().ok()? {
        if let Event::Launch(launch) = event {
            sequence.push(&launch);
        }
    }
    let mut steps = analysis::steps::find(profile, sequence, &Choice::Loop, events).ok()?;
    if count <= MAX_EXPLAINED {
        analysis::steps::explain(profile, &mut steps, events).ok()?;
    }
    Some(steps)
}

/// Keeps the steps of the processes that are selected, and in the time that is selected.
pub fn select(steps: &mut Steps, options: &Filters, filter: &filter::Filter) {
    let times = filter.times();
    for series in &mut steps.series {
        let is_selected =
            filter.has_process(series.process) && (options.tid.is_empty() || options.tid.contains(&series.tid));
        series.steps.retain(|step| is_selected && step.start < times.to && step.end > times.from);
    }
    steps.series.retain(|series| !series.steps.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what `--step` may say.
    #[test]
    fn steps_are_selected_and_defined() {
        let parse = |words: &[&str]| {
            let options = args::Filters {
                step: words.iter().map(|word| (*word).to_owned()).collect(),
                ..args::Filters::default()
            };
            Wanted::parse(&options).map(|wanted| (wanted.which, wanted.definition.map(str::to_owned))).ok()
        };
        let train = Some("train".to_owned());
        assert_eq!(parse(&[]), Some((None, None)));
        assert_eq!(parse(&["812"]), Some((Some(Which::Number(812)), None)));
        assert_eq!(parse(&["slowest", "train"]), Some((Some(Which::Slowest), train.clone())));
        assert_eq!(parse(&["train"]), Some((None, train)));
        assert_eq!(parse(&["1", "2"]), None);
        assert_eq!(parse(&["nvtx:a", "train"]), None);
    }
}
