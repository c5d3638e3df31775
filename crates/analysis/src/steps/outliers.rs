//! Why some steps took much longer than others: what happened in each is compared with what happens in steps of median length.
//!
//! A GPU is busy or idle at every moment of a step, and idle time is charged to what the thread that feeds the GPU did. So what a
//! step took longer is what the GPU was busy and idle longer. A difference counts if it is a good part of the whole one, and if
//! the part took longer than in each of the other steps: by intervals, or by more samples than chance gives.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    io,
};

use model::{
    profile::Profile,
    steps::{Difference, Outlier, Series, Step, StepPart, StepParts, Steps},
};
use text::{
    short::{short, shortened},
    units::time,
};

use super::{
    measured::{SLOWER, measured_of, median},
    parts::parts,
};
use crate::{Events, idle::ThreadState};

/// The most outliers that are explained: the slowest.
const MOST: usize = 5;
/// How many steps of about median length each of them is compared with, at least and at most.
const COMPARED: (usize, usize) = (3, 7);
/// Parts that are a smaller share of the difference do not explain it.
const MINOR: f64 = 0.1;
/// The most parts that are named.
const MOST_PARTS: usize = 3;
/// The length of a name in a sentence, where it can be shortened to that.
const NAME: usize = 60;

/// Explains the slowest steps of the threads that run the loop with most steps.
pub fn explain<'a>(
    profile: &Profile,
    steps: &mut Steps,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<()> {
    steps.outliers = find(profile, &steps.series, events)?;
    Ok(())
}

fn find<'a>(
    profile: &Profile,
    series: &[Series],
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<Vec<Outlier>> {
    let Some(place) = series.first().map(|series| &series.place) else { return Ok(Vec::new()) };
    let mut slow: Vec<(u64, usize, Step)> = Vec::new();
    let mut usual: BTreeMap<usize, Vec<Step>> = BTreeMap::new();
    for (index, of) in series.iter().enumerate().filter(|(_, series)| series.place == *place) {
        let (found, median) = near_median(of);
        if found.len() < COMPARED.0 {
            continue;
        }
        let is_slow = |step: &&Step| step.ns() as f64 > median as f64 * SLOWER;
        slow.extend(measured_of(of).filter(is_slow).map(|step| (step.ns() - median, index, *step)));
        usual.insert(index, found);
    }
    slow.sort_by_key(|(more, index, step)| (Reverse(*more), *index, step.number));
    slow.truncate(MOST);
    let compared: BTreeSet<usize> = slow.iter().map(|(_, index, _)| *index).collect();
    usual.retain(|index, _| compared.contains(index));
    if slow.is_empty() {
        return Ok(Vec::new());
    }
    let steps: Vec<Step> = slow.iter().map(|(.., step)| *step).chain(usual.values().flatten().copied()).collect();
    let mut all = parts(profile, &steps, events)?;
    let mut rest = all.split_off(slow.len()).into_iter();
    let of_usual: BTreeMap<usize, Vec<BTreeMap<u32, StepParts>>> =
        usual.iter().map(|(index, steps)| (*index, rest.by_ref().take(steps.len()).collect())).collect();
    let mut outliers = Vec::new();
    for ((more, index, step), of_slow) in slow.into_iter().zip(&all) {
        let of_usual = &of_usual[&index];
        let Some(device) = busiest(profile, &series[index], of_usual) else { continue };
        let of_device: Vec<&StepParts> = of_usual.iter().filter_map(|parts| parts.get(&device)).collect();
        let Some(of_slow) = of_slow.get(&device) else { continue };
        outliers.push(Outlier {
            series: index,
            number: step.number,
            compared: usual[&index].iter().map(|step| step.number).collect(),
            gpu: profile.device_label(device).to_owned(),
            differences: differences(&of_device, of_slow, more),
        });
    }
    Ok(outliers)
}

