//! `.speedscope.json`: stacks for speedscope (<https://www.speedscope.app>), one profile for each weight, with its unit.
//!
//! The schema is speedscope's `file-format-schema.json`. speedscope ignores keys that it does not know: `ledger` is ours.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use analysis::weighted::Weighted;
use analysis::{
    Events,
    flame_tree::{Measure, View},
    names,
};
use model::{ledger::Ledger, profile::Profile};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Sampled<'a>>,
    ledger: &'a Ledger,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<&'a [u32]>,
    weights: Vec<u64>,
}

/// Writes the stacks of a recording, outermost frame first.
pub fn write(profile: &Profile, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let weighted = Weighted::of(profile, view, events);
    let start = profile.start.as_ref();
    let frames = weighted.frames.iter().map(|frame| Frame {
        name: &frame.name,
        file: if frame.file.is_empty() { &frame.module } else { &frame.file },
        line: (frame.line > 0).then_some(frame.line),
    });
    let profiles: Vec<_> = (0..weighted.kinds.len()).map(|kind| sampled(&weighted, kind)).collect();
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: format!("warpscope {}", start.map_or("", |start| &start.version)),
        name: names::title(profile),
        active_profile_index: weighted.first(),
        shared: Shared { frames: frames.collect() },
        profiles,
        ledger: &profile.ledger,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)?;
    out.flush()
}

/// Returns the profile of one weight. speedscope has no threads within a profile, so equal stacks become one.
fn sampled(weighted: &Weighted, kind: usize) -> Sampled<'_> {
    let mut stacks: BTreeMap<&[u32], u64> = BTreeMap::new();
    for row in weighted.rows.iter().filter(|row| row.amounts[kind] > 0) {
        let sum = stacks.entry(&row.frames).or_default();
        *sum = sum.saturating_add(row.amounts[kind]);
    }
    let total = stacks.values().fold(0, |sum: u64, amount| sum.saturating_add(*amount));
    let (name, measure) = (&weighted.kinds[kind].name, weighted.kinds[kind].measure);
    let (samples, weights) = stacks.into_iter().unzip();
    let unit = match measure {
        Measure::Time => "nanoseconds",
        Measure::Bytes => "bytes",
        Measure::Number => "none",
    };
    Sampled { r#type: "sampled", name: title(name), unit, start_value: 0, end_value: total, samples, weights }
}

/// Returns what the list of profiles shows for a weight.
fn title(name: &str) -> String {
    match name {
        "gpu" => "GPU time".to_owned(),
        "operations" => "GPU operations".to_owned(),
        "cpu" => "CPU time".to_owned(),
        "launches" => "Launches".to_owned(),
        "wait" => "Time off the CPU".to_owned(),
        event => event.to_owned(),
    }
}
