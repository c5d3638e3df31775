//! Reads a recording.

use std::{
    fmt,
    io::{self, Read},
};

use super::{
    bytes::Cursor,
    decode::{Decoder, Record},
    layout::{CHUNK_HEADER, CHUNK_MOST, EVENTS, HEADER, MAGIC, VERSION, checksum},
};
use crate::event::Event;

/// Why a file cannot be read as a recording at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file could not be read.
    #[error("cannot read the recording: {0}")]
    Read(#[from] io::Error),
    /// The file is empty.
    #[error("the recording is empty: warpscope was stopped before it wrote anything; record again")]
    Empty,
    /// The file is shorter than a header.
    #[error("the recording ends within its header: warpscope was stopped before it wrote any event; record again")]
    NoHeader,
    /// The file is not a recording.
    #[error("this is not a warpscope recording (a .wscope file begins with the letters WSCOPE)")]
    NotARecording,
    /// The file was written by a later version.
    #[error(
        "this recording has format {0}.{1}, and this warpscope reads format {major}.x: use the warpscope that wrote it, or a newer one",
        major = VERSION.0
    )]
    OtherVersion(u16, u16),
}

/// Where a recording is not readable. All events before it were read. A recording that is cut off is not an error: a crash
/// or a full disk ends one like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file offset of the first chunk that could not be read completely.
    pub offset: u64,
    /// What is wrong with the chunk.
    pub reason: DamageReason,
    /// Damaged chunks that were skipped, if there are whole ones after them.
    pub skipped: u64,
}

impl Damage {
    /// Whether the file was changed after it was written, or cannot be read: it is not just cut off.
    pub fn is_error(&self) -> bool {
        self.reason != DamageReason::CutOff || self.skipped > 0
    }
}

/// What is wrong with a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageReason {
    /// The file ends within it.
    CutOff,
    /// It has an invalid length.
    Length(u32),
    /// Its checksum does not match.
    Checksum,
    /// Its checksum matches, but its contents are invalid.
    Record,
    /// Reading failed.
    Read(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.skipped {
            0 => write!(f, "the recording can be read up to byte {}: ", self.offset)?,
            1 => {
                let offset = self.offset;
                return write!(
                    f,
                    "the recording is damaged: the chunk at byte {offset} has a wrong checksum, and its events are missing"
                );
            }
            count => {
                let offset = self.offset;
                return write!(
                    f,
                    "the recording is damaged: {count} chunks, the first at byte {offset}, have a wrong checksum, and their events are missing"
                );
            }
        }
        match &self.reason {
            DamageReason::CutOff => f.write_str("it was cut off there, for example by a crash or a full disk"),
            DamageReason::Length(length) => write!(f, "the next chunk has an invalid length ({length} bytes)"),
            DamageReason::Checksum => f.write_str("the next chunk has a wrong checksum"),
            DamageReason::Record => f.write_str("the next chunk contains an invalid record"),
            DamageReason::Read(error) => write!(f, "{error}"),
        }
    }
}

/// Reads events from a recording, to its end or to the first incomplete chunk, which [`Reader::damage`] then describes. A
/// chunk with a wrong checksum is skipped if the next one is whole.
///
/// Reading is safe on any bytes: it does not panic and uses no more memory than a chunk may have (16 MiB) and a few
/// times that for its tables. A buffered source only pays where chunks are small: each chunk takes two reads.
pub struct Reader<R> {
    from: R,
    decoder: Decoder,
    payload: Vec<u8>,
    /// How much of the payload has been decoded.
    at: usize,
    /// The offsets of the payload's chunk and of the next chunk.
    chunk: u64,
    next_chunk: u64,
    skipped: u64,
    damage: Option<Damage>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Opens a recording and reads its header.
    pub fn new(mut from: R) -> Result<Self, OpenError> {
        let mut header = Vec::with_capacity(HEADER);
        from.by_ref().take(HEADER as u64).read_to_end(&mut header)?;
        if header.is_empty() {
            return Err(OpenError::Empty);
        }
        let magic = &header[..header.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Err(OpenError::NotARecording);
        }
        let Ok(header) = <[u8; HEADER]>::try_from(header) else { return Err(OpenError::NoHeader) };
        let major = u16::from_le_bytes([header[8], header[9]]);
        let minor = u16::from_le_bytes([header[10], header[11]]);
        if major != VERSION.0 {
            return Err(OpenError::OtherVersion(major, minor));
        }
        Ok(Self {
            from,
            decoder: Decoder::default(),
            payload: Vec::new(),
            at: 0,
            chunk: 0,
            next_chunk: HEADER as u64,
            skipped: 0,
            damage: None,
            ended: false,
        })
    }

