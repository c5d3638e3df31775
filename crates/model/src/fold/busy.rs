//! How long a GPU was busy: the length of the union of all its intervals.
//!
//! ```text
//!   stream 7   ====      ======
//!   stream 8     =====     ==       ===
//!   busy       #######   ######     ###     each moment once
//! ```
//!
//! Intervals arrive almost in order: streams deliver in buffers, late and interleaved. A union does not depend on the
//! order, so intervals are collected in batches, sorted, and merged into the overlapping tail of a sorted list of
//! disjoint intervals. When the list is long, the oldest intervals are closed; from then on nothing before that time
//! counts, and the gaps between them are final.

/// Intervals sorted at a time: as many as fit into the inner caches.
const BATCH: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 10;

/// The minimum number of disjoint intervals that stay open to late arrivals; at most there are twice as many.
pub const KEPT: usize = 65_536;

/// Number of gaps kept.
const GAPS: usize = 16;

/// Start and end.
pub type Interval = (u64, u64);

/// Start, end, and what it begins with.
type Marked<T> = (u64, u64, T);

/// A part of the time: what is outside is not counted. By default, all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// Its start.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

impl Default for TimeRange {
    fn default() -> Self {
        Self { from: 0, to: u64::MAX }
    }
}

impl TimeRange {
    /// Returns the part of an interval that is in it, which may be empty.
    #[inline]
    pub fn cut(self, start: u64, end: u64) -> Interval {
        let start = start.max(self.from);
        (start, end.min(self.to).max(start))
    }

    fn length(self, start: u64, end: u64) -> u64 {
        let (start, end) = self.cut(start, end);
        end - start
    }
}

/// The time between two intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap<T> {
    /// The end of the interval before it; 0 if there is none.
    pub start: u64,
    /// The start of the interval after it.
    pub end: u64,
    /// The mark of the interval after it.
    pub mark: T,
}

/// The busy time of one GPU, or of anything else that occurs in intervals. Each interval has a mark; where intervals
/// overlap, that of the first one is kept.
#[derive(Debug)]
pub struct BusyTime<T = ()> {
    kept: usize,
    /// Where time is counted. Gaps are known as a whole.
    range: TimeRange,
    /// In order of arrival.
    fresh: Vec<Marked<T>>,
    /// The order of `fresh`: the start and the index of each interval in one number. Sorting these is faster.
    order: Vec<u64>,
    /// Room to sort them.
    spare: Vec<u64>,
    /// Sorted, disjoint and not adjacent.
    open: Vec<Marked<T>>,
    /// The part of `open` that a batch is merged into.
    tail: Vec<Marked<T>>,
    closed_ns: u64,
    closed_until: u64,
    closed_gaps: Longest,
}

impl<T: Copy + Ord> Default for BusyTime<T> {
    fn default() -> Self {
        Self::new(KEPT)
    }
}

impl BusyTime {
    /// Adds an interval.
    #[inline]
    pub fn add(&mut self, start: u64, end: u64) {
        self.add_marked(start, end, (), |_| {});
    }
}

impl<T: Copy + Ord> BusyTime<T> {
    /// Starts with no time; `kept` disjoint intervals stay open to late arrivals.
    pub fn new(kept: usize) -> Self {
        Self {
            kept,
            range: TimeRange::default(),
            fresh: Vec::new(),
            order: Vec::new(),
            spare: Vec::new(),
            open: Vec::new(),
            tail: Vec::new(),
            closed_ns: 0,
            closed_until: 0,
            closed_gaps: Longest::default(),
        }
    }

    /// The same, of which only a part of the time is counted.
    #[must_use]
    pub fn within(self, range: TimeRange) -> Self {
        Self { range, ..self }
    }

    /// Adds an interval. `closed` gets the gaps that no later interval can change, in order of time.
    #[inline]
    pub fn add_marked(&mut self, start: u64, end: u64, mark: T, closed: impl FnMut(Gap<T>)) {
        let start = start.max(self.closed_until);
        if end <= start {
            return;
        }
        // One comparison for both ends: intervals rarely continue the last one, but every second one starts before it.
        if let Some(last) = self.fresh.last_mut()
            && start.wrapping_sub(last.0) <= last.1 - last.0
        {
            last.1 = last.1.max(end);
            return;
        }
        self.fresh.push((start, end, mark));
        if self.fresh.len() >= BATCH {
            self.merge();
            self.close(closed);
        }
    }

    /// Returns the total busy time.
    pub fn total(&mut self) -> u64 {
        self.merge();
        self.closed_ns + self.open.iter().map(|(start, end, _)| self.range.length(*start, *end)).sum::<u64>()
    }

