//! The times in which another client uses CUPTI ([`crate::client`]), as warpscope gets to know them.

use crate::queue::QUEUE;
use crate::{client, library, setup, sys};

/// The pauses of a session.
#[derive(Default)]
pub struct Pauses {
    /// The one that lasts.
    present: Option<Pause>,
    /// How many there were.
    count: u32,
}

struct Pause {
    number: u32,
    from: u64,
    name: String,
}

impl Pauses {
    /// Another client uses CUPTI from now on; no records were taken since `from`.
    pub fn begin(&mut self, from: u64) {
        let pause = Pause { number: self.count, from, name: client::name() };
        self.count += 1;
        pause.send(u64::MAX);
        self.present = Some(pause);
    }

    /// Records again, once the other client has left.
    pub fn return_if_left(&mut self) {
        let Some(cupti) = library::cupti() else { return };
        client::watch(cupti);
        if client::has_left() && setup::resume(cupti) {
            self.end();
        }
    }

    /// The pause ends, if there is one.
    pub fn end(&mut self) {
        if let Some(pause) = self.present.take() {
            pause.send(sys::now());
        }
    }
}

impl Pause {
    /// Queues it; its end is `u64::MAX` while it lasts.
    fn send(&self, to: u64) {
        let pause = wire::Pause { from: self.from, to, name: self.name.as_bytes() };
        let mut bytes = vec![0; pause.size()];
        pause.encode(self.number, &mut bytes);
        QUEUE.append(&bytes, 0);
    }
}
