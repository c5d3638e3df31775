//! Bytes to events. Nothing is trusted: whatever the bytes are, the answer is an event, a skip, or `None`.

use super::{
    bytes::Cursor,
    frequent::{self, Chunk, Things},
    sized,
};
use crate::event::{Activity, Event, Launch, Sample, Sync};

/// One record.
pub enum Record {
    /// An event.
    Event(Event),
    /// A record with a length that this reader does not understand.
    Unknown,
}

/// Reads the records of one chunk after another.
#[derive(Default)]
pub struct Decoder {
    chunk: Chunk<Things>,
}

impl Decoder {
    /// Forgets all tables: a chunk begins.
    pub fn begin(&mut self) {
        self.chunk.begin();
    }

    /// Reads the next record. `None`: the chunk makes no sense from here on.
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
