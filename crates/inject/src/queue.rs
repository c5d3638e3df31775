//! The bounded queue of packets between CUPTI's threads and the sender.
//!
//! Messages are copied into an open packet; a full packet is sealed and waits to be sent. The memory for all packets is
//! reserved once, and untouched pages cost nothing. The lowest free packet is always used first, so a program whose
//! reader keeps up touches only a few. If none is free, the message is refused and the caller counts it.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::MAX_PACKET;

use crate::{sys, wakeup};

/// The maximum number of packets: 64 MiB.
pub const PACKETS: usize = 2048;

const WORDS: usize = PACKETS / 64;

/// The process's queue.
pub static QUEUE: Queue = Queue::new(PACKETS);

/// A bounded queue of packets in reserved memory.
pub struct Queue {
    memory: AtomicPtr<u8>,
    limit: usize,
    ring: Mutex<Ring>,
}

/// A packet's content: its bytes, and the records lost with it if it cannot be sent.
#[derive(Clone, Copy)]
struct Content {
    bytes: u32,
    records: u32,
}

struct Ring {
    /// One bit for each packet, set while it is in use.
    used: [u64; WORDS],
    content: [Content; PACKETS],
    /// Sealed packets, oldest at `first`.
    order: [u16; PACKETS],
    first: usize,
    sealed: usize,
    open: Option<u16>,
}

/// A packet to send; return it with [`Queue::release`] afterwards.
pub struct Packet {
    index: u16,
    bytes: *const u8,
    length: usize,
    /// Records in it.
    pub records: u64,
}

impl Packet {
    /// The messages.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the packet's memory is the sender's until it is released, and is never unmapped.
        unsafe { core::slice::from_raw_parts(self.bytes, self.length) }
    }
}

impl Queue {
    /// A queue of at most `limit` packets, without memory yet.
    pub const fn new(limit: usize) -> Self {
        let ring = Ring {
            used: [0; WORDS],
            content: [Content { bytes: 0, records: 0 }; PACKETS],
            order: [0; PACKETS],
            first: 0,
            sealed: 0,
            open: None,
        };
        let limit = if limit < PACKETS { limit } else { PACKETS };
        Self { memory: AtomicPtr::new(ptr::null_mut()), limit, ring: Mutex::new(ring) }
    }

    /// Reserves the memory, once; false if the kernel refuses.
    pub fn prepare(&self) -> bool {
        if self.memory.load(Ordering::Acquire).is_null() {
            self.memory.store(sys::reserve(self.limit * MAX_PACKET), Ordering::Release);
        }
        !self.memory.load(Ordering::Acquire).is_null()
    }

