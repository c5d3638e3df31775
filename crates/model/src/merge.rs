//! Reads several recordings as one, such as those of the ranks of a distributed program.
//!
//! Times are aligned by the wall clock at the start of each recording. Numbers that identify something within one recording
//! (processes, sessions, stacks) get the index of the recording in bits that recordings do not use, so they stay apart;
//! events and functions with the same name become one. GPUs are the same if their UUIDs are.

mod ids;
#[cfg(test)]
mod tests;

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
    pub fn new(mut recordings: Vec<I>) -> Result<Self, MergeError> {
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
        let known: Vec<&Start> = starts.iter().copied().flatten().collect();
        if known.iter().any(is_trace) && !known.iter().all(is_trace) {
            return Err(MergeError::Mixed);
        }
        // Relative to the earliest recording, no time becomes negative.
        let earliest = known.iter().copied().min_by_key(|start| start.wall_clock);
        let hosts = distinct(known.iter().map(|start| start.host.as_str()));
        let ids: Vec<Ids> = (0..)
            .zip(&starts)
            .map(|(index, start)| {
                let host = start.and_then(|start| hosts.iter().position(|host| *host == start.host)).unwrap_or(0);
                let label = if hosts.len() > 1 { start.map_or("", |start| &start.host) } else { "" };
                Ids::new(index, shift(*start, earliest), host as u32, label)
            })
            .collect();
        let start = earliest.map(|earliest| common(earliest, &known, &hosts));
        let parts = recordings.into_iter().zip(firsts).zip(ids);
        let parts = parts.map(|((events, first), ids)| {
            let next = first.filter(|first| !matches!(first, Event::Start(_)));
            Part { events, next, at: 0, ids }
        });
        let mut merged = Self {
            parts: parts.collect(),
            shared: Shared::default(),
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

/// Returns what to add to the times of a recording.
fn shift(start: Option<&Start>, earliest: Option<&Start>) -> i64 {
    let offset = |start: &Start| i128::from(start.wall_clock) - i128::from(start.time);
    match (start, earliest) {
        (Some(start), Some(earliest)) => i64::try_from(offset(start) - offset(earliest)).unwrap_or(0),
        _ => 0,
    }
}

/// Returns the beginning of all recordings.
fn common(earliest: &Start, all: &[&Start], hosts: &[&str]) -> Start {
    let commands = distinct(all.iter().map(|start| start.command.join(" ")));
    let command = match &commands[..] {
        [_] => earliest.command.clone(),
        [first, others @ ..] => vec![format!("{first} and {} more", others.len())],
        [] => Vec::new(),
    };
    let same_mode = all.iter().all(|start| start.mode == earliest.mode);
    let is_trace = matches!(earliest.mode, Mode::Trace | Mode::TraceSums);
    Start {
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
