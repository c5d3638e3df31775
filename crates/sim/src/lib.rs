//! The simulated GPU: fakes of libcuda, libcudart and libcupti.
//!
//! One static library holds all three; it is linked once for each shared library, with an export list that picks the
//! symbols (`link.rs`, `exports/`). Each link has its own statics, so the GPU's state lives in libcuda alone, and the
//! others reach it through a private export table ([`table`]), as the real ones do.
//!
//! ```text
//!  program -> libcudart  cudart/  frames and prologues as in the real one; nested driver calls
//!          -> libcuda    cuda/    exports; gpu/ state, streams, clocks, graphs; script and truth
//!                 | hooks: API calls, resources, operations
//!             libcupti   cupti/   subscriber, activity queues, buffers, records by release
//! ```
//!
//! What it simulates, and which faults, is up to the [`script`]; what really happened is in the [`truth`].

#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod activity;
mod cuda;
mod cudart;
mod cupti;
pub mod gpu;
pub mod script;
mod stub;
pub mod sys;
pub mod table;
pub mod truth;
