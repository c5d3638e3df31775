//! Call stacks, samples of them, and the names of their frames.

use std::sync::Arc;

use serde::Serialize;

use super::{ProcessId, StackId};

/// The frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its id.
    pub id: StackId,
    /// The image whose addresses these are.
    pub process: ProcessId,
    /// When it was first seen: the mappings at that time apply.
    pub time: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// How the walk ended.
    pub end: StackEnd,
}

/// One frame of a stack as it was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Native code of the process. The innermost is the instruction pointer; all others are return addresses minus one,
    /// so that they are within the call instruction.
    User(u64),
    /// Code of the operating system's kernel.
    Kernel(u64),
    /// A line of a Python function, by its number in this recording; its [`Symbol`] has process 0 and precedes it.
    Python(u32),
}

impl Frame {
    /// Returns the process whose symbol table contains this frame, for a stack of `process`: kernel and Python symbols
    /// are shared by all processes.
    pub fn named_in(self, process: ProcessId) -> ProcessId {
        match self {
            Self::User(_) => process,
            Self::Kernel(_) | Self::Python(_) => ProcessId(0),
        }
    }
}

/// How a stack walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum StackEnd {
    /// At the outermost frame.
    #[default]
    Whole = 0,
    /// At the maximum number of frames.
    Truncated = 1,
    /// For an unknown reason.
    Broken = 2,
    /// At an address in no known mapping.
    NoMapping = 3,
    /// At code without unwind information and without a frame pointer.
    NoRule = 4,
    /// At unwind information of an unsupported kind.
    Unsupported = 5,
    /// At code that is unwound by the frame pointer or another register whose value was lost during the walk.
    FramePointerLost = 6,
    /// At memory that could not be read.
    Unreadable = 7,
    /// Where the walk made no progress up the stack.
    Stuck = 8,
}

impl StackEnd {
    /// All ends, by number.
    pub const ALL: [Self; 9] = [
        Self::Whole,
        Self::Truncated,
        Self::Broken,
        Self::NoMapping,
        Self::NoRule,
        Self::Unsupported,
        Self::FramePointerLost,
        Self::Unreadable,
        Self::Stuck,
    ];

    /// Returns the end with this number.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Broken)
    }
}

/// A CPU sample of a running thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// When it was taken.
    pub time: u64,
    /// Its stack.
    pub stack: StackId,
    /// The time that it represents: the sampling period.
    pub weight: u64,
}

/// The names at an address; several where functions were inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The image; [`ProcessId`] 0 for kernel addresses and for Python lines.
    pub process: ProcessId,
    /// The frame as it appears in stacks; also the handle of a kernel, named as the host function that keeps it.
    pub frame: Frame,
    /// Valid from this time on; 0 where the address has only ever had one meaning.
    pub since: u64,
    /// Outermost first.
    pub names: Vec<NamedFrame>,
}

/// One frame for display.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedFrame {
    /// Its family, which decides the colour and the `_[k]` suffix of kernel frames.
    pub kind: FrameKind,
    /// The demangled function; the module in brackets where the function is unknown.
    pub name: Arc<str>,
    /// The file name of the module; empty if unknown.
    pub module: Arc<str>,
}

/// The family of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameKind {
    /// Native code.
    Native = 0,
    /// The operating system's kernel.
    Kernel = 1,
    /// warpscope's injected library and CUPTI: hidden at the innermost end of a launch's stack.
    Probe = 2,
    /// A Python function; the module is the source file.
    Python = 3,
}

impl FrameKind {
    /// Returns the kind with this number.
    pub fn from_number(number: u8) -> Self {
        let all = [Self::Native, Self::Kernel, Self::Probe, Self::Python];
        all.get(usize::from(number)).copied().unwrap_or(Self::Native)
    }
}
