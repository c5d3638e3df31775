//! Where the warps of kernels were and why they waited: below the kernels in flame graphs, and as a table.
//!
//! A sample belongs to a kernel, not to one of its launches. So the exact time of each call path's launches is divided
//! among the instructions in proportion to the samples of the kernel: equally for all call paths. Widths stay GPU time,
//! and totals stay exact. If kernels were serialised, each call path is divided by its own samples.

pub(crate) mod leaves;

use std::collections::BTreeMap;

use model::{
    event::{Instruction, SourceLine},
    fold::divide,
    profile::Profile,
    stalls::{StallLedger, Stalls},
};
use serde::Serialize;

use crate::{family::Family, names};

/// The most rows of each table in a summary.
const MOST_ROWS: usize = 100;

/// The name and the meaning of each stall reason, by CUPTI's name.
pub(crate) const REASONS: [(&str, &str); 21] = [
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
pub fn frame_meaning(frame: &str) -> Option<&'static str> {
    let name = match frame {
        "[issuing]" => "selected",
        frame => frame.strip_prefix("[stall: ")?.strip_suffix(']')?,
    };
    Some(meaning(name)).filter(|meaning| !meaning.is_empty())
}

/// Returns a source line: `kernel.cu:17`, or `function (kernel.cu:8)` if the function was inlined.
pub fn line(line: &SourceLine) -> String {
    let file = line.file.rsplit('/').next().unwrap_or_default();
    match &*line.function {
        "" => format!("{}:{}", names::clean(file), line.line),
        function => format!("{} ({}:{})", names::clean(function), names::clean(file), line.line),
    }
}

/// Returns the frame of an instruction, if its text is known: `LDG.E R2, desc[UR4][R4.64] +0x1a0`.
fn instruction(stalls: &Stalls, at: &Instruction) -> Option<String> {
    stalls.code.get(at).map(|text| format!("{} +{:#x}", names::clean(text), at.offset))
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
    /// By kernel and instruction, those with the most GPU time first; empty without a disassembler.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<StallInstruction>,
}

/// A line of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallLine {
    /// The kernel.
    pub kernel: String,
    /// The line, after those that it was inlined into; empty if it is not known.
    pub line: String,
    /// Its samples.
    #[serde(flatten)]
    pub stalled: Stalled,
}

/// An instruction of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallInstruction {
    /// The kernel.
    pub kernel: String,
    /// The instruction and its offset.
    pub instruction: String,
    /// Its line, after those that it was inlined into; empty if it is not known.
    pub line: String,
    /// Its samples.
    #[serde(flatten)]
    pub stalled: Stalled,
}

/// The samples of a line or an instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stalled {
    /// Samples.
    pub samples: u64,
    /// Of the samples of the kernel.
    pub share: f64,
    /// The part of the kernel's time.
    pub ns: u64,
    /// The stall reason with the most samples, in words.
    pub stall: String,
    /// Of these samples.
    pub stall_share: f64,
    /// What it means.
    pub meaning: &'static str,
}

/// Sums up the samples of a recording, with a limited number of lines; `None` if nothing was sampled.
pub(crate) fn summary(profile: &Profile) -> Option<StallSummary> {
    let ledger = profile.ledger.stalls?;
    let (mut lines, mut instructions) = (lines(profile), instructions(profile));
    lines.truncate(MOST_ROWS);
    instructions.truncate(MOST_ROWS);
    let stalls = &profile.stalls;
    let used = stalls.samples.keys().map(|(at, index)| stalls.reason(at.session, *index));
    let reasons = used.map(|name| (reason(name), meaning(name))).collect();
    Some(StallSummary { ledger, reasons, lines, instructions })
}

/// Returns all lines with samples.
pub(crate) fn lines(profile: &Profile) -> Vec<StallLine> {
    let rows = stalled(profile, |at| place(&profile.stalls, at));
    rows.into_iter().map(|(kernel, line, stalled)| StallLine { kernel, line, stalled }).collect()
}

/// Returns all instructions with samples whose text is known.
pub(crate) fn instructions(profile: &Profile) -> Vec<StallInstruction> {
    if profile.stalls.code.is_empty() {
        return Vec::new();
    }
    let stalls = &profile.stalls;
    // Those without a text count for the share, and for the time.
    let rows = stalled(profile, |at| (instruction(stalls, at).unwrap_or_default(), place(stalls, at)));
    let row = |(kernel, (instruction, line), stalled)| StallInstruction { kernel, instruction, line, stalled };
    rows.into_iter().map(row).filter(|row| !row.instruction.is_empty()).collect()
}

/// Returns the line of an instruction, after those that it was inlined into; empty if it is not known.
fn place(stalls: &Stalls, at: &Instruction) -> String {
    stalls.lines.get(at).map(|lines| lines.iter().map(line).collect::<Vec<_>>().join(" > ")).unwrap_or_default()
}

/// Returns the time of each kernel, by its index.
pub(crate) fn kernel_times(profile: &Profile) -> BTreeMap<u32, u64> {
    let mut times: BTreeMap<u32, u64> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        if let Some(kernel) = key.what.kernel() {
            let time = times.entry(kernel).or_default();
            *time = time.saturating_add(weight.ns);
        }
    }
    times
}

/// Divides the time of each kernel among the parts that `part` names; those with the most time come first.
fn stalled<P: Ord>(profile: &Profile, part: impl Fn(&Instruction) -> P) -> Vec<(String, P, Stalled)> {
    let stalls = &profile.stalls;
    let times = kernel_times(profile);
    let mut kernels: BTreeMap<u32, BTreeMap<P, BTreeMap<&str, u64>>> = BTreeMap::new();
    for ((at, index), count) in &stalls.samples {
        let Some(kernel) = stalls.functions.get(&(at.session, at.function)) else { continue };
        let reasons = kernels.entry(*kernel).or_default().entry(part(at)).or_default();
        let sum = reasons.entry(stalls.reason(at.session, *index)).or_default();
        *sum = sum.saturating_add(*count);
    }
    let mut rows = Vec::new();
    for (kernel, parts) in kernels {
        let samples: Vec<u64> = parts.values().map(|reasons| reasons.values().sum()).collect();
        let whole: u64 = samples.iter().sum();
        let time = divide(times.get(&kernel).copied().unwrap_or(0), &samples);
        for (((part, reasons), samples), ns) in parts.into_iter().zip(samples).zip(time) {
            let most = reasons.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(**name)));
            let (name, count) = most.map_or(("unknown", 0), |(name, count)| (*name, *count));
            let stalled = Stalled {
                samples,
                share: samples as f64 / whole.max(1) as f64,
                ns,
                stall: reason(name),
                stall_share: count as f64 / samples.max(1) as f64,
                meaning: meaning(name),
            };
            rows.push((names::kernel(profile, kernel).to_owned(), part, stalled));
        }
    }
    rows.sort_by(|(a_kernel, a, one), (b_kernel, b, other)| {
        (other.ns, other.samples, a_kernel, a).cmp(&(one.ns, one.samples, b_kernel, b))
    });
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
