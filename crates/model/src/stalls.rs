//! Samples of instructions on GPUs: where the warps of each kernel were, and why they waited.
//!
//! CUPTI samples continuously, so a sample belongs to a function, not to one run of a kernel. Samples are therefore
//! summed by instruction and reason. Displays divide the exact time of a kernel's runs by them. If kernels were serialised,
//! a sample belongs to a launch, and samples are summed by the launch's stack as well.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::event::{
    Instruction, InstructionText, ProcessId, SessionId, SourceLine, SourceText, StackId, StallLines, StallReason,
    StallSamples, StallTotals,
};

/// The maximum number of sums, about 100 MB, and of the other entries.
const MAX_SUMS: usize = 1 << 20;
const MAX_REASONS: usize = 1 << 14;
const MAX_TEXTS: usize = 1 << 16;

/// All samples of a recording.
#[derive(Clone, Debug, Default)]
pub struct Stalls {
    reasons: BTreeMap<(SessionId, u32), Arc<str>>,
    /// Samples by instruction and number of the reason.
    pub samples: FxHashMap<(Instruction, u32), u64>,
    /// The same samples by the process and the stack that launched the kernel, as far as their launch is known.
    pub by_stack: FxHashMap<(ProcessId, StackId, Instruction, u32), u64>,
    /// Samples that identify a launch that is not known.
    pub without_launch: u64,
    /// The source of instructions, as far as it is known.
    pub lines: FxHashMap<Instruction, Arc<[SourceLine]>>,
    /// The text of instructions, as far as it is known.
    pub code: FxHashMap<Instruction, Arc<str>>,
    /// Lines of source files, by path and number.
    pub texts: BTreeMap<Arc<str>, BTreeMap<u32, Box<str>>>,
    texts_kept: usize,
    /// What each session counted.
    pub totals: BTreeMap<SessionId, StallTotals>,
    /// The kernel's index in the profile, by session and the session's name id.
    pub functions: FxHashMap<(SessionId, u32), u32>,
    /// Samples beyond the limit.
    merged: u64,
}

/// Counts of sampling, over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StallLedger {
    /// Samples of the program's kernels.
    pub samples: u64,
    /// Of those, the ones in functions that did not run as kernels: device functions that were not inlined.
    pub in_functions: u64,
    /// Of those, the ones whose source line is not known.
    pub without_line: u64,
    /// Samples in kernels that are not the program's.
    pub other_kernels: u64,
    /// Samples that the hardware dropped.
    pub dropped: u64,
    /// Samples that were dropped because a queue or table was full.
    pub unsent: u64,
    /// How often a hardware buffer was full.
    pub buffer_full: u64,
    /// Contexts that were sampled.
    pub contexts: u64,
    /// Contexts that could not be sampled.
    pub contexts_refused: u64,
    /// Device memory of the hardware buffer of each context.
    pub buffer_bytes: u64,
    /// Device memory that sampling took in a context, with what CUPTI itself allocates; 0 if it could not be measured.
    pub memory_bytes: u64,
    /// The logarithm to base 2 of the clock cycles between two samples; 0 if unknown.
    pub period: u32,
    /// Cubins with line information that did not fit into the limits.
    pub cubins_refused: u64,
    /// Kernels ran one at a time, and samples identify their launch.
    pub serialised: bool,
    /// Samples whose launch is not known although kernels ran one at a time.
    pub without_launch: u64,
}

impl Stalls {
    /// Adds the name of a reason.
    pub fn name(&mut self, reason: &StallReason) {
        if self.reasons.len() < MAX_REASONS {
            self.reasons.insert((reason.session, reason.index), reason.name.as_str().into());
        }
    }

    /// Adds samples.
    pub fn add(&mut self, samples: &StallSamples) {
        if samples.correlation != 0 {
            add(&mut self.without_launch, samples.count);
        }
        let key = (samples.at, samples.reason);
        let room = self.samples.len() < MAX_SUMS;
        match self.samples.get_mut(&key) {
            Some(sum) => add(sum, samples.count),
            None if room => {
                self.samples.insert(key, samples.count);
            }
            None => add(&mut self.merged, samples.count),
        }
    }

    /// Adds the source of an instruction.
    pub fn locate(&mut self, lines: &StallLines) {
        if self.lines.len() < MAX_SUMS {
            self.lines.insert(lines.at, lines.lines.as_slice().into());
        }
    }

    /// Adds samples to the stack that launched their kernel. They have been added before, to those without a launch.
    pub fn place(&mut self, process: ProcessId, stack: StackId, samples: &StallSamples) {
        let key = (process, stack, samples.at, samples.reason);
        let room = self.by_stack.len() < MAX_SUMS;
        let sum = match self.by_stack.get_mut(&key) {
            Some(sum) => sum,
            None if room => self.by_stack.entry(key).or_default(),
            None => return,
        };
        add(sum, samples.count);
        self.without_launch = self.without_launch.saturating_sub(samples.count);
    }

