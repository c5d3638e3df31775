//! Addresses that are reused by another file, as when a library is closed and the next one opened is mapped in its
//! place.
//!
//! A stack is identified by its addresses. If one of them is reused, it is a different stack, though it looks the same:
//!
//! ```text
//!   mapped    first.so at 0x7000 ........ second.so at 0x7000 .......... first.so at 0x7000 ...
//!   launches         0x7123                       0x7123                        0x7123
//!   reported         0x7123                  (1 << 48) + 0x7123                 0x7123
//! ```
//!
//! So every file that takes over addresses has a number, which is added to them above the address bits. Mappings and
//! frames are reported with it, and nothing else needs to know.
//!
//! Records and mappings are processed in order of time; a record that is newer than the last read of the mappings has
//! to wait. Until the kernel has the new mapping, it walks by the old file's rules: where the new file's rules differ,
//! the stack is truncated.

use std::{
    collections::{HashMap, VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
};

use model::event::{ADDRESS, Frame, Mapping, ProcessId, Stack, StackEnd, StackId};

/// The number of bits of an address.
const BITS: u32 = ADDRESS.trailing_ones();
/// The most mappings remembered per image, and the most with reused addresses: the oldest are removed first.
const MOST: usize = 8192;
const MOST_CHANGED: usize = 1024;
/// The most ended images whose stacks may not have been read yet.
const MOST_GONE: usize = 256;

/// The files that each address has belonged to.
#[derive(Debug, Default)]
pub struct Reused {
    /// A forked image shares that of its parent until one of the two changes.
    images: HashMap<ProcessId, Arc<Image>>,
    gone: VecDeque<ProcessId>,
    any: bool,
}

#[derive(Clone, Debug, Default)]
struct Image {
    /// By time.
    pieces: Vec<Piece>,
    /// The first and the last address of any of them so far. A mapping outside overlaps none: most are.
    reach: Option<(u64, u64)>,
    /// Whether any address has belonged to more than one file.
    changed_hands: bool,
}

#[derive(Clone, Debug)]
struct Piece {
    start: u64,
    end: u64,
    since: u64,
    /// When the kernel's walker received it; before that it may have used the rules of the previous file.
    published: Option<u64>,
    file: u64,
    number: u16,
    takes_over: bool,
}

impl Piece {
    fn overlaps(&self, other: &Piece) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl Reused {
    /// Adds a new image: a forked one has the addresses of its parent.
    pub fn born(&mut self, image: ProcessId, forked_from: Option<ProcessId>) {
        if let Some(parent) = forked_from.and_then(|parent| self.images.get(&parent)) {
            let parent = parent.clone();
            self.images.insert(image, parent);
        }
    }

    /// Handles the end of an image.
    pub fn died(&mut self, image: ProcessId) {
        if self.images.get(&image).is_some_and(|known| known.changed_hands) {
            self.gone.push_back(image);
        } else {
            self.images.remove(&image);
        }
        if self.gone.len() > MOST_GONE
            && let Some(first) = self.gone.pop_front()
        {
            self.images.remove(&first);
        }
    }

    /// Whether any address of any image has been reused.
    pub fn any(&self) -> bool {
        self.any
    }

    /// Adds a mapped file. Returns the mapping to report, and whether it replaces another file.
    pub fn mapped(&mut self, mapping: &Mapping) -> (Mapping, bool) {
        let image = Arc::make_mut(self.images.entry(mapping.process).or_default());
        let Mapping { start, end, time, .. } = *mapping;
        let file = file(mapping);
        let mut new = Piece { start, end, since: time, published: None, file, number: 0, takes_over: false };
        let (low, high) = image.reach.unwrap_or((end, start));
        image.reach = Some((low.min(start), high.max(end)));
        let within = start < high && low < end;
        let before = within.then(|| image.pieces.iter().rev().find(|piece| piece.overlaps(&new))).flatten();
        if before.is_some_and(|piece| piece.file != file) {
            new.takes_over = true;
            let same = |piece: &&Piece| (piece.start, piece.end, piece.file) == (start, end, file);
            let highest = image.pieces.iter().map(|piece| piece.number).max().unwrap_or(0);
            new.number = image.pieces.iter().find(same).map_or(highest.saturating_add(1), |piece| piece.number);
            image.changed_hands = true;
            self.any = true;
        } else if let Some(before) = before {
            new.number = before.number;
        }
        let (number, takes_over) = (u64::from(new.number) << BITS, new.takes_over);
        if image.changed_hands {
            image.pieces.drain(..(image.pieces.len() + 1).saturating_sub(MOST_CHANGED));
        }
        if image.pieces.len() < MOST {
            image.pieces.push(new);
        }
        (Mapping { start: start | number, end: end | number, ..mapping.clone() }, takes_over)
    }

    /// Notes that from now on the kernel walks stacks with everything mapped so far.
    pub fn published(&mut self, image: ProcessId, now: u64) {
        if let Some(image) = self.images.get_mut(&image).filter(|image| image.changed_hands) {
            Arc::make_mut(image)
                .pieces
                .iter_mut()
                .rev()
                .take_while(|piece| piece.published.is_none())
                .for_each(|piece| piece.published = Some(now));
        }
    }

    /// Returns a stack as of some time: itself, or a different one if its addresses were reused. `alike` says whether
    /// an address has the same unwind rules in its current and its previous file. If not, and the kernel did not know
    /// yet, the walk was wrong from there on.
    pub fn at(&self, stack: &Stack, time: u64, alike: impl Fn(u64) -> bool) -> Option<Stack> {
        let image = self.images.get(&stack.process).filter(|image| image.changed_hands)?;
        let mut frames = Vec::with_capacity(stack.frames.len());
        let mut end = stack.end;
        for frame in &stack.frames {
            let Frame::User(address) = *frame else {
                frames.push(*frame);
                continue;
            };
            let plain = address & ADDRESS;
            let piece = image.pieces.iter().rev().find(|p| p.since <= time && (p.start..p.end).contains(&plain));
            frames.push(Frame::User(plain | piece.map_or(0, |piece| u64::from(piece.number) << BITS)));
            let unknown = |piece: &Piece| piece.takes_over && piece.published.is_none_or(|published| time < published);
            if piece.is_some_and(unknown) && !alike(plain) {
                end = StackEnd::NoMapping;
                break;
            }
        }
        if frames == stack.frames {
            return None;
        }
        let mut hash = DefaultHasher::new();
        (stack.id.0, frames.len(), &frames).hash(&mut hash);
        Some(Stack { id: StackId(hash.finish() | 1), time, frames, end, ..*stack })
    }
}

/// Returns a number that identifies a file and where it would begin.
fn file(mapping: &Mapping) -> u64 {
    let mut hash = DefaultHasher::new();
    (&mapping.path, &mapping.build_id, mapping.start.wrapping_sub(mapping.offset)).hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: ProcessId = ProcessId(7);

    fn mapping(path: &str, start: u64, time: u64) -> Mapping {
        let (path, build_id) = (path.into(), Vec::new());
        Mapping { process: IMAGE, time, start, end: start + 0x1000, offset: 0, path, build_id }
    }

    fn stack(addresses: &[u64]) -> Stack {
        let frames = addresses.iter().copied().map(Frame::User).collect();
        Stack { id: StackId(5), process: IMAGE, time: 10, frames, end: StackEnd::Whole }
    }

    fn addresses(stack: &Stack) -> Vec<u64> {
        stack.frames.iter().map(|frame| if let Frame::User(address) = frame { *address } else { 0 }).collect()
    }

    /// Check that, when two libraries alternate, the second gets a number, the first keeps its own, and mappings beside
    /// them are unaffected.
    #[test]
    fn alternating_libraries_are_distinguished() {
        const SECOND: u64 = 1 << 48;
        let mut reused = Reused::default();
        let starts = [("main", 0x1000, 0), ("first", 0x7000, 5), ("second", 0x7000, 20), ("first", 0x7000, 30)]
            .map(|(path, start, time)| reused.mapped(&mapping(path, start, time)))
            .map(|(mapping, takes_over)| (mapping.start, takes_over));
        assert_eq!(starts, [(0x1000, false), (0x7000, false), (SECOND | 0x7000, true), (0x7000, true)]);
        reused.published(IMAGE, 1);

        let seen = stack(&[0x7123, 0x1234]);
        let at = |time| reused.at(&seen, time, |_| true);
        assert_eq!(at(10), None);
        let second = at(25).expect("another one");
        assert_eq!((addresses(&second), second.end), (vec![SECOND | 0x7123, 0x1234], StackEnd::Whole));
        assert_eq!(at(26).map(|stack| stack.id), Some(second.id), "the same at any time");
        assert_eq!(at(30), None);
        assert_eq!(reused.at(&stack(&[0x1234]), 25, |_| true), None);
    }

    /// Check that a walk made with outdated rules is truncated where it went wrong.
    #[test]
    fn walks_with_outdated_rules_are_truncated() {
        let mut reused = Reused::default();
        for (path, time) in [("first", 5), ("second", 20)] {
            reused.mapped(&mapping(path, 0x7000, time));
        }
        reused.mapped(&mapping("main", 0x1000, 0));
        let seen = stack(&[0x1234, 0x7123, 0x1567]);
        let cut = reused.at(&seen, 25, |address| address < 0x7000).expect("another one");
        assert_eq!((cut.frames.len(), cut.end), (2, StackEnd::NoMapping));
        reused.published(IMAGE, 22);
        let whole = reused.at(&seen, 25, |_| false).expect("another one");
        assert_eq!((whole.frames.len(), whole.end), (3, StackEnd::Whole));
    }

    /// Check that remapping the same library at the same place, or a part of it, changes nothing.
    #[test]
    fn remapping_the_same_file_changes_nothing() {
        let mut reused = Reused::default();
        reused.mapped(&mapping("first", 0x7000, 5));
        assert!(!reused.mapped(&mapping("first", 0x7000, 9)).1);
        let part = Mapping { start: 0x7800, offset: 0x800, ..mapping("first", 0x7000, 12) };
        assert!(!reused.mapped(&part).1);
        assert_eq!(reused.at(&stack(&[0x7900]), 20, |_| false), None);
    }
}
