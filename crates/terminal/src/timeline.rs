//! A timeline as text: a row for each stream and for the busiest threads, a column for each slice of time.
//!
//! Stores one number per row, column and kind, regardless of the length of the trace.

use std::collections::BTreeMap;

use analysis::names;
use model::{
    event::{Activity, Call, Event, Layer, ProcessId, SessionId, Switch, Work},
    profile::Profile,
};
use text::units;

/// Maximum number of streams drawn.
const STREAMS: usize = 8;
/// Maximum number of threads drawn.
const THREADS: usize = 6;
/// Maximum width of labels.
const LABEL: usize = 24;

/// What fills the columns of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A stream: kernels; copies and memsets.
    Stream,
    /// A thread: traced calls; requests to the driver; off the CPU.
    Thread,
}

/// One row: what it shows, and for each column the nanoseconds of each kind.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) kind: Kind,
    columns: Vec<[u64; 3]>,
}

/// The timeline of a trace.
#[derive(Clone, Debug)]
pub struct Timeline {
    origin: u64,
    start: u64,
    end: u64,
    pub(crate) label_width: usize,
    columns: usize,
    pub(crate) rows: Vec<Row>,
    streams: BTreeMap<(u32, SessionId, u32, u32), usize>,
    threads: BTreeMap<(ProcessId, u32), usize>,
    /// Streams and threads that did not get a row.
    pub(crate) left_out: (usize, usize),
}

impl Timeline {
    /// Creates an empty timeline, `width` columns wide including its labels: from the first call or GPU work to the
    /// last event.
    pub(crate) fn new(profile: &Profile, width: usize) -> Self {
        let origin = profile.start.as_ref().map_or(0, |start| start.time);
        let start = profile.calls.first.unwrap_or(origin).max(origin).min(u64::MAX - 1);
        let known = profile.devices.iter().flat_map(|(&device, info)| {
            info.streams.iter().map(move |&(session, context, stream)| (device, session, context, stream))
        });
        let mut threads: Vec<_> = profile.calls.threads.iter().collect();
        threads.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.ns));
        let mut rows = Vec::new();
        let mut row = |label: String, kind| {
            rows.push(Row { label, kind, columns: Vec::new() });
            rows.len() - 1
        };
        let all_streams = known.clone().count();
        let several = profile.sessions.len() > 1;
        let streams = known.take(STREAMS).map(|key @ (device, session, _, stream)| {
            let owner = profile.sessions.get(&session).filter(|_| several).map(|s| names::process(profile, s.process));
            (
                key,
                row(
                    format!("GPU {}/{stream} {}", profile.device_label(device), owner.unwrap_or_default())
                        .trim_end()
                        .to_owned(),
                    Kind::Stream,
                ),
            )
        });
        let streams: BTreeMap<_, _> = streams.collect();
        let drawn = threads.iter().take(THREADS);
        let threads_by_key = drawn
            .map(|((process, tid), _)| ((*process, *tid), row(names::thread(profile, *process, *tid), Kind::Thread)));
        let threads_by_key: BTreeMap<_, _> = threads_by_key.collect();
        let label_width = rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0).min(LABEL);
        let columns = width.saturating_sub(label_width + 2).max(10);
        for row in &mut rows {
            row.columns = vec![[0; 3]; columns];
        }
        Self {
            origin,
            start,
            end: profile.last_time.max(start + 1),
            label_width,
            columns,
            left_out: (all_streams - streams.len(), threads.len() - threads_by_key.len()),
            rows,
            streams,
            threads: threads_by_key,
        }
    }

    /// Draws what an event shows.
    pub(crate) fn event(&mut self, profile: &Profile, event: &Event) {
        match event {
            Event::Call(call) => self.call(profile, call),
            Event::Switch(switch) => self.switch(switch),
            Event::Activity(activity) => self.activity(profile, activity),
            _ => {}
        }
    }

    fn activity(&mut self, profile: &Profile, activity: &Activity) {
        let device = profile.device(activity.session, activity.device);
        let key = (device, activity.session, activity.context, activity.stream);
        if activity.start == 0 {
            return;
        }
        let kind = usize::from(!matches!(activity.work, Work::Kernel { .. }));
        if let Some(&row) = self.streams.get(&key) {
            self.add(row, kind, activity.start, activity.end);
        }
    }

    fn call(&mut self, profile: &Profile, call: &Call) {
        let Some(&row) = self.threads.get(&(call.process, call.tid)) else { return };
        let Some(function) = profile.calls.functions.get(&call.function).filter(|f| f.shown) else { return };
        let end = if call.end == 0 { self.end } else { call.end };
        if call.depth == 0 && function.layer != Layer::Point {
            self.add(row, 0, call.start, end);
        }
        if function.layer == Layer::Driver {
            self.add(row, 1, call.start, end);
        }
    }

    fn switch(&mut self, switch: &Switch) {
        if let Some(&row) = self.threads.get(&(switch.process, switch.tid)) {
            self.add(row, 2, switch.start, switch.end);
        }
    }

    /// Spreads an interval over the columns that it touches.
    fn add(&mut self, row: usize, kind: usize, start: u64, end: u64) {
        let (start, end) = (start.max(self.start), end.min(self.end));
        if start >= end {
            return;
        }
        let column = |time: u64| {
            let (time, span) = (u128::from(time - self.start), u128::from(self.end - self.start));
            (time * self.columns as u128 / span) as usize
        };
        let (first, last) = (column(start), column(end - 1));
        for at in first..=last.min(self.columns - 1) {
            let (from, to) = (self.border(at), self.border(at + 1));
            let ns = end.min(to).saturating_sub(start.max(from));
            let sum = &mut self.rows[row].columns[at][kind];
            *sum = sum.saturating_add(ns);
        }
    }

    /// Returns when a column begins.
    fn border(&self, column: usize) -> u64 {
        let span = u128::from(self.end - self.start);
        self.start + (span * column as u128 / self.columns as u128) as u64
    }

    /// Returns a row as text, one character for each column, and whether it contains anything.
    pub(crate) fn text(&self, row: &Row) -> String {
        let cell = |(at, sums): (usize, &[u64; 3])| {
            let width = (self.border(at + 1) - self.border(at)).max(1) as f64;
            let [first, second, third] = sums.map(|ns| ns as f64 / width);
            match row.kind {
                // Off the CPU for most of it: waiting, in a call or not.
                Kind::Thread if third >= 0.5 => '·',
                Kind::Thread if second * 2.0 > first => shade(second),
                Kind::Stream if second > first => shade(second),
                _ => block(first),
            }
        };
        row.columns.iter().enumerate().map(cell).collect()
    }

    /// Returns the axis below the rows: times since the trace's start, at their positions.
    pub(crate) fn axis(&self) -> String {
        const TICKS: usize = 5;
        let mut line: Vec<char> = vec![' '; self.columns];
        let mut free = 0;
        for tick in 0..TICKS {
            let column = (self.columns - 1) * tick / (TICKS - 1);
            let label = units::time(self.border(column).saturating_sub(self.origin));
            let length = label.chars().count() + 1;
            // The last label is left of its mark, so that it fits into the line.
            let (from, text) = match tick {
                t if t == TICKS - 1 => ((column + 1).saturating_sub(length), format!("{label}┘")),
                _ => (column, format!("└{label}")),
            };
            if from < free || from + length > self.columns {
                continue;
            }
            free = from + length + 1;
            for (place, c) in text.chars().enumerate() {
                line[from + place] = c;
            }
        }
        line.into_iter().collect()
    }
}

