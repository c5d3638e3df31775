//! Families of frames, which have colours of their own.

use model::{
    event::{FrameKind, NamedFrame},
    profile::What,
};

/// The family of a frame: decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// A process, the outermost frame.
    Process,
    /// A Python function.
    Python,
    /// Native code.
    Native,
    /// The operating system's kernel.
    OsKernel,
    /// A kernel on a GPU.
    GpuKernel,
    /// A copy or memset on a GPU.
    GpuMemory,
    /// A counted event.
    Event,
    /// What is not known: a lost stack, a launch not seen.
    Unknown,
}

impl Family {
    /// The family of a CPU frame.
    pub fn of_frame(frame: &NamedFrame) -> Self {
        match frame.kind {
            FrameKind::Kernel => Self::OsKernel,
            FrameKind::Python => Self::Python,
            FrameKind::Native | FrameKind::Probe if matches!(&*frame.name, "[unknown]" | "[stack lost]") => {
                Self::Unknown
            }
            FrameKind::Native | FrameKind::Probe => Self::Native,
        }
    }

    /// The family of some work on a GPU.
    pub fn of_work(what: What) -> Self {
        match what {
            What::Kernel(_) => Self::GpuKernel,
            What::Copy(..) | What::Memset => Self::GpuMemory,
        }
    }
}