    /// Returns what ended the recording early, once the last event was read.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Returns the number of unknown records that were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Reads the next chunk of events. False: there is none, or it is damaged.
    fn next_chunk(&mut self) -> bool {
        // The last chunk, if its checksum is wrong.
        let mut unsure: Option<u64> = None;
        loop {
            self.chunk = self.next_chunk;
            let read = self.read_chunk();
            if let (Some(offset), Ok(Some(_))) = (unsure, &read) {
                unsure = None;
                let damage = Damage { offset, reason: DamageReason::Checksum, skipped: 0 };
                self.damage.get_or_insert(damage).skipped += 1;
            }
            match read {
                Ok(Some(EVENTS)) => {
                    self.decoder.begin();
                    self.at = 0;
                    return true;
                }
                Ok(Some(_)) => self.payload.clear(),
                Err(DamageReason::Checksum) if unsure.is_none() => unsure = Some(self.chunk),
                Ok(None) if unsure.is_none() => break,
                failed => {
                    let (offset, reason) = match (unsure, failed) {
                        (Some(offset), _) => (offset, DamageReason::Checksum),
                        (None, failed) => (self.chunk, failed.err().unwrap_or(DamageReason::CutOff)),
                    };
                    self.damaged(offset, reason);
                    break;
                }
            }
        }
        self.payload.clear();
        self.at = 0;
        self.ended = true;
        false
    }

    /// Reads and checks one chunk of any type. `None`: the file ends properly here.
    fn read_chunk(&mut self) -> Result<Option<[u8; 4]>, DamageReason> {
        let failed = |error: io::Error| DamageReason::Read(format!("cannot read the recording: {error}"));
        self.payload.clear();
        self.from.by_ref().take(CHUNK_HEADER as u64).read_to_end(&mut self.payload).map_err(failed)?;
        if self.payload.is_empty() {
            return Ok(None);
        }
        let Ok(header) = <[u8; CHUNK_HEADER]>::try_from(self.payload.as_slice()) else {
            return Err(DamageReason::CutOff);
        };
        let [k0, k1, k2, k3, l0, l1, l2, l3, c0, c1, c2, c3] = header;
        let (kind, length) = ([k0, k1, k2, k3], u32::from_le_bytes([l0, l1, l2, l3]));
        if length as usize > CHUNK_MOST {
            return Err(DamageReason::Length(length));
        }
        // Grows with the bytes read, not with the claimed length.
        self.payload.clear();
        self.from.by_ref().take(length.into()).read_to_end(&mut self.payload).map_err(failed)?;
        if self.payload.len() < length as usize {
            return Err(DamageReason::CutOff);
        }
        self.next_chunk += CHUNK_HEADER as u64 + u64::from(length);
        if checksum(kind, length, &self.payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(DamageReason::Checksum);
        }
        Ok(Some(kind))
    }

    /// Ends the recording here. A chunk that was skipped before is what is reported.
    fn damaged(&mut self, offset: u64, reason: DamageReason) {
        self.damage.get_or_insert(Damage { offset, reason, skipped: 0 });
        self.ended = true;
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if self.ended || (self.at == self.payload.len() && !self.next_chunk()) {
                return None;
            }
            let mut cursor = Cursor::new(&self.payload[self.at..]);
            if cursor.left() == 0 {
                continue;
            }
            let record = self.decoder.next(&mut cursor);
            self.at = self.payload.len() - cursor.left();
            match record {
                Some(Record::Event(event)) => return Some(event),
                Some(Record::Unknown) => self.skipped += 1,
                None => {
                    self.damaged(self.chunk, DamageReason::Record);
                    return None;
                }
            }
        }
    }
}
