//! Tests that recordings round-trip, and that damaged ones are handled.

mod arbitrary;

use std::{
    cell::Cell,
    io::{self, Write},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

use self::arbitrary::events;
use super::layout::*;
use super::*;
use crate::event::{
    ErrorSum, Event, Function, FunctionId, Launch, LaunchKind, Layer, Memory, MemorySum, Note, ProcessId, SessionId,
    StackId, Sum,
};

/// Writes a recording with a chunk boundary after every `every` events.
fn record(events: &[Event], every: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for (n, event) in events.iter().enumerate() {
        if n % every == every - 1 {
            writer.flush().unwrap();
        }
        writer.push(event).unwrap();
    }
    writer.finish().unwrap()
}

/// Returns where chunks begin and end.
fn borders(bytes: &[u8]) -> Vec<usize> {
    let mut borders = vec![HEADER];
    while let Some(length) = bytes.get(borders[borders.len() - 1] + 4..).and_then(|b| b.first_chunk()) {
        borders.push(borders[borders.len() - 1] + CHUNK_HEADER + u32::from_le_bytes(*length) as usize);
    }
    borders
}

/// Returns all events that can be read, and what ended the reading.
fn read(bytes: &[u8]) -> Result<(Vec<Event>, Option<Damage>), OpenError> {
    let mut reader = Reader::new(bytes)?;
    let events = reader.by_ref().collect();
    assert!(reader.next().is_none());
    Ok((events, reader.damage().cloned()))
}

proptest! {
    /// Check that any events round-trip, however they are split into chunks.
    #[test]
    fn round_trip(events in events(60), every in 2usize..30) {
        let (back, damage) = read(&record(&events, every)).unwrap();
        prop_assert_eq!(back, events);
        prop_assert_eq!(damage, None);
    }

    /// Check that a file truncated at any byte yields the events of its complete chunks, and reports where it was
    /// truncated.
    #[test]
    fn truncated_anywhere(events in events(12), every in 2usize..6) {
        let bytes = record(&events, every);
        let borders = borders(&bytes);
        for length in 0..bytes.len() {
            let Ok((back, damage)) = read(&bytes[..length]) else {
                prop_assert!(length < HEADER);
                continue;
            };
            prop_assert!(length >= HEADER);
            prop_assert!(events.starts_with(&back));
            match damage {
                None => prop_assert!(borders.contains(&length)),
                Some(damage) => {
                    prop_assert_eq!(&damage.reason, &DamageReason::CutOff);
                    prop_assert!(damage.offset < length as u64);
                    // Up to there the file is complete.
                    let whole = &bytes[..damage.offset as usize];
                    prop_assert_eq!(read(whole).unwrap(), (back, None));
                }
            }
        }
    }

    /// Check that changed bytes are never read as events: what is read was written, in the same order.
    #[test]
    fn corrupted_anywhere(
        events in events(40),
        every in 2usize..10,
        changes in vec((any::<Index>(), 1u8..=255), 1..4),
    ) {
        let mut bytes = record(&events, every);
        for (at, change) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= change;
        }
        if let Ok((back, _)) = read(&bytes) {
            let mut written = events.iter();
            prop_assert!(back.iter().all(|event| written.any(|other| other == event)));
        }
    }

    /// Check that one damaged chunk costs only its own events, and that the damage is an error.
    #[test]
    fn one_damaged_chunk_is_skipped(events in events(40), which in any::<Index>(), at in any::<Index>(), change in 1u8..=255) {
        let mut bytes = record(&events, 4);
        let borders = borders(&bytes);
        prop_assume!(borders.len() > 1);
        let which = which.index(borders.len() - 1);
        let (begin, end) = (borders[which] + CHUNK_HEADER, borders[which + 1]);
        prop_assume!(begin < end);
        bytes[begin + at.index(end - begin)] ^= change;
        let (back, damage) = read(&bytes).unwrap();
        let last = which + 2 == borders.len();
        prop_assert!(damage.as_ref().is_some_and(Damage::is_error));
        prop_assert_eq!(damage.map(|damage| (damage.offset, damage.skipped)), Some((borders[which] as u64, u64::from(!last))));
        let (before, _) = read(&bytes[..borders[which]]).unwrap();
        let rest = [&bytes[..HEADER], &bytes[borders[which + 1]..]].concat();
        let (after, _) = read(&rest).unwrap();
        prop_assert_eq!(back, [before, after].concat());
    }

    /// Check that any bytes under a valid checksum are read to an end without a panic.
    #[test]
    fn hostile_payload(payload in vec(prop_oneof![0u8..40, any::<u8>()], 0..400), kind in select(vec![EVENTS, *b"ELSE"])) {
        let _ = read(&file(&[(kind, &payload)]));
    }

    /// Check the same for any bytes at all.
    #[test]
    fn hostile_file(tail in vec(any::<u8>(), 0..100)) {
        let _ = read(&tail);
        let mut bytes = file(&[]);
        bytes.extend_from_slice(&tail);
        let (events, damage) = read(&bytes).unwrap();
        prop_assert_eq!(events, []);
        prop_assert_eq!(damage.is_none(), tail.is_empty());
    }
}

