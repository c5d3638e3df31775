//! The events of a ring, checked before they are used.

use wire::calls::{ENTER, EXIT, FIRST, HAS_OUT, Head, THREAD};

/// An event of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEvent<'a> {
    /// The thread that writes to the ring from here on.
    Thread {
        /// Its id, as it knows it itself.
        tid: u32,
    },
    /// A call begins.
    Enter {
        /// The number of its function.
        function: u16,
        /// Bits of [`wire::calls`].
        flags: u8,
        /// The number of open calls that it is within.
        depth: usize,
        /// When.
        time: u64,
        /// Its id.
        correlation: u32,
        /// The CPU.
        cpu: u32,
        /// The start of its parameters.
        parameters: &'a [u8],
    },
    /// A call returns.
    Exit {
        /// The number of its function.
        function: u16,
        /// The number of open calls that it is within.
        depth: usize,
        /// When.
        time: u64,
        /// Its result.
        result: u32,
        /// What it wrote through a pointer argument.
        out: Option<u64>,
        /// What another one points to.
        payload: &'a [u8],
    },
    /// The thread's first runtime call is not traced.
    First {
        /// When.
        time: u64,
    },
    /// The thread has exited.
    Left,
}

/// The numbers of an event, checked, and the range of its bytes.
pub(super) struct Parsed {
    head: Head,
    words: [u64; 4],
    bytes: std::ops::Range<usize>,
}

impl Parsed {
    /// Checks an event; `None` if it is impossible.
    pub(super) fn of(event: &[u64]) -> Option<Self> {
        let head = Head::decode(event[0]);
        let mut words = [0; 4];
        let fixed = match head.kind {
            FIRST => 2,
            EXIT if head.flags & HAS_OUT != 0 => 4,
            THREAD | ENTER | EXIT => 3,
            _ => return None,
        };
        words[..fixed].copy_from_slice(event.get(..fixed)?);
        let length = match head.kind {
            ENTER => (event.len() - fixed) * 8,
            EXIT => (words[2] >> 32) as usize,
            _ => 0,
        };
        let bytes = fixed * 8..(fixed * 8).checked_add(length)?;
        (bytes.end <= event.len() * 8).then_some(Self { head, words, bytes })
    }

    /// Returns the event. `bytes` are those of the whole event.
    pub(super) fn event<'a>(&self, bytes: &'a [u8]) -> RingEvent<'a> {
        let Head { kind, flags, function, depth, .. } = self.head;
        let [_, time, word, out] = self.words;
        let (depth, bytes) = (usize::from(depth), &bytes[self.bytes.clone()]);
        match kind {
            THREAD => RingEvent::Thread { tid: word as u32 },
            ENTER => RingEvent::Enter {
                function,
                flags,
                depth,
                time,
                correlation: word as u32,
                cpu: (word >> 32) as u32,
                parameters: bytes,
            },
            EXIT => RingEvent::Exit {
                function,
                depth,
                time,
                result: word as u32,
                out: (flags & HAS_OUT != 0).then_some(out),
                payload: bytes,
            },
            _ => RingEvent::First { time },
        }
    }
}
