//! Reads a Perfetto trace as trace_processor does.

use std::collections::{BTreeMap, BTreeSet};

use super::proto::Message;

/// A slice or instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    pub track: u64,
    pub name: String,
    pub start: u64,
    /// Absent for an instant, and for a slice without an end.
    pub end: Option<u64>,
    pub flows: Vec<u64>,
    /// Outermost first.
    pub stack: Vec<String>,
    pub arguments: BTreeMap<String, String>,
}

/// A trace as trace_processor reads it: packets sorted by time, names and stacks resolved.
#[derive(Debug, Default)]
pub struct Trace {
    /// Name and parent of each track; a thread's name is followed by its pid and tid.
    pub tracks: BTreeMap<u64, (String, u64)>,
    pub slices: Vec<Slice>,
    /// Time, pid, tid, weight, stack.
    pub samples: Vec<(u64, u64, u64, u64, Vec<String>)>,
    pub counters: BTreeMap<u64, Vec<f64>>,
}

impl Trace {
    pub fn read(bytes: &[u8]) -> Self {
        let mut trace = Self::default();
        // Tables of interned data, by field and number.
        let mut texts: BTreeMap<(u32, u64), String> = BTreeMap::new();
        let mut frames: BTreeMap<u64, String> = BTreeMap::new();
        let mut stacks: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut mappings = BTreeSet::new();
        let mut events = Vec::new();
        for packet in Message::read(bytes).messages(1) {
            assert_eq!(packet.number(10), Some(1), "one sequence");
            for new in packet.messages(12) {
                for table in [2, 3, 5, 16, 17, 18, 29] {
                    for entry in new.messages(table) {
                        let known = (table, entry.number(1).expect("a number"));
                        let text = entry.text(2).expect("a text").to_owned();
                        assert_eq!(texts.insert(known, text), None, "written once");
                    }
                }
                for mapping in new.messages(19) {
                    assert!(mapping.numbers(7).iter().all(|part| texts.contains_key(&(17, *part))));
                    assert!(texts.contains_key(&(16, mapping.number(2).expect("a build id"))));
                    assert!(mappings.insert(mapping.number(1).expect("a number")));
                }
                for frame in new.messages(6) {
                    assert!(mappings.contains(&frame.number(3).expect("a mapping")));
                    let name = texts[&(5, frame.number(2).expect("a name"))].clone();
                    assert_eq!(frames.insert(frame.number(1).expect("a number"), name), None);
                }
                for stack in new.messages(7) {
                    let names = stack.numbers(2).iter().map(|frame| frames[frame].clone()).collect();
                    assert_eq!(stacks.insert(stack.number(1).expect("a number"), names), None);
                }
            }
            if let Some(track) = packet.message(60) {
                let id = track.number(1).expect("an id");
                let process = track.message(3).map(|process| process.text(6).expect("a name").to_owned());
                let thread = track.message(4).map(|thread| {
                    let number = |field| thread.number(field).expect("a number");
                    format!("{} {}/{}", thread.text(5).expect("a name"), number(1), number(2))
                });
                let name = process.or(thread).unwrap_or_else(|| track.text(2).expect("a name").to_owned());
                assert_eq!(trace.tracks.insert(id, (name, track.number(5).unwrap_or(0))), None, "described once");
            }
            let time = packet.number(8).unwrap_or(0);
            if let Some(sample) = packet.message(66) {
                let number = |field| sample.number(field).expect("a number");
                trace.samples.push((time, number(2), number(3), number(6), stacks[&number(4)].clone()));
            }
            if let Some(event) = packet.message(11) {
                let argument = |annotation: &Message<'_>| {
                    let name = annotation.number(1).map(|name| texts[&(3, name)].as_str()).or(annotation.text(10));
                    let value = annotation.number(17).map(|value| texts[&(29, value)].clone());
                    let number = annotation.number(3).or(annotation.number(2)).map(|number| number.to_string());
                    let value = value.or(number).or(annotation.text(6).or(annotation.text(9)).map(str::to_owned));
                    (name.expect("a name").to_owned(), value.expect("a value"))
                };
                let slice = Slice {
                    track: event.number(11).expect("a track"),
                    name: event.number(10).map(|name| texts[&(2, name)].clone()).unwrap_or_default(),
                    start: time,
                    end: None,
                    flows: [event.numbers_fixed(47), event.numbers_fixed(48)].concat(),
                    stack: event.number(56).map(|stack| stacks[&stack].clone()).unwrap_or_default(),
                    arguments: event.messages(4).iter().map(argument).collect(),
                };
                events.push((time, event.number(9).expect("a type"), slice, event.number(44)));
            }
        }
        events.sort_by_key(|(time, ..)| *time);
        let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (time, kind, slice, value) in events {
            let track = slice.track;
            assert!(trace.tracks.contains_key(&track), "a track without a description");
            match kind {
                1 => {
                    open.entry(track).or_default().push(trace.slices.len());
                    trace.slices.push(slice);
                }
                2 => {
                    let begun = open.get_mut(&track).and_then(Vec::pop).expect("a slice to end");
                    trace.slices[begun].end = Some(time);
                }
                3 => trace.slices.push(slice),
                4 => trace.counters.entry(track).or_default().push(f64::from_bits(value.expect("a value"))),
                kind => panic!("type {kind}"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "slices without an end");
        trace
    }

    pub fn on(&self, track: &str) -> Vec<&Slice> {
        self.slices.iter().filter(|slice| self.tracks[&slice.track].0 == track).collect()
    }
}
