//! Where the warps of kernels were and why they waited: below the kernels in flame graphs, and as a table.
//!
//! A sample belongs to a kernel, not to one of its launches. So the exact time of each call path's launches is divided
//! among the instructions in proportion to the samples of the kernel: equally for all call paths. Widths stay GPU time,
//! and totals stay exact.

use std::collections::{BTreeMap, HashMap};

use model::{
    event::{ProcessId, SourceLine},
    fold::divide,
    profile::Profile,
    stalls::StallLedger,
};
use serde::Serialize;

use crate::{family::Family, names};

/// The most lines and reasons below one kernel. The others are added up.
const MOST_LEAVES: usize = 200;
/// The frame of the others.
const OTHERS: &str = "[other instructions]";
/// The most rows of the table in a summary.
const MOST_ROWS: usize = 100;

/// The name and the meaning of each stall reason, by CUPTI's name.
const REASONS: [(&str, &str); 21] = [
    ("barrier", "waits at a barrier (__syncthreads) for other warps of its block"),
    ("branch_resolving", "waits until the target of a branch is known"),
    ("dispatch_stall", "the dispatcher holds the instruction back because of a conflict or a lack of resources"),
    ("drain", "waits at its end until its writes to memory are complete"),
    ("gmma", "waits for the tensor cores to finish an asynchronous matrix multiplication"),
    ("imc_miss", "waits for a constant that is not in the constant cache"),
    ("lg_throttle", "the queue for global and local memory is full: too many, too small memory accesses"),
    ("long_scoreboard", "waits for data from global, local or texture memory"),
    ("math_pipe_throttle", "waits for a busy arithmetic or tensor unit"),
    ("membar", "waits at a memory fence (__threadfence)"),
    ("mio_throttle", "the queue for shared memory, special functions and dynamic branches is full"),
    ("misc", "waits for another reason"),
    ("no_instructions", "waits for instructions: a jump, or a miss in the instruction cache"),
    ("not_selected", "could run, but another warp was chosen: there are enough warps"),
    ("selected", "issues an instruction: no stall"),
    ("short_scoreboard", "waits for shared memory or special functions; often bank conflicts"),
    ("sleeping", "sleeps (__nanosleep)"),
    ("tex_throttle", "the queue for texture instructions is full"),
    ("wait", "waits a fixed number of cycles for the result of its last instruction: dependent arithmetic"),
    ("warpgroup_arrive", "waits for the other warps of its group before tensor instructions"),
    ("unknown", "the name of the reason was lost"),
];

/// Returns a stall reason in words: `long scoreboard`.
pub fn reason(name: &str) -> String {
    names::clean(name).replace('_', " ")
}

/// Returns what a stall reason means, by CUPTI's name or by [`reason`].
pub fn meaning(name: &str) -> &'static str {
    let name = name.replace(' ', "_");
    REASONS.iter().find(|(known, _)| *known == name).map_or("", |(_, meaning)| meaning)
}

/// Returns the frame of a stall reason.
fn frame(name: &str) -> String {
    match name {
        "selected" => "[issuing]".to_owned(),
        name => format!("[stall: {}]", reason(name)),
    }
}

/// Returns what the frame of a stall reason means, if it is one.
pub(crate) fn frame_meaning(frame: &str) -> Option<&'static str> {
    let name = match frame {
        "[issuing]" => "selected",
        frame => frame.strip_prefix("[stall: ")?.strip_suffix(']')?,
    };
    Some(meaning(name)).filter(|meaning| !meaning.is_empty())
}

/// Returns a source line: `kernel.cu:17`, or `function (kernel.cu:8)` if the function was inlined.
pub(crate) fn line(line: &SourceLine) -> String {
    let file = line.file.rsplit('/').next().unwrap_or_default();
    match &*line.function {
        "" => format!("{}:{}", names::clean(file), line.line),
        function => format!("{} ({}:{})", names::clean(function), names::clean(file), line.line),
    }
}

/// One line and reason below a kernel.
struct Leaf {
    /// Source lines, outermost first, then the reason.
    frames: Vec<String>,
    samples: u64,
}

/// What is below each kernel of each process, by its index in the profile.
pub(crate) struct Leaves(HashMap<(ProcessId, u32), Vec<Leaf>>);

impl Leaves {
    pub(crate) fn of(profile: &Profile) -> Self {
        let stalls = &profile.stalls;
        let mut sums: BTreeMap<(ProcessId, u32), BTreeMap<Vec<String>, u64>> = BTreeMap::new();
        for ((at, index), count) in &stalls.samples {
            let Some(kernel) = stalls.functions.get(&(at.session, at.function)) else { continue };
            let process = profile.sessions.get(&at.session).map_or(ProcessId(0), |session| session.process);
            let lines = stalls.lines.get(at).map(|lines| lines.iter().map(line)).into_iter().flatten();
            let frames = lines.chain([frame(stalls.reason(at.session, *index))]).collect();
            let sum = sums.entry((process, *kernel)).or_default().entry(frames).or_default();
            *sum = sum.saturating_add(*count);
        }
        let bounded = |sums: BTreeMap<Vec<String>, u64>| {
            let mut leaves: Vec<Leaf> = sums.into_iter().map(|(frames, samples)| Leaf { frames, samples }).collect();
            leaves.sort_by_key(|leaf| std::cmp::Reverse(leaf.samples));
            if leaves.len() > MOST_LEAVES {
                let rest = leaves.split_off(MOST_LEAVES);
                let samples = rest.iter().fold(0_u64, |sum, leaf| sum.saturating_add(leaf.samples));
                leaves.push(Leaf { frames: vec![OTHERS.to_owned()], samples });
            }
            leaves
        };
        Self(sums.into_iter().map(|(kernel, sums)| (kernel, bounded(sums))).collect())
    }

