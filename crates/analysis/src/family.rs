//! Families of frames, each with its own range of colours.

use model::{
    event::{FrameKind, NamedFrame},
    profile::What,
};

/// The family of a frame, which determines its colour.
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
    /// The boundary between the code that created a graph and its replayed work.
    Graph,
    /// A kernel on a GPU.
    GpuKernel,
    /// A copy or memset on a GPU.
    GpuMemory,
    /// A counted event.
    Event,
    /// The reason why a thread was off the CPU.
    Wait,
    /// An NVTX range.
    Range,
    /// Unknown: a lost stack, or a launch that was not seen.
    Unknown,
    /// A source line or an instruction of a kernel, or the reason why its warps waited.
    Stall,
}

impl Family {
    /// Returns the family of a CPU frame.
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

    /// Returns the family of GPU work.
    pub fn of_work(what: What) -> Self {
        match what {
            What::Kernel(_) => Self::GpuKernel,
            What::Copy(..) | What::Memset => Self::GpuMemory,
        }
    }
}