fn block(share: f64) -> char {
    level(share, &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'])
}

fn shade(share: f64) -> char {
    level(share, &['░', '▒', '▓'])
}

/// Zero is a blank; anything above zero is visible.
fn level(share: f64, levels: &[char]) -> char {
    if share <= 0.0 {
        return ' ';
    }
    let at = (share.min(1.0) * levels.len() as f64).ceil() as usize;
    levels[at.clamp(1, levels.len()) - 1]
}

#[cfg(test)]
mod tests {
    use model::calls::ThreadSum;

    use super::*;

    /// Check that time is spread over the columns it touches, and that small amounts stay visible.
    ///
    /// ```text
    ///   0         100 ns, ten columns
    ///   =====     a call to the middle of the fifth
    ///        .    and its last nanosecond in the sixth
    /// ```
    #[test]
    fn time_is_spread_over_columns() {
        let mut profile = Profile { last_time: 100, ..Profile::default() };
        profile.calls.threads.insert((ProcessId(1), 5), ThreadSum { count: 1, ns: 1 });
        let mut line = Timeline::new(&profile, 0);
        assert_eq!((line.columns, line.rows.len()), (10, 1));
        line.add(0, 0, 0, 45);
        line.add(0, 0, 59, 60);
        assert_eq!(line.text(&line.rows[0]), "████▄▁    ");
        line.add(0, 1, 70, 80);
        line.add(0, 2, 90, u64::MAX);
        assert_eq!(line.text(&line.rows[0]), "████▄▁ ▓ ·");
        // Intervals beyond the ends or with the end before the start are ignored.
        line.add(0, 0, 100, 200);
        line.add(0, 0, 30, 20);
        assert_eq!(line.text(&line.rows[0]), "████▄▁ ▓ ·");
        assert_eq!(line.axis().chars().count(), 10);
    }
}
