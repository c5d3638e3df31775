//! Reads several recordings as one, such as those of the ranks of a distributed program.
//!
//! Times are aligned by the wall clock at the start of each recording, and then corrected if clocks are known better
//! ([`crate::clocks`]). Recordings of one host have one clock. Numbers that identify something within one recording
//! (processes, sessions, stacks) get the index of the recording in bits that recordings do not use, so they stay apart;
//! events and functions with the same name become one. GPUs are the same if their UUIDs are.

mod ids;
#[cfg(test)]
mod tests;

use crate::clocks::{Clock, Clocks, Correction};
use crate::event::{End, Event, Mode, OwnCost, Start};
pub use ids::recording_of;
use ids::{Ids, Shared};

/// The most recordings.
pub const MOST: usize = 256;

/// Why recordings cannot be read as one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There are too many.
    #[error("at most {MOST} recordings can be combined")]
    TooMany,
    /// Some are traces, others are not.
    #[error("traces and recordings cannot be combined: use either those of `trace` or those of `record`")]
    Mixed,
}

/// The events of several recordings, in the order of time as far as each recording has it.
pub struct Merged<I> {
    parts: Vec<Part<I>>,
    shared: Shared,
    clocks: Clocks,
    /// The common beginning, until it is read.
    start: Option<Start>,
    own_cost: OwnCost,
    end: Option<End>,
    /// A recording has no end.
    cut_off: bool,
}

struct Part<I> {
    events: I,
    /// The next event, translated.
    next: Option<Event>,
    /// The latest time so far.
    at: u64,
    ids: Ids,
}

impl<I: Iterator<Item = Event>> Merged<I> {
    /// Combines recordings. A single one is read as it is.
    pub fn new(recordings: Vec<I>) -> Result<Self, MergeError> {
        Self::with_clocks(recordings, &Clocks::default())
    }

    /// Combines recordings whose clocks are known.
    pub fn with_clocks(mut recordings: Vec<I>, known: &Clocks) -> Result<Self, MergeError> {
        if recordings.len() > MOST {
            return Err(MergeError::TooMany);
        }
        let single = recordings.len() == 1;
        let firsts: Vec<Option<Event>> =
            recordings.iter_mut().map(|events| if single { None } else { events.next() }).collect();
        let starts: Vec<Option<&Start>> = firsts
            .iter()
            .map(|first| match first {
                Some(Event::Start(start)) => Some(start),
                _ => None,
            })
            .collect();
        let is_trace = |start: &&Start| matches!(start.mode, Mode::Trace | Mode::TraceSums);
        let all: Vec<&Start> = starts.iter().copied().flatten().collect();
        if all.iter().any(is_trace) && !all.iter().all(is_trace) {
            return Err(MergeError::Mixed);
        }
        // Relative to the earliest recording, no time becomes negative.
        let earliest = all.iter().copied().min_by_key(|start| start.wall_clock);
        let hosts = distinct(all.iter().map(|start| start.host.as_str()));
        let (clocks, shifts) = clocks(&starts, earliest);
        let ids: Vec<Ids> = (0..)
            .zip(&starts)
            .map(|(index, start)| {
                let host = start.and_then(|start| hosts.iter().position(|host| *host == start.host)).unwrap_or(0);
                let label = if hosts.len() > 1 { start.map_or("", |start| &start.host) } else { "" };
                let clock = known.of_recording.get(index as usize).and_then(|clock| known.all.get(*clock as usize));
                let correction = clock.map_or_else(Correction::default, |clock| clock.correction);
                Ids::new(index, shifts[index as usize], correction, host as u32, label)
            })
            .collect();
        let first = ids.iter().zip(&starts).filter_map(|(ids, start)| Some(ids.time(start.as_ref()?.time))).min();
        let start = earliest.map(|earliest| common(earliest, &all, &hosts, first.unwrap_or(earliest.time)));
        let parts = recordings.into_iter().zip(firsts).zip(ids);
        let parts = parts.map(|((events, first), ids)| {
            let next = first.filter(|first| !matches!(first, Event::Start(_)));
            Part { events, next, at: 0, ids }
        });
        let mut merged = Self {
            parts: parts.collect(),
            shared: Shared::default(),
            clocks,
            start,
            own_cost: OwnCost::default(),
            end: None,
            cut_off: false,
        };
        if !single {
            for index in 0..merged.parts.len() {
                match merged.parts[index].next.take() {
                    Some(first) => merged.receive(index, first),
                    None => merged.advance(index),
                }
            }
        }
        Ok(merged)
    }

    /// Returns the recordings, to see how each ended.
    pub fn recordings(&self) -> impl Iterator<Item = &I> {
        self.parts.iter().map(|part| &part.events)
    }