    /// Returns the longest gaps between the first interval and the last, longest first.
    pub fn gaps(&mut self) -> Vec<Interval> {
        self.merge();
        let mut gaps = self.closed_gaps.clone();
        for gap in self.open_gaps() {
            gaps.offer(self.range, gap.start, gap.end);
        }
        gaps.0
    }

    /// Returns the gaps that later intervals may still change, except the one after the last interval. Intervals of the
    /// last batch are not included until [`BusyTime::merge`].
    pub fn open_gaps(&self) -> impl Iterator<Item = Gap<T>> {
        let ends = std::iter::once(self.closed_until).chain(self.open.iter().map(|(_, end, _)| *end));
        ends.zip(&self.open).map(|(start, &(end, _, mark))| Gap { start, end, mark })
    }

    /// Returns the gap before the first interval that starts at or after a time; `None` if there is none, or if that time is
    /// closed. Intervals of the last batch are not included until [`BusyTime::merge`].
    pub fn gap_before(&self, time: u64) -> Option<Gap<T>> {
        if time < self.closed_until {
            return None;
        }
        let next = self.open.partition_point(|(start, ..)| *start < time);
        let (end, _, mark) = *self.open.get(next)?;
        let start = next.checked_sub(1).map_or(self.closed_until, |before| self.open[before].1);
        Some(Gap { start, end, mark })
    }

    /// Returns the end of the last interval, and its mark.
    pub fn last(&self) -> Option<(u64, T)> {
        self.open.last().map(|(_, end, mark)| (*end, *mark))
    }

    /// Merges the last batch.
    pub fn merge(&mut self) {
        let Some(first) = self.fresh.iter().map(|(start, ..)| *start).min() else { return };
        self.sort(first);
        let untouched = self.open.partition_point(|(_, end, _)| *end < first);
        self.tail.clear();
        self.tail.extend(self.open.drain(untouched..));
        let mut tail = self.tail.iter().peekable();
        for key in &self.order {
            let interval = &self.fresh[index(*key)];
            while let Some(earlier) = tail.next_if(|earlier| *earlier <= interval) {
                append(&mut self.open, *earlier);
            }
            append(&mut self.open, *interval);
        }
        tail.for_each(|later| append(&mut self.open, *later));
        self.fresh.clear();
    }

    /// Finds the order of `fresh`, of which no interval starts before `first`.
    fn sort(&mut self, first: u64) {
        let Self { fresh, order, spare, .. } = self;
        // Starts that are too far apart for a key get the same one.
        let key = |start: u64| (start - first).min(u64::MAX >> INDEX_BITS) << INDEX_BITS;
        order.clear();
        order.extend(fresh.iter().zip(0..).map(|((start, ..), index)| key(*start) | index));
        sort_by_start(order, spare);
        for equal in order.chunk_by_mut(|a, b| a >> INDEX_BITS == b >> INDEX_BITS) {
            equal.sort_unstable_by_key(|key| fresh[index(*key)]);
        }
    }

    /// Closes the oldest intervals if there are too many.
    fn close(&mut self, mut closed: impl FnMut(Gap<T>)) {
        if self.open.len() <= 2 * self.kept {
            return;
        }
        for (start, end, mark) in self.open.drain(..self.open.len() - self.kept) {
            self.closed_ns += self.range.length(start, end);
            self.closed_gaps.offer(self.range, self.closed_until, start);
            closed(Gap { start: self.closed_until, end: start, mark });
            self.closed_until = end;
        }
    }
}

/// Sorts keys that are in order of their indices: by 8 bits at a time, without a comparison to mispredict.
fn sort_by_start(keys: &mut Vec<u64>, spare: &mut Vec<u64>) {
    if keys.is_sorted() {
        return;
    }
    let used = keys.iter().fold(0, |used, key| used | key);
    spare.resize(keys.len(), 0);
    for shift in (INDEX_BITS..u64::BITS).step_by(8).take_while(|shift| used >> shift != 0) {
        let digit = |key: u64| (key >> shift) as usize % 256;
        let mut places = [0; 256];
        keys.iter().for_each(|key| places[digit(*key)] += 1);
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for key in &*keys {
            let place = &mut places[digit(*key)];
            spare[*place] = *key;
            *place += 1;
        }
        std::mem::swap(keys, spare);
    }
}

/// Returns the index in a key.
#[inline]
fn index(key: u64) -> usize {
    key as usize % BATCH
}