fn file(chunks: &[([u8; 4], &[u8])]) -> Vec<u8> {
    let mut bytes = Writer::new(Vec::new()).unwrap().finish().unwrap();
    for (kind, payload) in chunks {
        let length = payload.len() as u32;
        bytes.extend_from_slice(kind);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&checksum(*kind, length, payload).to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes
}

fn note(text: &str) -> Event {
    Event::Note(Note { text: text.into() })
}

/// Check that chunks and records of a newer writer are skipped, and that extra fields at the end of a known record are
/// ignored.
#[test]
fn unknown_chunks_and_records_are_skipped() {
    let payload = [
        &[200, 3, 1, 2, 3][..],     // a record with an unknown tag
        &[28, 4, 2, b'h', b'i', 9], // a note with one more field
        &[27, 2, 250, 1],           // a loss of an unknown cause
    ]
    .concat();
    let bytes = file(&[(*b"INDX", b"whatever"), (EVENTS, &payload), (*b"TAIL", b"")]);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.by_ref().collect::<Vec<_>>(), [note("hi")]);
    assert_eq!((reader.skipped(), reader.damage()), (2, None));
}

/// Check that functions in recordings of earlier versions, which have neither parameter names nor a return type, can be
/// read.
#[test]
fn functions_of_earlier_versions_are_read() {
    let payload = [32, 8, 5, 2, 1, b'k', 2, b'f', b'n', 1];
    let bytes = file(&[(EVENTS, &payload)]);
    let function = Function {
        id: FunctionId(5),
        layer: Layer::Kernel,
        library: "k".into(),
        name: "fn".into(),
        shown: true,
        ..Function::default()
    };
    assert_eq!(read(&bytes).unwrap(), (vec![Event::Function(function)], None));
}

/// Check that sums in recordings of earlier versions, which lack later fields, can be read.
#[test]
fn sums_of_earlier_versions_are_read() {
    let payload = [
        &[35, 13, 1, 2, 3, 0, 2, 0, 50, 40, 9, 3, 0, 0, 2][..], // a sum that ends with its buckets
        &[36, 3, 1, 7, 5],                                      // errors that do not state where they are counted
        &[37, 4, 2, 1, 6, 99],                                  // live memory only
    ]
    .concat();
    let sum = Sum {
        function: FunctionId(1),
        process: ProcessId(2),
        class: 3,
        nested: false,
        count: 2,
        errors: 0,
        ns: 50,
        max_ns: 40,
        min_ns: crate::histogram::lower_bound(2),
        bytes: 9,
        self_ns: 50,
        outer_ns: 50,
        buckets: vec![0, 0, 2],
    };
    let errors = ErrorSum { function: FunctionId(1), code: 7, enclosed: false, count: 5 };
    let memory = Memory { live: 6, live_bytes: 99, ..Memory::default() };
    let memory = MemorySum { process: ProcessId(2), space: 1, memory };
    let expected = vec![Event::Sum(sum), Event::ErrorSum(errors), Event::MemorySum(memory)];
    assert_eq!(read(&file(&[(EVENTS, &payload)])).unwrap(), (expected, None));
}