    /// Whether a session's samples identify their launch.
    pub fn is_serialised(&self, session: SessionId) -> bool {
        self.totals.get(&session).is_some_and(|totals| totals.serialised)
    }

    /// Adds the text of an instruction.
    pub fn disassemble(&mut self, text: &InstructionText) {
        if self.code.len() < MAX_SUMS {
            self.code.insert(text.at, text.text.as_str().into());
        }
    }

    /// Adds lines of a source file.
    pub fn read(&mut self, text: &SourceText) {
        let lines = self.texts.entry(text.file.clone()).or_default();
        for (offset, line) in (0_u32..).zip(&text.lines) {
            let Some(number) = text.first.checked_add(offset) else { return };
            if self.texts_kept < MAX_TEXTS && lines.insert(number, line.as_str().into()).is_none() {
                self.texts_kept += 1;
            }
        }
    }

    /// Returns the name of a reason, as CUPTI names it without its prefix.
    pub fn reason(&self, session: SessionId, index: u32) -> &str {
        self.reasons.get(&(session, index)).map_or("unknown", |name| name)
    }

    /// Returns the instructions whose source is not known yet.
    pub fn unlocated(&self) -> FxHashSet<Instruction> {
        self.samples.keys().map(|(at, _)| *at).filter(|at| at.cubin != 0 && !self.lines.contains_key(at)).collect()
    }

    /// Sums up what the sessions counted; `None` if nothing was sampled. `is_kernel` says whether a function ran as a
    /// kernel, by its index in the profile.
    pub fn ledger(&self, is_kernel: impl Fn(u32) -> bool) -> Option<StallLedger> {
        if self.totals.is_empty() && self.samples.is_empty() {
            return None;
        }
        let without_launch = self.without_launch;
        let mut ledger = StallLedger { unsent: self.merged, without_launch, ..StallLedger::default() };
        for ((at, _), count) in &self.samples {
            add(&mut ledger.samples, *count);
            let kernel = self.functions.get(&(at.session, at.function)).copied();
            if !kernel.is_some_and(&is_kernel) {
                add(&mut ledger.in_functions, *count);
            }
            if self.lines.get(at).is_none_or(|lines| lines.is_empty()) {
                add(&mut ledger.without_line, *count);
            }
        }
        for totals in self.totals.values() {
            add(&mut ledger.other_kernels, totals.other_kernels);
            add(&mut ledger.dropped, totals.dropped);
            add(&mut ledger.unsent, totals.unsent);
            add(&mut ledger.buffer_full, totals.buffer_full);
            add(&mut ledger.contexts, totals.contexts.into());
            add(&mut ledger.contexts_refused, totals.contexts_refused.into());
            add(&mut ledger.cubins_refused, totals.cubins_refused.into());
            ledger.buffer_bytes = ledger.buffer_bytes.max(totals.buffer_bytes);
            ledger.memory_bytes = ledger.memory_bytes.max(totals.memory_bytes);
            ledger.period = ledger.period.max(totals.period);
            ledger.serialised |= totals.serialised;
        }
        Some(ledger)
    }
}

fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that samples of one instruction and reason add up, that others do not, and that the ledger counts those
    /// without a line and those outside kernels.
    #[test]
    fn samples_are_summed_by_instruction_and_reason() {
        let mut stalls = Stalls::default();
        assert_eq!(stalls.ledger(|_| true), None);
        let at = |offset| Instruction { session: SessionId(1), cubin: 4, function: 2, offset };
        for (offset, reason, count) in [(16, 0, 3), (16, 0, 4), (16, 1, 1), (32, 0, 2)] {
            stalls.add(&StallSamples { at: at(offset), reason, count, correlation: 0 });
        }
        assert_eq!((stalls.samples[&(at(16), 0)], stalls.samples.len()), (7, 3));
        assert_eq!(stalls.unlocated().len(), 2);
        let line = SourceLine { function: "".into(), file: "/src/a.cu".into(), line: 7 };
        stalls.locate(&StallLines { at: at(16), lines: vec![line] });
        assert_eq!(stalls.unlocated().into_iter().collect::<Vec<_>>(), [at(32)]);
        stalls.totals.insert(SessionId(1), StallTotals { dropped: 5, contexts: 1, ..StallTotals::default() });
        stalls.functions.insert((SessionId(1), 2), 9);
        let ledger = stalls.ledger(|kernel| kernel == 9).expect("something was sampled");
        assert_eq!((ledger.samples, ledger.without_line, ledger.in_functions, ledger.dropped), (10, 2, 0, 5));
        assert_eq!(stalls.ledger(|_| false).map(|ledger| ledger.in_functions), Some(10));
        stalls.name(&StallReason { session: SessionId(1), index: 1, name: "barrier".into() });
        assert_eq!((stalls.reason(SessionId(1), 1), stalls.reason(SessionId(2), 1)), ("barrier", "unknown"));
    }
}