/// Returns the steps whose length is closest to the median, and the median.
fn near_median(series: &Series) -> (Vec<Step>, u64) {
    let mut steps: Vec<Step> = measured_of(series).copied().collect();
    let median = median(&steps.iter().map(Step::ns).collect::<Vec<_>>());
    steps.sort_by_key(|step| (step.ns().abs_diff(median), step.number));
    steps.retain(|step| step.ns() as f64 <= median as f64 * SLOWER);
    steps.truncate(COMPARED.1);
    steps.sort_by_key(|step| step.number);
    (steps, median)
}

/// Returns the GPU that works most in the usual steps, of those that the process of a series uses.
pub fn busiest(profile: &Profile, series: &Series, usual: &[BTreeMap<u32, StepParts>]) -> Option<u32> {
    let is_own = |session| profile.sessions.get(session).is_some_and(|info| info.process == series.process);
    let own = profile.devices.iter().filter(|(_, info)| info.streams.iter().any(|(session, ..)| is_own(session)));
    let busy =
        |device: u32| usual.iter().filter_map(|parts| parts.get(&device)).map(|parts| parts.busy_ns).sum::<u64>();
    own.map(|(device, _)| *device).max_by_key(|device| (busy(*device), Reverse(*device)))
}

/// Returns what took longer in a slow step than in all usual ones, if it explains a good part of what it took longer.
fn differences(usual: &[&StepParts], slow: &StepParts, more: u64) -> Vec<Difference> {
    let least = (more as f64 * MINOR).max(1.0) as u64;
    let of = |part: &StepPart| {
        let mut all: Vec<(u64, u64)> =
            usual.iter().map(|parts| parts.parts.get(part).copied().unwrap_or_default()).collect();
        all.sort_unstable();
        (all[all.len() / 2], all[all.len() - 1].0, all.iter().map(|(_, samples)| *samples).max().unwrap_or(0))
    };
    let mut busy: Vec<u64> = usual.iter().map(|parts| parts.busy_ns).collect();
    busy.sort_unstable();
    let is_busy = slow.busy_ns.saturating_sub(busy[busy.len() / 2]) >= least;
    let mut differences = Vec::new();
    for (part, (ns, samples)) in &slow.parts {
        let ((median, _), most, most_samples) = of(part);
        let is_chance = *samples > 0 && {
            let (a, b) = (*samples as f64, most_samples as f64);
            a - b <= 2.0 * (a + b).sqrt()
        };
        let more_ns = ns.saturating_sub(median);
        let is_work = !matches!(part, StepPart::Idle { .. });
        if more_ns >= least && *ns > most && !is_chance && (is_busy || !is_work) {
            differences.push(Difference { part: part.clone(), more_ns, samples: *samples });
        }
    }
    differences.sort_by_key(|difference| Reverse(difference.more_ns));
    differences.truncate(MOST_PARTS);
    differences
}

