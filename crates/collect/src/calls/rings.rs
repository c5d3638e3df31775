//! The memory that a process writes its calls to: the reading side of [`wire::calls`].
//!
//! The process may write anything at any time. Positions are kept here and only copied to the memory; every event is
//! copied before it is checked, and every number is checked before it is used. A ring with an impossible event is
//! ignored from then on. The file has a fixed size, so that reading it cannot fail.

mod event;

use std::{
    io,
    ops::ControlFlow,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use wire::calls::{BYTES, Capture, DOMAINS, FREE, FUNCTIONS, Head, Header, LEFT, RINGS, offset, words};

use self::event::Parsed;
use crate::shared_memory::SharedMemory;

pub use event::RingEvent;

/// The most words of one event: an exit with the longest text.
const MOST_WORDS: usize = 1024;

/// The most calls that one process can report as lost: the number is the process's own.
const MOST_LOST: u64 = 1 << 40;

/// What to capture of each function.
pub type Captures = [[Capture; FUNCTIONS]; DOMAINS];

/// The rings of one process.
pub struct Rings {
    memory: SharedMemory<Header>,
    tails: [u64; RINGS],
    /// What had been written at the last [`Rings::look`]: the state and the position of each ring.
    seen: [(u32, u64); RINGS],
    /// Rings that contain an impossible event.
    broken: [bool; RINGS],
    /// The ring that is read first in the next round.
    first: usize,
}

impl Rings {
    /// Creates empty rings for these functions.
    pub fn new(captures: &Captures) -> io::Result<Self> {
        let memory = SharedMemory::<Header>::new(c"warpscope-calls", BYTES)?;
        // SAFETY: nobody else has the file yet; the header is at the start of the mapping.
        unsafe { (&raw mut (*memory.start().as_ptr()).functions).write(*captures) };
        Ok(Self { memory, tails: [0; RINGS], seen: [(FREE, 0); RINGS], broken: [false; RINGS], first: 0 })
    }

    /// Returns the file for the process to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header, whose shared parts are atomic.
        unsafe { self.memory.start().as_ref() }
    }

    /// Returns the calls that did not fit, and those that were nested too deeply. The process counts them itself.
    pub fn lost(&self) -> (u64, u64) {
        let header = self.header();
        let dropped = header.rings.iter().map(|ring| ring.dropped.load(Ordering::Relaxed));
        let without = header.without_ring.load(Ordering::Relaxed);
        let lost = dropped.fold(without, u64::saturating_add);
        (lost.min(MOST_LOST), header.too_deep.load(Ordering::Relaxed).min(MOST_LOST))
    }

    /// Returns the number of rings that contain an impossible event.
    pub fn broken(&self) -> usize {
        self.broken.iter().filter(|broken| **broken).count()
    }

    /// Ignores a ring from now on.
    pub fn ignore(&mut self, ring: usize) {
        self.broken[ring] = true;
    }

    /// Notes what has been written so far: only this is read until the next call.
    pub fn note_written(&mut self) {
        let memory = self.memory.start();
        // SAFETY: as in `header`.
        let rings = unsafe { &memory.as_ref().rings };
        for (seen, ring) in self.seen.iter_mut().zip(rings) {
            // In this order: what a thread wrote before it left is before the head.
            let state = ring.state.load(Ordering::Acquire);
            *seen = (state, ring.head.load(Ordering::Acquire));
        }
    }

    /// Passes on up to `most` events, in the order of each ring. With `Break` an event is not consumed, and its ring is
    /// left for the next round. Returns the number of events consumed.
    pub fn drain(&mut self, most: usize, each: &mut dyn FnMut(usize, RingEvent<'_>) -> ControlFlow<()>) -> usize {
        let mut left = most;
        let first = self.first;
        for index in (0..RINGS).map(|at| (first + at) % RINGS) {
            if left == 0 {
                self.first = index;
                break;
            }
            if !self.broken[index] {
                left -= self.drain_one(index, left, each);
            }
        }
        most - left
    }

    fn drain_one(
        &mut self,
        index: usize,
        most: usize,
        each: &mut dyn FnMut(usize, RingEvent<'_>) -> ControlFlow<()>,
    ) -> usize {
        let memory = self.memory.start();
        // SAFETY: as in `header`.
        let ring = unsafe { &memory.as_ref().rings[index] };
        let (state, head) = self.seen[index];
        let mut buffer = [0; MOST_WORDS];
        let mut taken = 0;
        while self.tails[index] != head && taken < most {
            let Some(length) = self.copy(index, head, &mut buffer) else {
                self.broken[index] = true;
                return taken;
            };
            let event = &buffer[..length];
            let (Some(event), bytes) = (Parsed::of(event), as_bytes(event)) else {
                self.broken[index] = true;
                return taken;
            };
            if each(index, event.event(bytes)).is_break() {
                return taken;
            }
            taken += 1;
            self.tails[index] = self.tails[index].wrapping_add(length as u64);
        }
        ring.read.tail.store(self.tails[index], Ordering::Release);
        if state == LEFT && self.tails[index] == head && taken < most {
            self.seen[index].0 = FREE;
            let _ = each(index, RingEvent::Left);
            ring.state.store(FREE, Ordering::Release);
        }
        taken
    }

    /// Copies the next event; `None` if its length is impossible.
    fn copy(&self, index: usize, head: u64, buffer: &mut [u64; MOST_WORDS]) -> Option<usize> {
        let size = words(index) as u64;
        let available = head.wrapping_sub(self.tails[index]);
        let word = |at: u64| {
            let place = offset(index) + 8 * (self.tails[index].wrapping_add(at) & (size - 1)) as usize;
            // SAFETY: the word is within the ring, which is within the mapping.
            unsafe { self.memory.start().byte_add(place).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
        };
        if available == 0 || available > size {
            return None;
        }
        buffer[0] = word(0);
        let length = usize::from(Head::decode(buffer[0]).words);
        if !(2..=MOST_WORDS).contains(&length) || length as u64 > available {
            return None;
        }
        for (at, to) in buffer[..length].iter_mut().enumerate().skip(1) {
            *to = word(at as u64);
        }
        Some(length)
    }
}

fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any bytes of whole words are valid bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use wire::calls::{ENTER, EXIT, FIRST, HAS_OUT, THREAD};

    use super::*;

    /// A writer that can write anything, as a hostile process would.
    struct Writer<'a>(&'a Rings);

    impl Writer<'_> {
        fn word(&self, ring: usize, at: u64, word: u64) {
            let place = offset(ring) + 8 * (at as usize & (words(ring) - 1));
            // SAFETY: within the mapping.
            unsafe { self.0.memory.start().byte_add(place).cast::<AtomicU64>().as_ref() }
                .store(word, Ordering::Relaxed);
        }

        fn write(&self, ring: usize, words: &[u64]) {
            let head = self.0.header().rings[ring].head.load(Ordering::Relaxed);
            for (at, word) in words.iter().enumerate() {
                self.word(ring, head + at as u64, *word);
            }
            self.0.header().rings[ring].head.store(head + words.len() as u64, Ordering::Release);
        }
    }

    fn rings() -> Rings {
        Rings::new(&[[Capture::default(); FUNCTIONS]; DOMAINS]).expect("memory")
    }

    fn head(kind: u8, flags: u8, words: usize) -> u64 {
        Head { kind, flags, function: 1044, depth: 0, words: words as u16 }.encode()
    }

    fn drain(rings: &mut Rings) -> Vec<String> {
        let mut events = Vec::new();
        rings.note_written();
        rings.drain(usize::MAX, &mut |ring, event| {
            events.push(format!("{ring} {event:?}"));
            ControlFlow::Continue(())
        });
        events
    }

    /// Check that events arrive in order, also across the end of the ring, and that a ring is freed after its thread left.
    #[test]
    fn events_arrive_in_order() {
        let mut rings = rings();
        let rounds = words(100) / 5 + 10;
        for round in 0..rounds as u64 {
            Writer(&rings).write(100, &[head(ENTER, 0, 5), round, 7 | 3 << 32, 11, 12]);
            let events = drain(&mut rings);
            assert_eq!(events.len(), 1);
            assert!(events[0].contains(&format!("time: {round},")) && events[0].contains("cpu: 3"), "{events:?}");
        }
        Writer(&rings).write(100, &[head(EXIT, HAS_OUT, 5), 9, 2 | 3 << 32, 77, u64::from_le_bytes(*b"abc\0\0\0\0\0")]);
        rings.header().rings[100].state.store(LEFT, Ordering::Relaxed);
        let events = drain(&mut rings);
        assert_eq!(events.len(), 2);
        assert!(events[0].contains("out: Some(77), payload: [97, 98, 99]"), "{events:?}");
        assert_eq!(rings.header().rings[100].state.load(Ordering::Relaxed), FREE);
        assert_eq!(rings.broken(), 0);
    }

    /// Check that impossible lengths, kinds and positions break one ring and nothing else.
    #[test]
    fn a_hostile_writer_breaks_only_its_ring() {
        let cases: [&[u64]; 7] = [
            &[head(ENTER, 0, 0), 1],
            &[head(ENTER, 0, 1), 1],
            &[head(ENTER, 0, 60_000), 1, 2],
            &[head(99, 0, 2), 1],
            &[head(THREAD, 0, 2), 1],
            &[head(EXIT, 0, 3), 1, u64::MAX],
            &[head(EXIT, HAS_OUT, 3), 1, 0],
        ];
        for (ring, case) in cases.iter().enumerate() {
            let mut rings = rings();
            Writer(&rings).write(ring, case);
            Writer(&rings).write(127, &[head(FIRST, 0, 2), 5]);
            assert_eq!(drain(&mut rings), ["127 First { time: 5 }"], "{case:?}");
            assert_eq!(rings.broken(), 1, "{case:?}");
        }
        let mut rings = rings();
        for position in [u64::MAX, words(0) as u64 + 1, 1 << 63] {
            rings.broken[0] = false;
            rings.header().rings[0].head.store(position, Ordering::Relaxed);
            assert_eq!(drain(&mut rings), Vec::<String>::new());
            assert_eq!(rings.broken(), 1);
        }
        rings.header().rings[3].dropped.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(rings.lost(), (MOST_LOST, 0));
    }

    /// Check that a round is bounded, that the next one continues, and that a postponed event arrives again.
    #[test]
    fn rounds_are_bounded() {
        let mut rings = rings();
        for _ in 0..10 {
            Writer(&rings).write(0, &[head(FIRST, 0, 2), 1]);
            Writer(&rings).write(1, &[head(FIRST, 0, 2), 2]);
        }
        let mut go = |_: usize, _: RingEvent<'_>| ControlFlow::Continue(());
        assert_eq!(rings.drain(12, &mut go), 0, "nothing was read");
        rings.note_written();
        assert_eq!((rings.drain(12, &mut go), rings.drain(12, &mut go), rings.drain(12, &mut go)), (12, 8, 0));
        Writer(&rings).write(1, &[head(FIRST, 0, 2), 3]);
        rings.note_written();
        assert_eq!(rings.drain(12, &mut |_, _| ControlFlow::Break(())), 0);
        assert_eq!(drain(&mut rings), ["1 First { time: 3 }"]);
    }
}
