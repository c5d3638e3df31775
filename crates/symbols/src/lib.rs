//! Names for addresses: after the fact, once per distinct address, even if the process has gone.
//!
//! [`Kept`] holds on to what processes have mapped while they run. At the end [`resolve`] takes the addresses of a profile's
//! stacks, finds the file each lay in from the recorded mappings, and asks that file, or the debug file that belongs to it
//! ([`DebugFiles`]). Code without a file is asked of the map that its maker wrote; kernel addresses are asked of the running
//! kernel. [`demangle`] makes names readable. [`python`] is what has to be known of CPython.

mod ask;
mod bpf_code;
mod debug_files;
mod debug_sections;
mod demangle;
mod dwarf;
mod files;
mod jits;
mod kept;
mod modules;
pub mod perf_map;
pub mod python;
mod resolve;
mod roots;
mod symbol_table;
mod vdso;

pub use debug_files::DebugFiles;
pub use demangle::{demangle, name_kernels};
pub use files::{FileId, Files};
pub use kept::Kept;
pub use resolve::{Named, Options, resolve};
