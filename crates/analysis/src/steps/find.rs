//! The steps of a recording, from its events.

use std::io;

use model::{
    event::{Event, NamedFrame, ProcessId, SessionId},
    profile::Profile,
    steps::{Level as ModelLevel, Series, Step, Steps},
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    code::{ByThread, Program},
    cut::Cutter,
    found::Found,
    levels::Level,
    measure::measure,
    sequence::Sequence,
};
use crate::Events;

/// What steps are.
pub enum Choice<'a> {
    /// The iterations of the loop that has most launches.
    Loop,
    /// The calls of functions with such a frame; of one that is called once, the iterations of its loop.
    Function(&'a dyn Fn(&NamedFrame) -> bool),
    /// NVTX ranges with such a name.
    Range(&'a dyn Fn(&str) -> bool),
}

/// Returns the steps of a recording. `sequence` has its launches, `events` opens it from its beginning.
pub fn find<'a>(
    profile: &Profile,
    sequence: Sequence,
    choice: &Choice<'_>,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<Steps> {
    let mut steps = match choice {
        Choice::Range(is) => of_ranges(profile, is, events()?),
        _ if profile.sampled.without_stack > 0 || profile.sampled.estimated.launches > 0 => Steps::default(),
        Choice::Loop | Choice::Function(_) => of_launches(profile, sequence, choice, events)?,
    };
    steps.series.sort_by_key(|series| (std::cmp::Reverse(series.steps.len()), series.process, series.tid));
    if !steps.series.is_empty() {
        measure(&mut steps.series, profile, events)?;
    }
    Ok(steps)
}

fn of_launches<'a>(
    profile: &Profile,
    sequence: Sequence,
    choice: &Choice<'_>,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
) -> io::Result<Steps> {
    let program = Program::new(profile);
    let found = Found::new(sequence, &program);
    let functions = match choice {
        Choice::Function(is) => {
            let is = |_, stack, index: usize| program.with_names(stack, index, |names| names.iter().any(is));
            found.of_functions(&is)
        }
        Choice::Loop | Choice::Range(_) => Vec::new(),
    };
    let chosen: Vec<&Level> = match choice {
        Choice::Function(_) => functions.iter().collect(),
        Choice::Loop | Choice::Range(_) => found.steps.iter().map(|index| &found.levels[*index]).collect(),
    };
    let mut levels: Vec<ModelLevel> = Vec::new();
    // Of each place, the first loop of one process is taken to be the first one of others.
    let mut known: FxHashMap<(String, usize), usize> = FxHashMap::default();
    let mut of_process: FxHashMap<(ProcessId, String), usize> = FxHashMap::default();
    for level in &found.levels {
        let place = program.place(level);
        let next = levels.len();
        let same = of_process.entry((level.process, place.clone())).or_default();
        let number = *known.entry((place.clone(), *same)).or_insert(next);
        *same += 1;
        if number == next {
            levels.push(ModelLevel { place, iterations: 0 });
        }
        levels[number].iterations += level.iterations;
    }
    if chosen.is_empty() {
        return Ok(Steps { levels, ..Steps::default() });
    }
    let mut cutter = Cutter::new(&found, &chosen);
    for event in events()? {
        if let Event::Launch(launch) = event {
            cutter.push(&launch);
        }
    }
    let places: FxHashMap<ProcessId, String> =
        chosen.iter().map(|level| (level.process, program.place(level))).collect();
    let mut series: Vec<Series> = Vec::new();
    for cut in cutter.finish() {
        if series.last().is_none_or(|last| (last.process, last.tid) != (cut.process, cut.tid)) {
            let place = places.get(&cut.process).cloned().unwrap_or_default();
            series.push(Series { process: cut.process, tid: cut.tid, place, steps: Vec::new() });
        }
        let end = cut.next.unwrap_or(cut.last);
        let step =
            Step { number: cut.number, start: cut.start, end, is_followed: cut.next.is_some(), ..Step::default() };
        if let Some(last) = series.last_mut() {
            last.steps.push(step);
        }
    }
    if matches!(choice, Choice::Loop) {
        // A thread in which the loop never comes around works for one in which it does, even if it does so again and again.
        series.retain(|series| series.steps.iter().any(|step| step.is_followed));
    }
    Ok(Steps { series, levels, ..Steps::default() })
}

/// Returns NVTX ranges as steps.
fn of_ranges(profile: &Profile, is: &dyn Fn(&str) -> bool, events: Events<'_>) -> Steps {
    let mut paths: FxHashSet<(SessionId, u32)> = FxHashSet::default();
    let mut by_thread: ByThread<(u64, u64)> = ByThread::default();
    let mut names: FxHashMap<ProcessId, String> = FxHashMap::default();
    for event in events {
        match event {
            Event::RangeName(range) if is(&range.name) => {
                if let Some(info) = profile.sessions.get(&range.session) {
                    names.entry(info.process).or_insert_with(|| crate::names::range(&range.name));
                }
                paths.insert((range.session, range.id));
            }
            Event::Range(range) if !range.mark && paths.contains(&(range.session, range.path)) => {
                if let Some(info) = profile.sessions.get(&range.session) {
                    by_thread.entry((info.process, range.tid)).or_default().push((range.start, range.end));
                }
            }
            _ => {}
        }
    }
    let series = by_thread.into_iter().map(|((process, tid), mut ranges)| {
        ranges.sort_unstable_by_key(|(start, end)| (*start, std::cmp::Reverse(*end)));
        // Of ranges in each other, the outer ones are steps.
        let mut steps: Vec<Step> = Vec::new();
        for (start, end) in ranges {
            if steps.last().is_none_or(|last| last.end <= start) {
                let number = steps.len() as u64 + 1;
                steps.push(Step { number, start, end, is_followed: true, ..Step::default() });
            }
        }
        let place = names.get(&process).cloned().unwrap_or_default();
        Series { process, tid, place, steps }
    });
    Steps { series: series.collect(), ..Steps::default() }
}
