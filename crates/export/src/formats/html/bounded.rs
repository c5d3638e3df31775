//! A bounded sample of events.

/// Keeps all items up to a limit, beyond it a pseudo-random sample: each item with the same probability, `1 / stride`,
/// the same items in every run.
pub struct Bounded<T> {
    items: Vec<(u64, T)>,
    limit: usize,
    seen: u64,
    shift: u32,
}

impl<T> Bounded<T> {
    /// Keeps at most `limit` items.
    pub fn new(limit: usize) -> Self {
        Self { items: Vec::new(), limit, seen: 0, shift: 0 }
    }

    /// Adds an item.
    pub fn push(&mut self, item: T) {
        let number = self.seen;
        self.seen += 1;
        if !is_kept(number, self.shift) {
            return;
        }
        self.items.push((number, item));
        while self.items.len() > self.limit && self.shift < 63 {
            self.shift += 1;
            let shift = self.shift;
            self.items.retain(|(number, _)| is_kept(*number, shift));
        }
    }

    /// Of how many items one is kept, on average.
    pub fn stride(&self) -> u64 {
        1 << self.shift
    }

    /// Number of items seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the kept items, in order.
    pub fn into_items(self) -> Vec<T> {
        self.items.into_iter().map(|(_, item)| item).collect()
    }
}

/// The finalizer of SplitMix64 makes periodic programs look random.
fn is_kept(number: u64, shift: u32) -> bool {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    hash & ((1 << shift) - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that few items are all kept, and that of many a fair sample is.
    #[test]
    fn samples_are_fair() {
        let mut few = Bounded::new(100);
        (0..100).for_each(|item| few.push(item));
        assert_eq!((few.stride(), few.into_items()), (1, (0..100).collect()));

        let mut many = Bounded::new(10_000);
        (0..100_000).for_each(|item| many.push(item));
        let (stride, seen) = (many.stride(), many.seen());
        let items = many.into_items();
        assert_eq!(seen, 100_000);
        assert!(items.len() <= 10_000 && items.is_sorted(), "{}", items.len());
        let estimate = items.len() as u64 * stride;
        assert!((90_000..110_000).contains(&estimate), "{estimate}");
        // A program with a period of 8 operations.
        for phase in 0..8 {
            let share = items.iter().filter(|item| **item % 8 == phase).count() * 8;
            assert!(share > items.len() / 2 && share < items.len() * 3 / 2, "{phase}: {share} of {}", items.len());
        }
    }
}