    /// Divides a kernel's time and the number of its runs among what is below it. `None` if it has no samples.
    pub(crate) fn divide(
        &self,
        process: ProcessId,
        kernel: u32,
        [ns, count]: [u64; 2],
    ) -> Option<impl Iterator<Item = (&[String], u64, u64)>> {
        let leaves = self.0.get(&(process, kernel))?;
        let samples: Vec<u64> = leaves.iter().map(|leaf| leaf.samples).collect();
        let both = divide(ns, &samples).into_iter().zip(divide(count, &samples));
        Some(leaves.iter().zip(both).map(|(leaf, (ns, count))| (&leaf.frames[..], ns, count)))
    }
}

/// The family of a frame below a kernel.
pub(crate) const FAMILY: Family = Family::Stall;

/// The samples of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallSummary {
    /// The counts.
    #[serde(flatten)]
    pub ledger: StallLedger,
    /// What each reason in the recording means, by its words.
    pub reasons: BTreeMap<String, &'static str>,
    /// By kernel and line, those with the most GPU time first.
    pub lines: Vec<StallLine>,
}

/// A line of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallLine {
    /// The kernel.
    pub kernel: String,
    /// The line, after those that it was inlined into; empty if it is not known.
    pub line: String,
    /// Samples.
    pub samples: u64,
    /// Of the samples of the kernel.
    pub share: f64,
    /// The part of the kernel's time.
    pub ns: u64,
    /// The stall reason with the most samples, in words.
    pub stall: String,
    /// Of the samples of the line.
    pub stall_share: f64,
    /// What it means.
    pub meaning: &'static str,
}

/// Sums up the samples of a recording, with a limited number of lines; `None` if nothing was sampled.
pub(crate) fn summary(profile: &Profile) -> Option<StallSummary> {
    let ledger = profile.ledger.stalls?;
    let mut lines = lines(profile);
    lines.truncate(MOST_ROWS);
    let stalls = &profile.stalls;
    let used = stalls.samples.keys().map(|(at, index)| stalls.reason(at.session, *index));
    let reasons = used.map(|name| (reason(name), meaning(name))).collect();
    Some(StallSummary { ledger, reasons, lines })
}

/// Returns all lines with samples.
pub(crate) fn lines(profile: &Profile) -> Vec<StallLine> {
    let stalls = &profile.stalls;
    let mut times: HashMap<u32, u64> = HashMap::new();
    for (key, weight) in &profile.gpu {
        if let Some(kernel) = key.what.kernel() {
            let time = times.entry(kernel).or_default();
            *time = time.saturating_add(weight.ns);
        }
    }
    let mut kernels: BTreeMap<u32, BTreeMap<String, BTreeMap<&str, u64>>> = BTreeMap::new();
    for ((at, index), count) in &stalls.samples {
        let Some(kernel) = stalls.functions.get(&(at.session, at.function)) else { continue };
        let text = stalls.lines.get(at).map(|lines| lines.iter().map(line).collect::<Vec<_>>().join(" > "));
        let reasons = kernels.entry(*kernel).or_default().entry(text.unwrap_or_default()).or_default();
        let sum = reasons.entry(stalls.reason(at.session, *index)).or_default();
        *sum = sum.saturating_add(*count);
    }
    let mut rows = Vec::new();
    for (kernel, lines) in kernels {
        let samples: Vec<u64> = lines.values().map(|reasons| reasons.values().sum()).collect();
        let whole: u64 = samples.iter().sum();
        let time = divide(times.get(&kernel).copied().unwrap_or(0), &samples);
        for (((line, reasons), samples), ns) in lines.into_iter().zip(samples).zip(time) {
            let most = reasons.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(**name)));
            let (name, count) = most.map_or(("unknown", 0), |(name, count)| (*name, *count));
            rows.push(StallLine {
                kernel: names::kernel(profile, kernel).to_owned(),
                line,
                samples,
                share: samples as f64 / whole.max(1) as f64,
                ns,
                stall: reason(name),
                stall_share: count as f64 / samples.max(1) as f64,
                meaning: meaning(name),
            });
        }
    }
    rows.sort_by(|a, b| (b.ns, b.samples, &a.kernel, &a.line).cmp(&(a.ns, a.samples, &b.kernel, &b.line)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every reason has a meaning, also by the words that outputs show.
    #[test]
    fn reasons_have_meanings() {
        for (name, text) in REASONS {
            assert_eq!((meaning(name), frame_meaning(&frame(name))), (text, Some(text)));
            assert_eq!(meaning(&reason(name)), text);
        }
        assert_eq!((meaning("new_reason"), frame_meaning("main")), ("", None));
        assert_eq!(frame("long_scoreboard"), "[stall: long scoreboard]");
        assert_eq!(frame("selected"), "[issuing]");
    }

    /// Check that lines are shown by file name, and inlined functions by name.
    #[test]
    fn lines_are_named() {
        let at = |function: &str| SourceLine { function: function.into(), file: "/src/a;b.cu".into(), line: 7 };
        assert_eq!(line(&at("")), format!("{}:7", names::clean("a;b.cu")));
        assert!(line(&at("weigh(float)")).starts_with("weigh(float) ("));
    }
}
