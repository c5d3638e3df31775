//! Samples of instructions that run on a GPU, and why their warps waited: `record --stalls`.

use std::sync::Arc;

use super::SessionId;

/// The name of a stall reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StallReason {
    /// The CUDA process.
    pub session: SessionId,
    /// The number by which its samples refer to it.
    pub index: u32,
    /// CUPTI's name, such as `long_scoreboard`.
    pub name: String,
}

/// An instruction of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instruction {
    /// The CUDA process.
    pub session: SessionId,
    /// The session's number of the cubin that contains it.
    pub cubin: u32,
    /// The session's name id of its function.
    pub function: u32,
    /// Its offset in the function.
    pub offset: u64,
}

/// Samples of an instruction since the last event for the same instruction and reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallSamples {
    /// The instruction.
    pub at: Instruction,
    /// The number of its [`StallReason`].
    pub reason: u32,
    /// Samples.
    pub count: u64,
    /// The correlation id of the launch, if kernels were serialised; otherwise 0.
    pub correlation: u32,
}

/// The source of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StallLines {
    /// The instruction.
    pub at: Instruction,
    /// Outermost first: the line of the function, then those of the functions inlined there.
    pub lines: Vec<SourceLine>,
}

/// The text of an instruction, as a disassembler prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstructionText {
    /// The instruction.
    pub at: Instruction,
    /// Its operation and operands: `LDG.E R2, desc[UR4][R4.64]`.
    pub text: String,
}

/// A line of source code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceLine {
    /// The inlined function; empty for the outermost line.
    pub function: Arc<str>,
    /// The path of the file, as the compiler saw it.
    pub file: Arc<str>,
    /// The line; from 1.
    pub line: u32,
}

/// Neighbouring lines of a source file, as they were when the recording ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The path of the file, as in [`SourceLine`].
    pub file: Arc<str>,
    /// The number of the first line; from 1.
    pub first: u32,
    /// The lines.
    pub lines: Vec<String>,
}

/// What a session counted while it sampled; each replaces the session's previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTotals {
    /// The CUDA process.
    pub session: SessionId,
    /// Samples of the program's kernels that CUPTI delivered.
    pub samples: u64,
    /// Samples in kernels that are not the program's, of which CUPTI delivers no instructions.
    pub other_kernels: u64,
    /// Samples that the hardware dropped.
    pub dropped: u64,
    /// Samples that the session dropped because a queue or table was full.
    pub unsent: u64,
    /// How often the hardware buffer was full: samples are missing until sampling was restarted.
    pub buffer_full: u64,
    /// Contexts that were sampled.
    pub contexts: u32,
    /// Contexts that could not be sampled.
    pub contexts_refused: u32,
    /// Device memory of each context's hardware buffer.
    pub buffer_bytes: u64,
    /// The most device memory that a context had less after sampling was enabled; 0 if unknown.
    pub memory_bytes: u64,
    /// The logarithm to base 2 of the clock cycles between two samples; 0 if unknown.
    pub period: u32,
    /// Cubins with line information that did not fit into the limits.
    pub cubins_refused: u32,
    /// Kernels run one at a time, and samples identify their launch.
    pub serialised: bool,
}
