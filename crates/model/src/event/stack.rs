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
    /// When it was first seen: mappings of that moment apply.
    pub time: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// How the walk ended.
    pub end: StackEnd,
}

/// One frame of a stack as it was gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Native code of the process. The innermost is the instruction pointer; all others are return addresses less one,
    /// so that they lie in the calling instruction.
    User(u64),
    /// Code of the operating system's kernel.
    Kernel(u64),
    /// A line of a Python function, by its number in this recording; its [`Symbol`] has process 0 and comes before it.
    Python(u32),
}

impl Frame {
    /// The process whose table of symbols has this frame, in a stack of `process`: those of the kernel and of Python are
    /// the same for all.
    pub fn named_in(self, process: ProcessId) -> ProcessId {
        match self {
            Self::User(_) => process,
            Self::Kernel(_) | Self::Python(_) => ProcessId(0),
        }
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum StackEnd {
    /// At the outermost frame.
    #[default]
    Whole = 0,
    /// At the most frames that are kept.
    Truncated = 1,
    /// For a reason not told.
    Broken = 2,
    /// At an address in no known mapping.
    NoMapping = 3,
    /// At code without unwind information that keeps no frame pointer.
    NoRule = 4,
    /// At unwind information of a kind that is not understood.
    Unsupported = 5,
    /// At code that is unwound by the frame pointer, or by another register, which was lost on the way.
    FramePointerLost = 6,
    /// At memory that could not be read.
    Unreadable = 7,
    /// Where the stack did not shrink.
    Stuck = 8,
}

impl StackEnd {
    /// All of them, by number.
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

    /// The end with this number.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Broken)
    }
}

/// A thread was seen running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The image.
    pub process: ProcessId,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// When.
    pub time: u64,
    /// Its stack.
    pub stack: StackId,
    /// The time it stands for: the sampling period.
    pub weight: u64,
}

/// The names at an address. Several where functions were inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The image; [`ProcessId`] 0 for the kernel's own addresses and for lines of Python.
    pub process: ProcessId,
    /// The frame as it stands in stacks.
    pub frame: Frame,
    /// From when on; 0 where the address has had one meaning only.
    pub since: u64,
    /// Outermost first.
    pub names: Vec<NamedFrame>,
}

/// One frame as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedFrame {
    /// Its family: decides the colour, and the `_[k]` of kernel frames.
    pub kind: FrameKind,
    /// The function, demangled; the module in brackets where the function is not known.
    pub name: Arc<str>,
    /// The file name of the module; empty if not known.
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
    /// The kind with this number.
    pub fn from_number(number: u8) -> Self {
        let all = [Self::Native, Self::Kernel, Self::Probe, Self::Python];
        all.get(usize::from(number)).copied().unwrap_or(Self::Native)
    }
}