    /// Discards all packets, also those taken and not released, and returns their pages to the kernel. Called while there is
    /// no sender.
    pub fn clear(&self) {
        let memory = self.memory.load(Ordering::Acquire);
        let mut ring = self.ring();
        (ring.used, ring.first, ring.sealed, ring.open) = ([0; WORDS], 0, 0, None);
        if !memory.is_null() {
            // SAFETY: the memory is that of the packets, all of which are free, and only the holder of the lock writes to
            // them.
            unsafe { sys::discard(memory, self.limit * MAX_PACKET) };
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds whole messages that hold `records` records. They all go into one packet, after everything added before.
    /// Returns false if the queue is full.
    pub fn append(&self, messages: &[u8], records: u32) -> bool {
        let memory = self.memory.load(Ordering::Acquire);
        if memory.is_null() || messages.len() > MAX_PACKET {
            return false;
        }
        let mut sealed = false;
        let mut ring = self.ring();
        if let Some(open) = ring.open
            && ring.content[usize::from(open)].bytes as usize + messages.len() > MAX_PACKET
        {
            ring.seal(open);
            sealed = true;
        }
        let open = ring.open.or_else(|| ring.take_free(self.limit));
        ring.open = open;
        if let Some(open) = open {
            let content = &mut ring.content[usize::from(open)];
            let at = usize::from(open) * MAX_PACKET + content.bytes as usize;
            // SAFETY: packet `open` is within the reserved memory, has room for the messages, and only the holder of
            // the lock writes to it.
            unsafe { ptr::copy_nonoverlapping(messages.as_ptr(), memory.add(at), messages.len()) };
            content.bytes += messages.len() as u32;
            content.records += records;
        }
        drop(ring);
        if sealed {
            wakeup::wake();
        }
        open.is_some()
    }

    /// Returns the oldest sealed packet; with `partial`, the open one if no sealed packet is left.
    pub fn take(&self, partial: bool) -> Option<Packet> {
        let memory = self.memory.load(Ordering::Acquire);
        let mut ring = self.ring();
        if ring.sealed == 0 {
            let open = ring.open.filter(|_| partial)?;
            ring.seal(open);
        }
        let index = ring.order[ring.first];
        ring.first = (ring.first + 1) % PACKETS;
        ring.sealed -= 1;
        let content = ring.content[usize::from(index)];
        Some(Packet {
            index,
            // SAFETY: a packet in the ring is within the reserved memory.
            bytes: unsafe { memory.add(usize::from(index) * MAX_PACKET) },
            length: content.bytes as usize,
            records: u64::from(content.records),
        })
    }

    /// Seals the open packet: what is added from now on goes into another one.
    pub fn seal(&self) {
        let mut ring = self.ring();
        if let Some(open) = ring.open {
            ring.seal(open);
        }
    }

    /// Frees a packet's memory.
    pub fn release(&self, packet: Packet) {
        let index = usize::from(packet.index);
        self.ring().used[index / 64] &= !(1 << (index % 64));
    }
}

impl Ring {
    fn seal(&mut self, open: u16) {
        self.order[(self.first + self.sealed) % PACKETS] = open;
        self.sealed += 1;
        self.open = None;
    }

    fn take_free(&mut self, limit: usize) -> Option<u16> {
        let word = self.used.iter().position(|w| *w != u64::MAX)?;
        let index = word * 64 + self.used[word].trailing_ones() as usize;
        if index >= limit {
            return None;
        }
        self.used[word] |= 1 << (index % 64);
        self.content[index] = Content { bytes: 0, records: 0 };
        Some(index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// A full queue refuses exactly what does not fit, keeps the order, and accepts messages again once a packet is
    /// released.
    #[test]
    fn refuses_what_does_not_fit() {
        let queue = Box::new(Queue::new(2));
        assert!(!queue.append(&[1], 1), "no memory yet");
        assert!(queue.prepare());
        let half = [7; MAX_PACKET / 2];
        let accepted = (0..10).filter(|_| queue.append(&half, 1)).count();
        assert_eq!(accepted, 4);
        let first = queue.take(false).unwrap();
        assert_eq!((first.bytes().len(), first.records), (MAX_PACKET, 2));
        // The refused message sealed the second packet, so it is full too.
        assert!(!queue.append(&[9], 1), "the first packet is still being sent");
        queue.release(first);
        assert!(queue.append(&[9], 1));
        let second = queue.take(false).unwrap();
        assert_eq!((second.bytes()[0], second.records), (7, 2));
        assert!(queue.take(false).is_none());
        assert_eq!(queue.take(true).unwrap().bytes(), [9]);
        assert!(queue.take(true).is_none());
    }

    /// Messages are never split across packets, and messages longer than a packet are refused.
    #[test]
    fn messages_are_never_split() {
        let queue = Box::new(Queue::new(8));
        assert!(queue.prepare());
        assert!(!queue.append(&[0; MAX_PACKET + 1], 1));
        for fill in 0..40 {
            assert!(queue.append(&[fill; 3001], 1));
        }
        let mut seen = 0;
        while let Some(packet) = queue.take(true) {
            assert_eq!(packet.bytes().len() % 3001, 0);
            for message in packet.bytes().chunks(3001) {
                assert!(message.iter().all(|b| *b == seen));
                seen += 1;
            }
            queue.release(packet);
        }
        assert_eq!(seen, 40);
    }

    /// With many producers and a slow reader, accepted messages arrive in each producer's order, and arrived plus
    /// refused messages equal those sent.
    #[test]
    fn counts_are_exact_under_threads() {
        const EACH: u64 = 40_000;
        let queue = Box::new(Queue::new(3));
        assert!(queue.prepare());
        let refused = AtomicU64::new(0);
        let running = AtomicU64::new(4);
        let mut last = [0; 4];
        let mut arrived = 0;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (queue, refused, running) = (&queue, &refused, &running);
                scope.spawn(move || {
                    for number in 1..=EACH {
                        let mut message = [0; 64];
                        message[..8].copy_from_slice(&thread.to_le_bytes());
                        message[8..16].copy_from_slice(&number.to_le_bytes());
                        if !queue.append(&message, 1) {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            loop {
                let finished = running.load(Ordering::SeqCst) == 0;
                let Some(packet) = queue.take(finished) else {
                    if finished {
                        break;
                    }
                    std::thread::yield_now();
                    continue;
                };
                for message in packet.bytes().chunks(64) {
                    let thread = message[0] as usize;
                    let number = u64::from_le_bytes(message[8..16].try_into().unwrap());
                    assert!(number > last[thread]);
                    last[thread] = number;
                    arrived += 1;
                }
                assert_eq!(packet.records as usize, packet.bytes().len() / 64);
                queue.release(packet);
            }
        });
        let refused = refused.load(Ordering::Relaxed);
        assert_eq!(arrived + refused, 4 * EACH);
        assert!(arrived > 0);
    }
}
