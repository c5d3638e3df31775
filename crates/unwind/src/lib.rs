//! Compiles an ELF file's call frame information, which describes how to step from a function to its caller, into rows
//! small enough for a BPF program to search.
//!
//! Optimised code keeps no frame pointers. Instead it has `.eh_frame`: for each function a small program that
//! describes, for every instruction, where the caller's stack begins (the canonical frame address, CFA) and where
//! registers were saved. Running such programs is too expensive for BPF; using their results is not. On x86-64 a walker
//! needs only four registers (rip, rsp, rbp, rbx), the return address is always at CFA - 8, and nearly every CFA is
//! rsp, rbp or rbx plus a constant. So each program is run once, here, and its results for these become 8-byte [`Row`]s
//! sorted by address:
//!
//! ```text
//!  push %rbp            0x1000  CFA = rsp +  8   rbp unchanged
//!  mov  %rsp,%rbp       0x1001  CFA = rsp + 16   rbp at CFA - 16
//!  ...                  0x1004  CFA = rbp + 16   rbp at CFA - 16
//!  leave; ret           0x1050  CFA = rsp +  8   rbp at CFA - 16   (after leave)
//!  (padding)            0x1051  no rule
//! ```
//!
//! - [`Table`] holds the compiled rows, with [`Stats`] on everything they could not express.
//! - [`Partial`] holds the rows of some functions, which [`Functions`] compiles one at a time.
//! - `src/rows.h` is the row in C; `src/walk.h` is the walker, one source that compiles for BPF and natively:
//!   [`walk()`] and [`Table::lookup`] are its equivalents in Rust.
//!
//! Files are not trusted. For any input, the work is linear in the size of the frame sections, rows and functions are
//! limited, and a malformed entry only costs that entry.
//!
//! rbx is the frame register of the loader's trampoline for lazy binding and of code by Intel's compilers. Any other
//! frame register (r10 in a realigning prologue, rax in OpenSSL's assembly) is known only as long as nothing has been
//! called since: in the innermost frame, and in one interrupted by a signal. Where there are no rules (generated code),
//! rbp is assumed to be a frame pointer.
//!
//! Stacks are truncated in known cases: more than 512 frames; libgcc between a throw and a catch, about 3 % of the time
//! of a throw; the middle of `longjmp`; a stack created with `makecontext`, whose frames are all present, but whose end
//! glibc does not mark; frames of more than 128 KiB in the first milliseconds of a program. Every walk ends for a
//! reason (`enum walk_result`), which is recorded with the stack.

mod builder;
mod error;
mod frames;
mod partial;
mod places;
mod program;
mod row;
mod search;
mod stats;
mod table;
mod walk;
mod x86_64;

pub use error::Error;
pub use partial::{Partial, Piece};
pub use row::{Cfa, Row, Saved};
pub use search::Functions;
pub use stats::{Loss, Stats};
pub use table::{MAX_FUNCTIONS, MAX_ROWS, Table};
pub use walk::{Ended, Found, Registers, walk, walk_frames};
