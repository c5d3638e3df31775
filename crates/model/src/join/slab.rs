//! Slots that never move, linked into first-in-first-out lists.
//!
//! The join constantly removes entries from the middle of its queues, because pending launches are matched in any
//! order. A doubly linked list inside a slab does that in constant time and without allocating. A freed slot is the
//! next one used, so the working set stays as small as the number of entries kept.

/// No slot.
pub const NONE: u32 = u32::MAX;

/// The maximum number of slots: one less than there are numbers.
pub const MOST: usize = NONE as usize;

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// The slots. Each occupied one is on one [`List`].
///
/// The links are stored separately from the values: unlinking a slot touches the links of its neighbours, which are
/// then in the cache.
pub struct Slab<T> {
    values: Vec<T>,
    links: Vec<Link>,
    free: u32,
}

/// A queue through the slots of a slab, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct List {
    first: u32,
    last: u32,
    length: usize,
}

impl List {
    pub const EMPTY: Self = Self { first: NONE, last: NONE, length: 0 };

    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns the slot that has been on the list longest.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

impl<T: Copy> Slab<T> {
    pub const fn new() -> Self {
        Self { values: Vec::new(), links: Vec::new(), free: NONE }
    }

    /// Fills a slot and appends it to `list`.
    #[inline]
    pub fn insert(&mut self, value: T, list: &mut List) -> u32 {
        let id = if self.free == NONE {
            assert!(self.values.len() < MOST, "the join's limits are above {MOST}");
            self.values.push(value);
            self.links.push(Link { previous: NONE, next: NONE });
            (self.values.len() - 1) as u32
        } else {
            let id = self.free;
            self.free = self.links[id as usize].next;
            self.values[id as usize] = value;
            id
        };
        self.append(id, list);
        id
    }

    /// Removes a slot from its list and empties it.
    #[inline]
    pub fn remove(&mut self, id: u32, list: &mut List) -> T {
        self.unlink(id, list);
        self.links[id as usize].next = self.free;
        self.free = id;
        self.values[id as usize]
    }

    /// Moves a slot from one list to the end of another.
    #[inline]
    pub fn transfer(&mut self, id: u32, from: &mut List, to: &mut List) {
        self.unlink(id, from);
        self.append(id, to);
    }

    #[inline]
    fn append(&mut self, id: u32, list: &mut List) {
        self.links[id as usize] = Link { previous: list.last, next: NONE };
        match list.last {
            NONE => list.first = id,
            last => self.links[last as usize].next = id,
        }
        list.last = id;
        list.length += 1;
    }

    #[inline]
    fn unlink(&mut self, id: u32, list: &mut List) {
        let Link { previous, next } = self.links[id as usize];
        match previous {
            NONE => list.first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => list.last = previous,
            next => self.links[next as usize].previous = previous,
        }
        list.length -= 1;
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.values[id as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.values[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that slots can be removed from the front, the middle and the end, and that freed slots are reused.
    #[test]
    fn lists_survive_removal_anywhere() {
        let mut slab = Slab::new();
        let (mut one, mut two) = (List::EMPTY, List::EMPTY);
        let ids: Vec<u32> = (0..5).map(|n| slab.insert(n, &mut one)).collect();
        assert_eq!(slab.remove(ids[2], &mut one), 2);
        assert_eq!(slab.remove(ids[0], &mut one), 0);
        slab.transfer(ids[4], &mut one, &mut two);
        assert_eq!((one.len(), two.len()), (2, 1));
        assert_eq!(slab.insert(9, &mut two), ids[0]);
        let mut order = Vec::new();
        while let Some(id) = two.first() {
            order.push(slab.remove(id, &mut two));
        }
        while let Some(id) = one.first() {
            order.push(slab.remove(id, &mut one));
        }
        assert_eq!(order, [4, 9, 1, 3]);
        assert_eq!(slab.values.len(), 5);
    }
}