    /// Returns the clocks of the recordings, as far as their beginnings say.
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// Reads the next event of a recording. Its end is kept until all recordings have ended.
    fn advance(&mut self, index: usize) {
        let mut ended = false;
        while let Some(event) = self.parts[index].events.next() {
            match event {
                Event::Start(_) => {}
                Event::End(end) => {
                    ended = true;
                    let time = self.parts[index].ids.time(end.time);
                    let before = self.end.unwrap_or(End { time, status: end.status });
                    let status = before.status.filter(|status| *status != 0).or(end.status);
                    self.end = Some(End { time: before.time.max(time), status });
                }
                event => return self.receive(index, event),
            }
        }
        self.cut_off |= !ended;
    }

    fn receive(&mut self, index: usize, mut event: Event) {
        let part = &mut self.parts[index];
        let time = part.ids.translate(&mut event, &mut self.shared);
        part.at = part.at.max(time);
        part.next = Some(event);
    }

    fn next_merged(&mut self) -> Option<Event> {
        if let Some(start) = self.start.take() {
            return Some(Event::Start(start));
        }
        let waiting = self.parts.iter().enumerate().filter(|(_, part)| part.next.is_some());
        let Some((index, _)) = waiting.min_by_key(|(_, part)| part.at) else {
            return self.end.take().filter(|_| !self.cut_off).map(Event::End);
        };
        let event = self.parts[index].next.take();
        self.advance(index);
        event.map(|event| match event {
            // The last one counts.
            Event::OwnCost(cost) => {
                self.own_cost.collector_ns += cost.collector_ns;
                self.own_cost.program_ns += cost.program_ns;
                Event::OwnCost(self.own_cost)
            }
            other => other,
        })
    }
}

impl<I: Iterator<Item = Event>> Iterator for Merged<I> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        match self.parts.as_mut_slice() {
            [single] => single.events.next(),
            _ => self.next_merged(),
        }
    }
}

/// Recordings of a host whose wall clocks differ by less have the same clock: a wall clock may be set meanwhile. After a reboot
/// they differ by more.
const SAME_CLOCK_NS: u64 = 1_000_000_000;

/// Returns the clocks, and what to add to the times of each recording.
fn clocks(starts: &[Option<&Start>], earliest: Option<&Start>) -> (Clocks, Vec<i64>) {
    let offset = |start: &Start| i128::from(start.wall_clock) - i128::from(start.time);
    let mut found: Vec<(&str, i64)> = Vec::new();
    let mut of_recording = Vec::new();
    for start in starts {
        let (host, shift) = match (start, earliest) {
            (Some(start), Some(earliest)) => {
                (start.host.as_str(), i64::try_from(offset(start) - offset(earliest)).unwrap_or(0))
            }
            _ => ("", 0),
        };
        let is_same = |(other, at): &(&str, i64)| *other == host && at.abs_diff(shift) < SAME_CLOCK_NS;
        let clock = found.iter().position(is_same).unwrap_or_else(|| {
            found.push((host, shift));
            found.len() - 1
        });
        of_recording.push(clock as u32);
    }
    let shifts = of_recording.iter().map(|clock| found[*clock as usize].1).collect();
    let known = |at: usize| (at == 0).then_some(0);
    let clock = |(at, (host, _)): (usize, &(&str, i64))| Clock {
        host: (*host).to_owned(),
        bound: known(at),
        ..Clock::default()
    };
    let all = found.iter().enumerate().map(clock).collect();
    (Clocks { all, of_recording }, shifts)
}

/// Returns the beginning of all recordings.
fn common(earliest: &Start, all: &[&Start], hosts: &[&str], time: u64) -> Start {
    let commands = distinct(all.iter().map(|start| start.command.join(" ")));
    let command = match &commands[..] {
        [_] => earliest.command.clone(),
        [first, others @ ..] => vec![format!("{first} and {} more", others.len())],
        [] => Vec::new(),
    };
    let same_mode = all.iter().all(|start| start.mode == earliest.mode);
    let is_trace = matches!(earliest.mode, Mode::Trace | Mode::TraceSums);
    Start {
        time,
        wall_clock: earliest.wall_clock.saturating_add(time).saturating_sub(earliest.time),
        host: hosts.join(", "),
        command,
        mode: if same_mode || is_trace { earliest.mode } else { Mode::Merged },
        frequency: all.iter().map(|start| start.frequency).max().unwrap_or(0),
        ..earliest.clone()
    }
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut found, one| {
        if !found.contains(&one) {
            found.push(one);
        }
        found
    })
}
