//! The simulated GPU: fakes of libcuda, libcudart, libcupti, libnvidia-ml and libnccl.
//!
//! One static library contains all of them; it is linked once for each shared library, with an export list that selects
//! the symbols (`link.rs`, `exports/`). Each link has its own statics, so only libcuda holds the GPU's state, and the
//! others reach it through a private export table ([`table`]), as the real ones do.
//!
//! ```text
//!  program -> libcudart  cudart/  frames and prologues as in the real one; nested driver calls
//!          -> libcuda    cuda/    exports; gpu/ state, streams, clocks, graphs; script and truth
//!                 | hooks: API calls, resources, operations
//!             libcupti   cupti/   subscriber, activity queues, buffers, records by release
//!
//!  program -> libnccl    nccl/    communicators over processes; kernels that end when all members have started
//!
//!  warpscope -> libnvidia-ml  nvml/  the energy of the kernels that libcuda notes in a file
//! ```
//!
//! The [`script`] defines the simulated GPU and its faults; the [`truth`] reports what really happened.

#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod activity;
mod cuda;
mod cudart;
mod cupti;
pub mod gpu;
mod nccl;
mod nvml;
pub mod script;
mod stub;
pub mod sys;
pub mod table;
pub mod truth;
