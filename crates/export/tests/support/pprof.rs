//! Reads a profile as pprof does.

use std::collections::BTreeMap;

use super::proto::Message;

/// Names, outermost first; labels; one amount for each type.
pub type Sample = (Vec<String>, BTreeMap<String, String>, Vec<u64>);

/// A profile as pprof reads it.
#[derive(Debug, Default, PartialEq)]
pub struct Pprof {
    pub types: Vec<(String, String)>,
    pub samples: Vec<Sample>,
    /// Path and build id.
    pub mappings: Vec<(String, String)>,
    pub comments: Vec<String>,
    pub default_type: String,
}

impl Pprof {
    pub fn read(gz: &[u8]) -> Self {
        let bytes = super::gunzip(gz);
        let message = Message::read(&bytes);
        let strings = message.texts(6);
        assert_eq!(strings[0], "");
        let text = |index: Option<u64>| strings[index.unwrap_or(0) as usize].to_owned();
        let functions: BTreeMap<u64, String> =
            message.messages(5).iter().map(|f| (f.number(1).expect("id"), text(f.number(2)))).collect();
        let mapped: Vec<u64> = message.messages(3).iter().map(|m| m.number(1).expect("id")).collect();
        let locations: BTreeMap<u64, String> = message
            .messages(4)
            .iter()
            .map(|location| {
                assert!(location.number(2).is_none_or(|mapping| mapping == 0 || mapped.contains(&mapping)));
                let line = location.message(4).expect("a line");
                (location.number(1).expect("id"), functions[&line.number(1).expect("a function")].clone())
            })
            .collect();
        let samples = message.messages(2).into_iter().map(|sample| {
            let frames = sample.numbers(1).iter().rev().map(|id| locations[id].clone()).collect();
            let label = |label: &Message<'_>| {
                let value = label.number(2).map_or_else(|| label.number(3).unwrap_or(0).to_string(), |i| text(Some(i)));
                (text(label.number(1)), value)
            };
            (frames, sample.messages(3).iter().map(label).collect(), sample.numbers(2))
        });
        let types = message.messages(1).iter().map(|kind| (text(kind.number(1)), text(kind.number(2)))).collect();
        let mappings = message.messages(3).iter().map(|m| (text(m.number(5)), text(m.number(6)))).collect();
        let comments = message.numbers(13).into_iter().map(|index| text(Some(index))).collect();
        Self { types, samples: samples.collect(), mappings, comments, default_type: text(message.number(14)) }
    }

    pub fn total(&self, kind: &str) -> u64 {
        let at = self.types.iter().position(|(name, _)| name == kind).expect(kind);
        self.samples.iter().map(|(_, _, amounts)| amounts[at]).sum()
    }
}