/// Says what took longer: `+280 ms idle in load_batch (data.py:88)`.
pub fn said(difference: &Difference) -> String {
    let more = time(difference.more_ns);
    match &difference.part {
        StepPart::Idle { cause, reason, place, garbage_collection } => {
            let place = place.as_deref().map(|place| short(place, NAME)).unwrap_or_default();
            let is = |state: ThreadState| *cause == state.text();
            if is(ThreadState::Unknown) {
                return format!("+{more} idle, for an unknown reason");
            }
            let mut text = format!("+{more} idle");
            text += match () {
                () if *garbage_collection => " in a garbage collection in ",
                () if is(ThreadState::Launching) => " while launching in ",
                () if is(ThreadState::Meanwhile) => " while another thread was in ",
                () => " in ",
            };
            text += &place;
            reason.iter().for_each(|reason| text += &format!(" {reason}"));
            text
        }
        StepPart::Kernel { name, place } => format!("+{more} {} of {}", shortened(name, NAME), short(place, NAME)),
        StepPart::Copy { name, place } => format!("+{more} {name} of {}", short(place, NAME)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn idle(cause: ThreadState, place: &str) -> StepPart {
        let reason = (cause == ThreadState::Waiting).then(|| "[reading a file]".to_owned());
        StepPart::Idle { cause: cause.text(), reason, place: Some(place.into()), garbage_collection: false }
    }

    fn kernel(name: &str) -> StepPart {
        StepPart::Kernel { name: name.into(), place: "forward (model.py:5)".into() }
    }

    fn step(busy: u64, parts: &[(StepPart, u64, u64)]) -> StepParts {
        let parts = parts.iter().map(|(part, ms, samples)| (part.clone(), (ms * MS, *samples)));
        StepParts { busy_ns: busy * MS, parts: parts.collect() }
    }

    fn sentences(usual: &[StepParts], slow: &StepParts, more: u64) -> Vec<String> {
        differences(&usual.iter().collect::<Vec<_>>(), slow, more * MS).iter().map(said).collect()
    }

    /// Check that what took longer is named, and what is as usual is not.
    #[test]
    fn what_took_longer_is_named() {
        let load = || idle(ThreadState::Waiting, "load_batch (data.py:88)");
        let usual: Vec<StepParts> =
            (0..5).map(|n| step(80, &[(load(), 10 + n, 0), (kernel("gemm"), 60, 0), (kernel("add"), 20, 0)])).collect();
        let slow = step(80, &[(load(), 292, 0), (kernel("gemm"), 60, 0), (kernel("add"), 20, 0)]);
        assert_eq!(sentences(&usual, &slow, 280), ["+280 ms idle in load_batch (data.py:88) [reading a file]"]);
        let slow = step(180, &[(load(), 12, 0), (kernel("gemm"), 150, 0), (kernel("add"), 30, 0)]);
        let expected = ["+90.0 ms gemm of forward (model.py:5)", "+10.0 ms add of forward (model.py:5)"];
        assert_eq!(sentences(&usual, &slow, 100), expected);
        // The streams overlap: the GPU was not busy longer.
        assert!(sentences(&usual, &step(80, &[(kernel("gemm"), 150, 0)]), 100).is_empty());
        // Within what usual steps differ by.
        assert!(sentences(&usual, &step(80, &[(load(), 14, 0)]), 3).is_empty());
        // A small part of the difference.
        assert!(sentences(&usual, &step(80, &[(load(), 21, 0)]), 100).is_empty());
    }

    /// Check that a few samples more are chance, and many are not.
    #[test]
    fn chance_explains_nothing() {
        let parse = || idle(ThreadState::Running, "parse (data.py:9)");
        let usual: Vec<StepParts> = (0..4).map(|n| step(10, &[(parse(), 20 + n, 2)])).collect();
        assert!(sentences(&usual, &step(10, &[(parse(), 60, 6)]), 40).is_empty());
        let expected = ["+278 ms idle in parse (data.py:9)"];
        assert_eq!(sentences(&usual, &step(10, &[(parse(), 300, 30)]), 280), expected);
    }

    /// Check the words for each kind of idle time.
    #[test]
    fn idle_time_has_words() {
        let collects = StepPart::Idle {
            cause: ThreadState::Running.text(),
            reason: None,
            place: Some("train (train.py:31)".into()),
            garbage_collection: true,
        };
        let unknown =
            StepPart::Idle { cause: ThreadState::Unknown.text(), reason: None, place: None, garbage_collection: false };
        let say = |part| said(&Difference { part, more_ns: 40 * MS, samples: 0 });
        assert_eq!(say(collects), "+40.0 ms idle in a garbage collection in train (train.py:31)");
        assert_eq!(say(unknown), "+40.0 ms idle, for an unknown reason");
        assert_eq!(
            say(idle(ThreadState::Launching, "step (a.py:1)")),
            "+40.0 ms idle while launching in step (a.py:1)"
        );
        let meanwhile = idle(ThreadState::Meanwhile, "read (a.py:1)");
        assert_eq!(say(meanwhile), "+40.0 ms idle while another thread was in read (a.py:1)");
        let copy = StepPart::Copy { name: "Memcpy HtoD".into(), place: "load (a.py:1)".into() };
        assert_eq!(say(copy), "+40.0 ms Memcpy HtoD of load (a.py:1)");
    }
}