/// Adds an interval that does not start before the last one.
#[inline]
fn append<T>(union: &mut Vec<Marked<T>>, (start, end, mark): Marked<T>) {
    match union.last_mut() {
        Some(last) if start <= last.1 => last.1 = last.1.max(end),
        _ => union.push((start, end, mark)),
    }
}

/// The longest intervals, longest first; of two with the same length, the earlier first.
#[derive(Clone, Debug, Default)]
struct Longest(Vec<Interval>);

impl Longest {
    /// Keeps the gap if something came before it (`start` is not 0) and it is among the longest.
    fn offer(&mut self, range: TimeRange, start: u64, end: u64) {
        let Self(list) = self;
        let length = |(start, end): &Interval| end - start;
        let is_first = start == 0;
        let (start, end) = range.cut(start, end);
        if is_first || end <= start || (list.len() == GAPS && list.last().is_some_and(|l| length(l) >= end - start)) {
            return;
        }
        let at = list.partition_point(|longer| length(longer) >= end - start);
        list.insert(at, (start, end));
        list.truncate(GAPS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn busy(kept: usize, intervals: &[Interval]) -> u64 {
        let mut busy = BusyTime::new(kept);
        for &(start, end) in intervals {
            busy.add(start, end);
        }
        busy.total()
    }

    /// Check that overlap counts once and gaps do not count, and that neither order nor empty intervals matter.
    #[test]
    fn overlaps_count_once() {
        assert_eq!(busy(KEPT, &[]), 0);
        assert_eq!(busy(KEPT, &[(10, 20), (15, 30), (40, 50), (41, 45), (5, 10), (60, 60), (9, 3)]), 35);
    }

    /// Check that late intervals in a closed time are not counted twice, and that later time still counts.
    #[test]
    fn closed_time_is_not_counted_again() {
        let intervals: Vec<Interval> = (0..3 * BATCH as u64).map(|n| (10 * n, 10 * n + 4)).collect();
        let mut all = BusyTime::new(BATCH / 4);
        for &(start, end) in &intervals {
            all.add(start, end);
        }
        let total = all.total();
        assert_eq!(total, 4 * intervals.len() as u64);
        all.add(0, 9);
        all.add(all.closed_until - 1, all.closed_until + 1);
        assert_eq!(all.total(), total + 1);
        assert!(all.open.len() <= BATCH / 2 && all.open.capacity() <= 3 * BATCH);
    }

    /// Check that gaps are between the first and the last interval, longest first, and that closing changes none of
    /// them.
    #[test]
    fn gaps_are_longest_first() {
        let mut few = BusyTime::default();
        assert_eq!(few.gaps(), []);
        for (start, end) in [(100, 110), (300, 310), (120, 130), (105, 115)] {
            few.add(start, end);
        }
        assert_eq!(few.gaps(), [(130, 300), (115, 120)]);
        let mut many = BusyTime::new(BATCH / 4);
        for n in 1..3 * BATCH as u64 {
            many.add(100 * n, 100 * n + 4 + n % 64);
        }
        let lengths: Vec<u64> = many.gaps().iter().map(|(start, end)| end - start).collect();
        assert_eq!(lengths, [96; GAPS]);
        assert_eq!(many.gaps()[0].0, 100 * 64 + 4);
    }

    proptest! {
        /// Check that the union equals a count of the covered moments, also in batches.
        #[test]
        fn equals_a_bitmap(raw in proptest::collection::vec((0u64..30_000, 0u64..12), 0..12_000)) {
            let mut moments = vec![false; 30_100];
            let intervals: Vec<Interval> = raw.iter().map(|(start, length)| (*start, start + length)).collect();
            for &(start, end) in &intervals {
                moments[start as usize..end as usize].fill(true);
            }
            prop_assert_eq!(busy(KEPT, &intervals), moments.iter().filter(|m| **m).count() as u64);
        }

        /// Check the order of a batch, also of intervals that start together, and of starts too far apart for the keys.
        #[test]
        fn batches_are_sorted(raw in proptest::collection::vec((0u64..50, 0u32..64, 1u64..4, 0u8..4), 1..BATCH)) {
            let mut fresh: Vec<Marked<u8>> =
                raw.iter().map(|&(start, shift, length, mark)| ((start << shift) >> 8, start + length, mark)).collect();
            let first = fresh.iter().map(|(start, ..)| *start).min().unwrap_or(0);
            let mut busy = BusyTime { fresh: fresh.clone(), ..BusyTime::new(KEPT) };
            busy.sort(first);
            fresh.sort_unstable();
            prop_assert_eq!(busy.order.iter().map(|key| busy.fresh[index(*key)]).collect::<Vec<_>>(), fresh);
        }
    }
}
