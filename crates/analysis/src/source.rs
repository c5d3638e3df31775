//! The source view: the lines of files around sampled instructions, each with its time, samples and stalls.

use std::collections::BTreeMap;

use model::{fold::divide, profile::Profile};
use serde::Serialize;

use crate::stalls;

/// The most files of a report, and lines of a file.
const MOST_FILES: usize = 64;
const MOST_LINES: usize = 5000;

/// A source file.
#[derive(Debug, PartialEq, Serialize)]
pub struct SourceFile<'a> {
    file: &'a str,
    /// GPU time of its lines.
    ns: u64,
    samples: u64,
    /// Lines with samples and those around them, by number.
    lines: Vec<Line<'a>>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Line<'a> {
    line: u32,
    /// Absent if the file could not be read.
    text: Option<&'a str>,
    ns: u64,
    samples: u64,
    /// Stall reasons and their samples, the most frequent first.
    stalls: Vec<(String, u64)>,
}

#[derive(Default)]
struct Sum<'a> {
    ns: u64,
    samples: u64,
    stalls: BTreeMap<&'a str, u64>,
}

/// Returns the files with samples, those with the most time first. A sample counts at the innermost line, that of the
/// inlined function: each sample once.
pub fn files(profile: &Profile) -> Vec<SourceFile<'_>> {
    let found = &profile.stalls;
    let times = stalls::kernel_times(profile);
    // Samples of each kernel by place and reason; the place is absent if the line is not known.
    type Place<'a> = (Option<(&'a str, u32)>, &'a str);
    let mut kernels: BTreeMap<u32, BTreeMap<Place<'_>, u64>> = BTreeMap::new();
    for ((at, reason), count) in &found.samples {
        let Some(kernel) = found.functions.get(&(at.session, at.function)) else { continue };
        let place = found.lines.get(at).and_then(|lines| lines.last()).map(|line| (&*line.file, line.line));
        let sums = kernels.entry(*kernel).or_default();
        let sum = sums.entry((place, found.reason(at.session, *reason))).or_default();
        *sum = sum.saturating_add(*count);
    }
    let mut files: BTreeMap<&str, BTreeMap<u32, Sum<'_>>> = BTreeMap::new();
    for (kernel, sums) in kernels {
        let counts: Vec<u64> = sums.values().copied().collect();
        let parts = divide(times.get(&kernel).copied().unwrap_or(0), &counts);
        for (((place, reason), samples), ns) in sums.into_iter().zip(parts) {
            let Some((file, line)) = place else { continue };
            let sum = files.entry(file).or_default().entry(line).or_default();
            sum.ns = sum.ns.saturating_add(ns);
            sum.samples = sum.samples.saturating_add(samples);
            let stall = sum.stalls.entry(reason).or_default();
            *stall = stall.saturating_add(samples);
        }
    }
    let mut all: Vec<SourceFile<'_>> = files.into_iter().map(|(file, sums)| source(profile, file, sums)).collect();
    all.sort_by_key(|file| std::cmp::Reverse((file.ns, file.samples)));
    all.truncate(MOST_FILES);
    all
}

fn source<'a>(profile: &'a Profile, file: &'a str, mut sums: BTreeMap<u32, Sum<'a>>) -> SourceFile<'a> {
    let (ns, samples) = sums
        .values()
        .fold((0_u64, 0_u64), |(ns, samples), sum| (ns.saturating_add(sum.ns), samples.saturating_add(sum.samples)));
    let texts = profile.stalls.texts.get(file);
    for number in texts.into_iter().flat_map(|texts| texts.keys()) {
        sums.entry(*number).or_default();
    }
    let line = |(line, sum): (u32, Sum<'a>)| {
        let mut stalls: Vec<(String, u64)> =
            sum.stalls.into_iter().map(|(name, count)| (stalls::reason(name), count)).collect();
        stalls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let text = texts.and_then(|texts| texts.get(&line)).map(|text| &**text);
        Line { line, text, ns: sum.ns, samples: sum.samples, stalls }
    };
    SourceFile { file, ns, samples, lines: sums.into_iter().take(MOST_LINES).map(line).collect() }
}

#[cfg(test)]
mod tests {
    use model::{
        event::{
            Instruction, ProcessId, SessionId, SourceLine, SourceText, StackId, StallLines, StallReason, StallSamples,
        },
        profile::{GpuKey, GpuWeight, What},
    };

    use super::*;

    /// Check that lines have their time, samples and stalls, that the lines around them have text, and that the time of
    /// samples without a line is not given to others.
    #[test]
    fn lines_have_their_samples_and_text() {
        let mut profile = Profile::default();
        let stack = Some(StackId(1));
        let what = What::Kernel(0);
        let key = GpuKey { process: ProcessId(1), stack, capture: None, what, device: 0, stream: 7, range: 0 };
        profile.gpu.insert(key, GpuWeight { count: 1, ns: 1000, max_ns: 1000, ..GpuWeight::default() });
        let session = SessionId(0);
        for (name, index) in ["long_scoreboard", "selected"].into_iter().zip(0..) {
            profile.stalls.name(&StallReason { session, index, name: name.into() });
        }
        profile.stalls.functions.insert((session, 1), 0);
        let at = |offset| Instruction { session, cubin: 1, function: 1, offset };
        let line = |function: &str, line| SourceLine { function: function.into(), file: "/a.cu".into(), line };
        profile.stalls.locate(&StallLines { at: at(16), lines: vec![line("", 9), line("weigh", 3)] });
        profile.stalls.locate(&StallLines { at: at(32), lines: vec![line("", 9)] });
        for (offset, reason, count) in [(16, 0, 40), (16, 1, 10), (32, 0, 30), (48, 0, 20)] {
            profile.stalls.add(&StallSamples { at: at(offset), reason, count, correlation: 0 });
        }
        profile.stalls.read(&SourceText {
            file: "/a.cu".into(),
            first: 2,
            lines: ["", "  return x;"].map(Into::into).into(),
        });
        let [file] = &files(&profile)[..] else { panic!("one file") };
        assert_eq!((file.file, file.ns, file.samples), ("/a.cu", 800, 80));
        let shown: Vec<_> = file.lines.iter().map(|line| (line.line, line.text, line.ns, line.samples)).collect();
        assert_eq!(shown, [(2, Some(""), 0, 0), (3, Some("  return x;"), 500, 50), (9, None, 300, 30)]);
        assert_eq!(file.lines[1].stalls, [("long scoreboard".to_owned(), 40), ("selected".to_owned(), 10)]);
    }
}
