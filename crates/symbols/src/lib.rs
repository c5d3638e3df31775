//! Names for addresses: resolved afterwards, once per distinct address, even if the process has exited.
//!
//! [`Kept`] keeps the files that processes have mapped while they run. At the end [`resolve`] takes the addresses of a
//! profile's stacks, finds the file of each from the recorded mappings, and looks it up in that file or its debug file
//! ([`DebugFiles`]). Code without a file is looked up in the map that its compiler wrote; kernel addresses in the
//! running kernel. [`demangle`] makes names readable. [`python`] contains the knowledge of CPython.

mod bpf_code;
pub mod cubin;
mod debug_files;
mod debug_sections;
mod demangle;
mod dwarf;
mod files;
mod handles;
mod jits;
mod kept;
mod look_up;
mod modules;
mod objects;
pub mod perf_map;
pub mod python;
mod registered;
mod resolve;
mod roots;
mod symbol_table;
mod vdso;

pub use debug_files::DebugFiles;
pub use demangle::{demangle, name_kernels, readable, stub_kernel};
pub use files::{FileId, Files};
pub use handles::{handle_kernel, handle_symbol, kept_handles, registered_kernels};
pub use kept::Kept;
pub use objects::{Layout, Memory, is_kernels_own};
pub use resolve::{Named, Options, resolve};
