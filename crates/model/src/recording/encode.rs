//! Encodes events as bytes.

use super::{
    bytes::put_bytes,
    frequent::{self, Chunk, Numbers},
    sized,
};
use crate::event::Event;

/// Builds the payloads of successive chunks.
#[derive(Default)]
pub struct Encoder {
    /// The payload so far.
    pub out: Vec<u8>,
    /// A sized record, until its length is known.
    record: Vec<u8>,
    chunk: Chunk<Numbers>,
}

impl Encoder {
    /// Clears all tables at the start of a chunk.
    pub fn begin(&mut self) {
        self.out.clear();
        self.chunk.begin();
    }

    /// Appends a record.
    pub fn push(&mut self, event: &Event) {
        let Self { out, record, chunk } = self;
        // Writing never fails.
        match event {
            Event::Launch(launch) => {
                out.push(frequent::LAUNCH);
                chunk.launch(out, *launch);
            }
            Event::Activity(activity) => {
                out.push(frequent::ACTIVITY);
                chunk.activity(out, *activity);
            }
            Event::Sample(sample) => {
                out.push(frequent::SAMPLE);
                chunk.sample(out, *sample);
            }
            Event::Sync(sync) => {
                out.push(frequent::SYNC);
                chunk.sync(out, *sync);
            }
            other => {
                record.clear();
                out.push(sized::put(other, record));
                put_bytes(out, record);
            }
        }
    }
}