/// Check that a stored recording with events of every kind is read completely and written back byte for byte. A new field of
/// an event changes it.
#[test]
fn stored_recording_is_rewritten_byte_for_byte() {
    let golden = include_bytes!("golden.wscope");
    let mut reader = Reader::new(&golden[..]).unwrap();
    let events: Vec<Event> = reader.by_ref().collect();
    assert_eq!((reader.skipped(), reader.damage()), (0, None));
    let kinds: std::collections::HashSet<_> = events.iter().map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), 31, "one for each variant of Event at that time");
    assert!(record(&events, usize::MAX) == golden, "the same bytes");
}

/// Check the exact bytes of a small recording: a change here is a change of the format, and `docs/formats.md` shows
/// them.
#[test]
fn bytes_on_disk_do_not_change() {
    let launch = |correlation, time| {
        Event::Launch(Launch {
            session: SessionId(0),
            correlation,
            kind: LaunchKind::Kernel,
            process: ProcessId(1),
            tid: 300,
            cpu: 2,
            time,
            stack: StackId(77),
            rate: 0,
        })
    };
    let bytes = record(&[note("hi"), launch(5, 1000), launch(6, 1100)], 99);
    let expected = [
        &b"WSCOPE\x1a\n\x01\x00\x00\x00\x00\x00\x00\x00"[..],
        b"EVTS\x19\x00\x00\x00",
        &checksum(EVENTS, 25, &bytes[28..]).to_le_bytes(),
        &[28, 3, 2, b'h', b'i'],
        &[1, 0, 0, 1, 0xac, 2, 1, 10, 2, 0xd0, 0x0f, 0, 77],
        &[1, 0, 2, 2, 0xc8, 1, 0],
    ]
    .concat();
    assert_eq!(bytes.len(), 53);
    assert_eq!(bytes, expected);
}

/// Check that other files are rejected with a helpful message.
#[test]
fn other_files_are_rejected() {
    let refused = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let mut newer = file(&[]);
    newer[8] = 2;
    assert!(refused(b"").contains("is empty"));
    assert!(refused(b"WSCO").contains("ends within its header"));
    assert!(refused(b"\x7fELF").contains("not a warpscope recording"));
    assert!(refused(b"{\"traceEvents\": []}").contains("not a warpscope recording"));
    assert!(refused(&newer).contains("has format 2.0, and this warpscope reads format 1.x"));
}

/// A disk with room for a limited number of bytes.
struct Disk<'a>(&'a Cell<usize>);

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.0.get().min(bytes.len());
        self.0.set(self.0.get() - room);
        if room == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Check that a full disk is reported once, and that the writer then drops and counts events.
#[test]
fn full_disk_is_reported_once() {
    let room = Cell::new(100);
    let mut writer = Writer::new(Disk(&room)).unwrap();
    writer.push(&note("fits")).unwrap();
    writer.flush().unwrap();
    let written = writer.written();
    writer.push(&note(&"x".repeat(200))).unwrap();
    let error = writer.flush().unwrap_err();
    assert_eq!(error.written, written);
    assert!(error.to_string().starts_with(&format!("cannot write the recording beyond its first {written} bytes")));
    room.set(1000);
    writer.push(&note("too late")).unwrap();
    writer.flush().unwrap();
    assert_eq!((writer.dropped(), writer.written()), (2, written));
    writer.finish().unwrap();
    assert_eq!(room.get(), 1000);
}

/// Check that an event too large for any chunk is dropped and counted, and that its neighbours are kept.
#[test]
fn oversized_events_are_dropped() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for event in [note("before"), note(&"x".repeat(RECORD_MOST)), note("after")] {
        writer.push(&event).unwrap();
    }
    assert_eq!(writer.dropped(), 1);
    let (events, damage) = read(&writer.finish().unwrap()).unwrap();
    assert_eq!((events, damage), (vec![note("before"), note("after")], None));
}
