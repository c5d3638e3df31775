//! The offset of each field of an activity record, and functions to read and write those fields.
//!
//! The offsets are valid for CUDA 11.7 to 13.4: default records have only ever grown at the end.

/// A field of type `T` at a byte offset of a record.
#[derive(Clone, Copy, Debug)]
pub struct Field<T> {
    /// Bytes from the start of the record.
    pub offset: usize,
    marker: core::marker::PhantomData<T>,
}

const fn at<T>(offset: usize) -> Field<T> {
    Field { offset, marker: core::marker::PhantomData }
}

impl<T: Copy> Field<T> {
    /// Reads the field.
    ///
    /// # Safety
    /// `record` must point to a readable record at least `offset + size_of::<T>()` bytes long.
    pub unsafe fn read(self, record: *const u8) -> T {
        // SAFETY: the caller guarantees the bytes; no alignment is assumed.
        unsafe { record.add(self.offset).cast::<T>().read_unaligned() }
    }

    /// Writes the field (the simulator fills records this way).
    ///
    /// # Safety
    /// `record` must point to a writable record at least `offset + size_of::<T>()` bytes long.
    pub unsafe fn write(self, record: *mut u8, value: T) {
        // SAFETY: as above.
        unsafe { record.add(self.offset).cast::<T>().write_unaligned(value) }
    }
}

/// The kind, first in every record.
pub const KIND: Field<u32> = at(0);

/// Kernels (kind `CONCURRENT_KERNEL`).
pub mod kernel {
    #![allow(missing_docs)]
    use super::{Field, at};
    pub const REGISTERS: Field<u16> = at(6);
    pub const START: Field<u64> = at(16);
    pub const END: Field<u64> = at(24);
    pub const COMPLETED: Field<u64> = at(32);
    pub const DEVICE: Field<u32> = at(40);
    pub const CONTEXT: Field<u32> = at(44);
    pub const STREAM: Field<u32> = at(48);
    pub const GRID: Field<[i32; 3]> = at(52);
    pub const BLOCK: Field<[i32; 3]> = at(64);
    pub const STATIC_SHARED: Field<i32> = at(76);
    pub const DYNAMIC_SHARED: Field<i32> = at(80);
    pub const LOCAL_PER_THREAD: Field<u32> = at(84);
    pub const CORRELATION: Field<u32> = at(92);
    pub const GRID_ID: Field<i64> = at(96);
    pub const NAME: Field<*const core::ffi::c_char> = at(104);
    pub const QUEUED: Field<u64> = at(120);
    pub const SUBMITTED: Field<u64> = at(128);
    pub const LAUNCH_TYPE: Field<u8> = at(136);
    pub const GRAPH_NODE: Field<u64> = at(144);
    pub const GRAPH: Field<u32> = at(156);
}

/// Copies (kind `MEMCPY`).
pub mod memcpy {
    #![allow(missing_docs)]
    use super::{Field, at};
    pub const COPY_KIND: Field<u8> = at(4);
    pub const SRC_KIND: Field<u8> = at(5);
    pub const DST_KIND: Field<u8> = at(6);
    pub const FLAGS: Field<u8> = at(7);
    pub const BYTES: Field<u64> = at(8);
    pub const START: Field<u64> = at(16);
    pub const END: Field<u64> = at(24);
    pub const DEVICE: Field<u32> = at(32);
    pub const CONTEXT: Field<u32> = at(36);
    pub const STREAM: Field<u32> = at(40);
    pub const CORRELATION: Field<u32> = at(44);
    pub const GRAPH_NODE: Field<u64> = at(64);
    pub const GRAPH: Field<u32> = at(72);
}

/// Copies between devices (kind `MEMCPY2`): like [`memcpy`] up to the stream.
pub mod memcpy_peer {
    #![allow(missing_docs)]
    use super::{Field, at};
    pub const SRC_DEVICE: Field<u32> = at(44);
    pub const DST_DEVICE: Field<u32> = at(52);
    pub const CORRELATION: Field<u32> = at(60);
    pub const GRAPH_NODE: Field<u64> = at(72);
    pub const GRAPH: Field<u32> = at(80);
}

/// Memsets (kind `MEMSET`).
pub mod memset {
    #![allow(missing_docs)]
    use super::{Field, at};
    pub const VALUE: Field<u32> = at(4);
    pub const BYTES: Field<u64> = at(8);
    pub const START: Field<u64> = at(16);
    pub const END: Field<u64> = at(24);
    pub const DEVICE: Field<u32> = at(32);
    pub const CONTEXT: Field<u32> = at(36);
    pub const STREAM: Field<u32> = at(40);
    pub const CORRELATION: Field<u32> = at(44);
    pub const MEMORY_KIND: Field<u16> = at(50);
    pub const GRAPH_NODE: Field<u64> = at(64);
    pub const GRAPH: Field<u32> = at(72);
}

/// Launches of whole graphs (kind `GRAPH_TRACE`).
pub mod graph_trace {
    #![allow(missing_docs)]
    use super::{Field, at};
    pub const CORRELATION: Field<u32> = at(4);
    pub const START: Field<u64> = at(8);
    pub const END: Field<u64> = at(16);
    pub const DEVICE: Field<u32> = at(24);
    pub const GRAPH: Field<u32> = at(28);
    pub const CONTEXT: Field<u32> = at(32);
    pub const STREAM: Field<u32> = at(36);
}

/// Waits (kind `SYNCHRONIZATION`).
pub mod synchronization {
    #![allow(missing_docs)]
    use super::{Field, at};
    pub const TYPE: Field<u32> = at(4);
    pub const START: Field<u64> = at(8);
    pub const END: Field<u64> = at(16);
    pub const CORRELATION: Field<u32> = at(24);
    pub const CONTEXT: Field<u32> = at(28);
    pub const STREAM: Field<u32> = at(32);
    pub const EVENT: Field<u32> = at(36);
}
