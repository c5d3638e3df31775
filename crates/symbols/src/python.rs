//! CPython: how to read its frames from outside, and how to show them in place of the interpreter's own.
//!
//! - [`Interpreter`] is found in an executable or `libpython`: its version, the address of its runtime, and the
//!   addresses of the interpreter's loop.
//! - [`Offsets`] is the layout of that version's structures: a table for each version up to 3.12; from 3.13 on the
//!   interpreter describes them itself.
//! - [`line()`] converts an instruction's offset to a line, using the table of its code object, which has three
//!   formats.
//! - [`merge()`] replaces the native frames that run Python code by the Python frames.

#[cfg(test)]
#[path = "../../../tests/support/coverage.rs"]
mod coverage;
mod detect;
mod lines;
mod merge;
mod offsets;
mod parts;
#[cfg(test)]
#[path = "../../../tests/support/pythons.rs"]
mod pythons;
mod versions;

pub use detect::{Interpreter, Unsupported};
pub use lines::line;
pub use merge::{Kind, Merged, Native, Part, Python, merge};
pub use offsets::{Frames, Offsets};
