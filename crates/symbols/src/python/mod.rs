//! CPython: what has to be known to read its frames from outside, and to show them in place of the interpreter's own.
//!
//! - [`Interpreter`] is found in an executable or `libpython`: its version, where its runtime lies, and which addresses are
//!   the interpreter's loop.
//! - [`Offsets`] is how that version lays out its structures: a table for each version to 3.12; from 3.13 on the
//!   interpreter tells them itself.
//! - [`line()`] turns an instruction's offset into a line, by the table of its code object; there are three forms of it.
//! - [`merge()`] puts Python frames in the place of the native frames that run them.

#[cfg(test)]
#[path = "../../../../tests/support/coverage.rs"]
mod coverage;
mod detect;
mod lines;
mod merge;
mod offsets;
mod parts;
#[cfg(test)]
#[path = "../../../../tests/support/pythons.rs"]
mod pythons;
mod versions;

pub use detect::{Interpreter, Unsupported};
pub use lines::line;
pub use merge::{Kind, Merged, Native, Part, Python, merge};
pub use offsets::{Frames, Offsets};
