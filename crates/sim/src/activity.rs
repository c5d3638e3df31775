//! Activity of the GPU, passed from the fake libcuda to the fake libcupti.

use std::ffi::c_char;

use cupti::ids::kind;

/// One operation on the GPU, or one wait of the host. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    /// The API call's id.
    pub correlation: u32,
    /// Device index.
    pub device: u32,
    /// Context id.
    pub context: u32,
    /// Stream id.
    pub stream: u32,
    /// The graph's id, or 0.
    pub graph: u32,
    /// The graph node's id, or 0.
    pub node: u64,
    /// When the call was made.
    pub queued: u64,
    /// When the operation starts.
    pub start: u64,
    /// When it ends: known in advance, because the GPU is simulated.
    pub end: u64,
    /// The details of its kind.
    pub detail: Detail,
}

/// The part of an [`Activity`] that depends on its kind.
#[derive(Clone, Copy, Debug)]
pub enum Detail {
    /// A kernel.
    Kernel {
        /// Its (mangled) name; never freed.
        name: *const c_char,
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// Dynamic shared memory in bytes.
        shared: u32,
        /// Whether it was launched as a cooperative kernel.
        cooperative: bool,
        /// A unique number for each kernel executed.
        grid_id: u64,
    },
    /// A copy.
    Copy(Copied),
    /// A copy between two devices.
    Peer {
        /// The copy.
        copy: Copied,
        /// Device read.
        from: u32,
        /// Device written.
        to: u32,
    },
    /// A memset.
    Memset {
        /// The value.
        value: u32,
        /// The number of bytes.
        bytes: u64,
        /// [`cupti::ids::memory_kind`].
        memory: u8,
    },
    /// A whole graph.
    Graph,
    /// A wait of the host.
    Sync {
        /// [`cupti::ids::sync_kind`].
        kind: u32,
        /// The event's id, or 0.
        event: u32,
    },
}

/// The details of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// [`cupti::ids::copy_kind`].
    pub kind: u8,
    /// [`cupti::ids::memory_kind`] of the source.
    pub src: u8,
    /// [`cupti::ids::memory_kind`] of the destination.
    pub dst: u8,
    /// Whether the call was asynchronous.
    pub asynchronous: bool,
    /// The number of bytes.
    pub bytes: u64,
}

impl Detail {
    /// Returns the [`cupti::ids::kind`] of the record.
    pub fn kind(&self) -> u32 {
        match self {
            Detail::Kernel { .. } => kind::CONCURRENT_KERNEL,
            Detail::Copy(_) => kind::MEMCPY,
            Detail::Peer { .. } => kind::MEMCPY2,
            Detail::Memset { .. } => kind::MEMSET,
            Detail::Graph => kind::GRAPH_TRACE,
            Detail::Sync { .. } => kind::SYNCHRONIZATION,
        }
    }
}
