//! Requests that carry a recording to a service of continuous profiles: OTLP ([`otlp`]), and Pyroscope's push API ([`pyroscope`]).
//!
//! A recording becomes [`Batch`]es, each small enough for the limits that receivers have by default. A batch is encoded when it is
//! sent, so only one is in memory; one that a receiver finds too large is split, down to a single stack. The same recording gives
//! the same bytes, and the same ids of profiles, so that a receiver can recognise what it gets twice.

pub mod otlp;
pub mod pyroscope;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

use analysis::weighted::{
    Frame,
    series::{AllSeries, Series, Type},
};
use model::profile::Profile;

use crate::formats::html::digest::sha256;

/// The most stacks of a batch: Pyroscope rejects profiles of more than 16,000.
const MOST_STACKS: usize = 8_000;
/// The most bytes of a batch, as estimated, but for one with a single stack: receivers accept 4 MiB and more.
const MOST_BYTES: usize = 1 << 20;

/// What is sent of a recording.
pub struct Source<'a> {
    /// The recording.
    pub profile: &'a Profile,
    /// Its series.
    pub all: &'a AllSeries,
    /// What all series have in common, by OpenTelemetry's names: `service.name`, `host.name`, ...
    pub labels: &'a BTreeMap<String, String>,
}

/// What one request carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    parts: Vec<Part>,
}

/// A part of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    series: usize,
    stacks: Range<usize>,
}

impl Batch {
    /// Divides everything into batches.
    pub fn all(source: &Source<'_>) -> Vec<Self> {
        let mut batches = vec![Self::default()];
        let mut seen: HashSet<u32> = HashSet::new();
        let (mut bytes, mut count) = (0, 0);
        for (series, Series { stacks, .. }) in source.all.series.iter().enumerate() {
            for (at, (path, _)) in stacks.iter().enumerate() {
                // A stack, and the frames that it adds: a location, a function and their strings.
                let new = path.iter().filter(|frame| !seen.contains(frame));
                let frame = |frame: &u32| 48 + source.all.frames[*frame as usize].bytes();
                let cost = 24 + 3 * path.len() + new.map(frame).sum::<usize>();
                if count > 0 && (count == MOST_STACKS || bytes + cost > MOST_BYTES) {
                    batches.push(Self::default());
                    seen.clear();
                    (bytes, count) = (0, 0);
                }
                seen.extend(path);
                bytes += cost;
                count += 1;
                let Some(batch) = batches.last_mut() else { continue };
                match batch.parts.last_mut().filter(|part| part.series == series) {
                    Some(part) => part.stacks.end = at + 1,
                    None => batch.parts.push(Part { series, stacks: at..at + 1 }),
                }
            }
        }
        batches.retain(|batch| !batch.parts.is_empty());
        batches
    }

    /// Divides it into two of about the same size. `None` if it has only one stack.
    pub fn split(&self) -> Option<(Self, Self)> {
        let half = self.stacks() / 2;
        if half == 0 {
            return None;
        }
        let (mut first, mut second, mut count) = (Self::default(), Self::default(), 0);
        for part in &self.parts {
            let middle = part.stacks.start + part.stacks.len().min(half - count);
            count += middle - part.stacks.start;
            for (batch, stacks) in [(&mut first, part.stacks.start..middle), (&mut second, middle..part.stacks.end)] {
                if !stacks.is_empty() {
                    batch.parts.push(Part { series: part.series, stacks });
                }
            }
        }
        Some((first, second))
    }

    /// Returns the number of its stacks.
    pub fn stacks(&self) -> usize {
        self.parts.iter().map(|part| part.stacks.len()).sum()
    }

    fn of<'a>(&self, source: &Source<'a>) -> impl Iterator<Item = Piece<'a>> {
        let all = source.all;
        self.parts.iter().filter_map(move |part| {
            let series = all.series.get(part.series)?;
            Some(Piece { series, stacks: series.stacks.get(part.stacks.clone())?, from: part.stacks.start })
        })
    }
}

/// A part of a series, and where it begins.
struct Piece<'a> {
    series: &'a Series,
    stacks: &'a [(Vec<u32>, u64)],
    from: usize,
}

impl Piece<'_> {
    /// Returns the id of this profile: the same whenever the same part of the same recording is sent.
    fn id(&self, source: &Source<'_>) -> [u8; 16] {
        let start = source.profile.start.as_ref();
        let host = start.map_or("", |start| &start.host);
        let Series { kind, rank, device, .. } = self.series;
        let text = format!(
            "{host} {:?} {} {} {rank:?} {device:?} {} {} {}",
            source.labels,
            start.map_or(0, |start| start.wall_clock),
            kind.name(),
            self.from,
            self.stacks.len(),
            self.stacks.iter().fold(0, |sum: u64, (_, amount)| sum.wrapping_add(*amount)),
        );
        let mut id = [0; 16];
        id.copy_from_slice(&sha256(text.into_bytes())[..16]);
        id
    }

    /// Returns the labels of the series: those that all have, its rank and its GPU.
    fn labels(&self, source: &Source<'_>) -> BTreeMap<String, String> {
        let mut labels = source.labels.clone();
        labels.extend(self.series.rank.map(|rank| ("rank".to_owned(), rank.to_string())));
        labels.extend(self.series.device.clone().map(|device| ("device".to_owned(), device)));
        labels
    }

    /// Returns what one amount stands for: the time between two samples of a CPU; otherwise the amounts are exact.
    fn period(&self, profile: &Profile) -> u64 {
        let frequency = profile.start.as_ref().map_or(0, |start| start.frequency);
        // Pyroscope ignores the type of a profile whose period is 0.
        if self.series.kind == Type::Cpu && frequency > 0 { 1_000_000_000 / u64::from(frequency) } else { 1 }
    }
}

/// The frames that a request needs, numbered from 0 in the order of their first use.
#[derive(Default)]
struct Used {
    numbers: HashMap<u32, u32>,
    frames: Vec<u32>,
}

impl Used {
    fn number(&mut self, frame: u32) -> u32 {
        *self.numbers.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            self.frames.len() as u32 - 1
        })
    }

    fn path(&mut self, path: &[u32]) -> Vec<u32> {
        path.iter().map(|frame| self.number(*frame)).collect()
    }

    fn all<'a>(&self, frames: &'a [Frame]) -> impl Iterator<Item = &'a Frame> {
        self.frames.iter().map(|frame| &frames[*frame as usize])
    }
}

/// Returns the size of the texts of a frame.
trait Bytes {
    fn bytes(&self) -> usize;
}

impl Bytes for Frame {
    fn bytes(&self) -> usize {
        self.name.len() + self.file.len() + self.module.len()
    }
}
