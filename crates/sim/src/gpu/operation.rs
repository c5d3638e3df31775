//! Operations: kernels, copies and memsets, to run on a stream or to add to a graph.

use std::sync::atomic::{AtomicU64, Ordering};

use cupti::ids::{copy_kind, kind};

use super::function::Function;
use super::memory;
use crate::activity::{Copied, Detail};
use crate::script::script;

/// An operation of the GPU.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Run a kernel.
    Kernel {
        /// The kernel.
        function: &'static Function,
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// Dynamic shared memory.
        shared: u32,
        /// Whether all blocks must run at once.
        cooperative: bool,
    },
    /// Copy.
    Copy {
        /// The destination.
        dst: usize,
        /// The source.
        src: usize,
        /// Rows of this many bytes...
        width: usize,
        /// ...this many (1 for a plain copy)...
        rows: usize,
        /// ...with these distances at the source and the destination.
        pitch: [usize; 2],
        /// The details for its record.
        copied: Copied,
        /// The devices read and written, for a copy between two.
        peers: Option<[u32; 2]>,
    },
    /// Fill.
    Memset {
        /// The destination.
        dst: usize,
        /// The value.
        value: u32,
        /// The size of one value, in bytes.
        width: usize,
        /// The number of values.
        count: usize,
        /// The kind of memory.
        memory: u8,
    },
}

impl Operation {
    /// Creates a plain copy; `expected` is the [`copy_kind`] that the function's name implies.
    pub fn copy(dst: usize, src: usize, bytes: usize, expected: Option<u8>, asynchronous: bool) -> Result<Self, u32> {
        Self::copy_rows([dst, src], [bytes, 1], [0, 0], expected, asynchronous)
    }

    /// Creates a copy of rows: `[dst, src]`, `[width, rows]`, pitches of `[dst, src]`.
    pub fn copy_rows(
        [dst, src]: [usize; 2],
        [width, rows]: [usize; 2],
        [dst_pitch, src_pitch]: [usize; 2],
        expected: Option<u8>,
        asynchronous: bool,
    ) -> Result<Self, u32> {
        let span = |pitch: usize| pitch * rows.saturating_sub(1) + width;
        let bytes = span(dst_pitch.min(src_pitch));
        let (kind, from, to) = memory::classify(dst, src, bytes, expected)?;
        let copied = Copied { kind, src: from, dst: to, asynchronous, bytes: (width * rows) as u64 };
        Ok(Operation::Copy { dst, src, width, rows, pitch: [src_pitch, dst_pitch], copied, peers: None })
    }

    /// Creates a copy between two devices.
    pub fn peer(dst: usize, src: usize, bytes: usize, from: u32, to: u32) -> Result<Self, u32> {
        let mut operation = Self::copy(dst, src, bytes, Some(copy_kind::DTOD), true)?;
        if let (Operation::Copy { copied, peers, .. }, true) = (&mut operation, from != to) {
            copied.kind = copy_kind::PTOP;
            *peers = Some([from, to]);
        }
        Ok(operation)
    }

    /// Creates a memset.
    pub fn memset(dst: usize, value: u32, width: usize, count: usize) -> Result<Self, u32> {
        let memory = memory::target(dst, width * count)?;
        Ok(Operation::Memset { dst, value, width, count, memory })
    }

    /// Whether it does nothing: a copy or memset of 0 bytes succeeds without a record.
    pub fn is_empty(&self) -> bool {
        match self {
            Operation::Kernel { .. } => false,
            Operation::Copy { copied, .. } => copied.bytes == 0,
            Operation::Memset { count, .. } => *count == 0,
        }
    }

    /// Returns how long it takes.
    pub fn duration(&self) -> u64 {
        let transfer = |bytes: u64| 1_000 + (bytes as f64 / script().copy_gbps) as u64;
        match self {
            Operation::Kernel { function, grid, block, .. } => function.duration(*grid, *block),
            Operation::Copy { copied, .. } => transfer(copied.bytes),
            Operation::Memset { width, count, .. } => transfer((width * count) as u64),
        }
    }

    /// Returns the kind of its record.
    pub fn kind(&self) -> u32 {
        match self {
            Operation::Kernel { .. } => kind::CONCURRENT_KERNEL,
            Operation::Copy { peers: Some(_), .. } => kind::MEMCPY2,
            Operation::Copy { .. } => kind::MEMCPY,
            Operation::Memset { .. } => kind::MEMSET,
        }
    }

    /// Returns the parts of its record that do not depend on when it runs.
    pub fn detail(&self) -> Detail {
        static GRID_ID: AtomicU64 = AtomicU64::new(1);
        match *self {
            Operation::Kernel { function, grid, block, shared, cooperative } => Detail::Kernel {
                name: function.name(),
                grid,
                block,
                shared,
                cooperative,
                grid_id: GRID_ID.fetch_add(1, Ordering::Relaxed),
            },
            Operation::Copy { copied: copy, peers: Some([from, to]), .. } => Detail::Peer { copy, from, to },
            Operation::Copy { copied, .. } => Detail::Copy(copied),
            Operation::Memset { value, width, count, memory, .. } => {
                Detail::Memset { value, bytes: (width * count) as u64, memory }
            }
        }
    }

    /// Moves the bytes, if any.
    pub fn perform(&self) {
        match *self {
            Operation::Kernel { .. } => {}
            Operation::Copy { dst, src, width, rows, pitch, .. } => {
                for row in 0..rows {
                    memory::copy(dst + row * pitch[1], src + row * pitch[0], width);
                }
            }
            Operation::Memset { dst, value, width, count, .. } => memory::set(dst, value, width, count),
        }
    }
}
