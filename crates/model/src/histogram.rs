//! A histogram of durations: four buckets per octave, in steps of 16 ns at the small end. The BPF programs use the same
//! buckets (`bucket_of` in `bpf/sums.h`).

/// Number of buckets; the last is for everything beyond two minutes.
pub const BUCKETS: usize = 128;

/// The number of durations in each bucket, with the minimum and maximum of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    /// `u64::MAX` if nothing was counted.
    shortest: u64,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), shortest: u64::MAX, longest: 0 }
    }
}

impl Histogram {
    /// Counts one duration in nanoseconds.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        let count = &mut self.buckets[bucket(ns)];
        *count = count.saturating_add(1);
        self.widen(ns, ns);
    }

    /// Adds counts made elsewhere, with their extremes; counts beyond the last bucket are ignored.
    pub fn merge(&mut self, counts: &[u64], shortest: u64, longest: u64) {
        self.widen(shortest, longest);
        for (sum, count) in self.buckets.iter_mut().zip(counts) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// Adds another histogram.
    pub fn add_all(&mut self, other: &Self) {
        self.merge(other.buckets(), other.shortest, other.longest);
    }

    fn widen(&mut self, shortest: u64, longest: u64) {
        self.shortest = self.shortest.min(shortest);
        self.longest = self.longest.max(longest);
    }

    /// Returns the counts by bucket.
    pub fn buckets(&self) -> &[u64] {
        &*self.buckets
    }

    /// Returns the duration that `share` (0 to 1) of all durations do not exceed. The shortest and the longest are
    /// exact. Others are exact to a bucket, at most an eighth of their size, and never outside these two. 0 if nothing
    /// was counted.
    pub fn quantile(&self, share: f64) -> u64 {
        let total = self.buckets.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let wanted = ((share * total as f64).ceil().max(1.0) as u64).min(total);
        // Extremes read from a recording may be wrong.
        let (shortest, longest) = (self.shortest.min(self.longest), self.longest);
        if wanted == 1 && total > 0 {
            return shortest;
        }
        if wanted == total {
            return longest;
        }
        let mut seen = 0_u64;
        for (index, count) in self.buckets.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if *count > 0 && seen >= wanted {
                return midpoint(index).clamp(shortest, longest);
            }
        }
        0
    }
}

/// Returns the bucket of a duration.
#[inline]
pub fn bucket(ns: u64) -> usize {
    let steps = ns >> 4;
    if steps < 4 {
        return steps as usize;
    }
    let log = steps.ilog2();
    let index = 4 * (log - 1) + (steps >> (log - 2) & 3) as u32;
    (index as usize).min(BUCKETS - 1)
}

/// Returns the smallest duration in a bucket.
pub fn lower_bound(bucket: usize) -> u64 {
    if bucket < 4 {
        return (bucket as u64) << 4;
    }
    let log = bucket / 4 + 1;
    (4 + (bucket as u64 & 3)) << (log - 2) << 4
}

fn midpoint(bucket: usize) -> u64 {
    u64::midpoint(lower_bound(bucket), lower_bound(bucket + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that buckets are contiguous, and that each begins at its lower bound.
    #[test]
    fn buckets_are_contiguous() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(lower_bound(index)), index);
            assert!(lower_bound(index + 1) > lower_bound(index));
            if index > 0 {
                assert_eq!(bucket(lower_bound(index) - 1), index - 1);
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// Check that quantiles of few calls are measured values: for one call all are its duration, for two the median is
    /// the shorter one, and none is beyond the extremes.
    #[test]
    fn quantiles_of_few_calls_are_measured_values() {
        let of = |all: &[u64]| {
            let mut histogram = Histogram::default();
            all.iter().for_each(|ns| histogram.add(*ns));
            [0.0, 0.5, 0.99, 1.0].map(|share| histogram.quantile(share))
        };
        assert_eq!(of(&[]), [0; 4]);
        assert_eq!(of(&[0]), [0; 4]);
        assert_eq!(of(&[41_100_000]), [41_100_000; 4]);
        assert_eq!(of(&[41_100_000, 36_000_000]), [36_000_000, 36_000_000, 41_100_000, 41_100_000]);
        for all in [[1, 2, 3], [1000, 1001, 1002], [41_100_000, 41_200_000, 41_300_000], [5, 5_000, 5_000_000]] {
            let [least, median, most, greatest] = of(&all);
            assert_eq!([least, most, greatest], [all[0], all[2], all[2]], "{all:?}");
            assert!((all[0]..=all[2]).contains(&median), "{all:?}: {median}");
        }
        // The same from the kernel's sums, and from several processes.
        let mut merged = Histogram::default();
        let mut one = Histogram::default();
        one.add(41_100_000);
        merged.merge(one.buckets(), 41_100_000, 41_100_000);
        assert_eq!(merged.quantile(0.5), 41_100_000);
        merged.add_all(&one);
        assert_eq!(merged, {
            one.add(41_100_000);
            one
        });
        // Contradictory extremes, in a damaged recording.
        let mut damaged = Histogram::default();
        damaged.merge(&[5; BUCKETS], 100, 7);
        assert_eq!(damaged.quantile(0.5), 7);
    }

    /// Check that a quantile is off by at most an eighth.
    #[test]
    fn quantiles_are_off_by_an_eighth_at_most() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        for ns in 1..=10_000_u64 {
            histogram.add(ns * 10);
        }
        for (share, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.01, 1_000.0)] {
            let found = histogram.quantile(share) as f64;
            assert!((found / exact - 1.0).abs() < 0.13, "{share}: {found}");
        }
    }
}
