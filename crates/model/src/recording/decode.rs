//! Decodes bytes into events. Nothing is trusted: any input yields an event, a skip, or `None`.

use super::{
    bytes::Cursor,
    frequent::{self, Chunk, Values},
    sized,
};
use crate::event::{Activity, Event, Launch, Sample, Sync};

/// One record.
pub enum Record {
    /// An event.
    Event(Event),
    /// A record with a length that this reader does not know.
    Unknown,
}

/// Reads the records of successive chunks.
#[derive(Default)]
pub struct Decoder {
    chunk: Chunk<Values>,
}

impl Decoder {
    /// Clears all tables at the start of a chunk.
    pub fn begin(&mut self) {
        self.chunk.begin();
    }

    /// Reads the next record. `None`: the rest of the chunk is invalid.
    pub fn next(&mut self, cursor: &mut Cursor<'_>) -> Option<Record> {
        let chunk = &mut self.chunk;
        let event = match cursor.byte()? {
            frequent::LAUNCH => Event::Launch(chunk.launch(cursor, Launch::default())?),
            frequent::ACTIVITY => Event::Activity(chunk.activity(cursor, Activity::default())?),
            frequent::SAMPLE => Event::Sample(chunk.sample(cursor, Sample::default())?),
            frequent::SYNC => Event::Sync(chunk.sync(cursor, Sync::default())?),
            0..sized::FIRST => return None,
            tag => {
                let mut fields = Cursor::new(cursor.bytes()?);
                return Some(sized::get(tag, &mut fields).map_or(Record::Unknown, Record::Event));
            }
        };
        Some(Record::Event(event))
    }
}
