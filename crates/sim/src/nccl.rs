//! libnccl: communicators between processes, whose kernels end only when all members have started theirs.
//!
//! The members of a communicator share memory ([`region`]), in which each one notes when its kernels could start. A kernel ends a
//! transfer after the latest of these times, on every member: the same number everywhere, whenever it becomes known. Nothing is computed,
//! and no bytes are moved.
//!
//! A call is announced by NVTX as by NCCL 2.28 ([`nvtx`]): the communicator's number, bytes, root or peer. Communicators that were
//! split from others are described only when they are destroyed.

mod communicator;
mod exports;
mod group;
mod nvtx;
mod region;

/// Results (`ncclResult_t`).
mod result {
    pub const SUCCESS: i32 = 0;
    pub const UNHANDLED_CUDA_ERROR: i32 = 1;
    pub const SYSTEM_ERROR: i32 = 2;
    pub const INVALID_ARGUMENT: i32 = 4;
    pub const INVALID_USAGE: i32 = 5;
}

type Outcome<T> = Result<T, i32>;
