//! Determines which functions of a library can be probed, where, and at what cost.
//!
//! A uprobe replaces an instruction by a trap, and its cost depends on that instruction. The kernel emulates a `push`
//! or a jump (about 0.5 us per hit), single-steps most others (6 us), and from 6.18 on turns a 5-byte nop into a call
//! (0.3 us). So the best place is not always a function's first byte:
//!
//! ```text
//!  cuMemAlloc_v2:  cmpl $0x321cba00,gate(%rip)   +0   stepped
//!                  je   closed                   +10  emulated: arguments and stack are unchanged since the call
//!                  jmp  *slot(%rip)
//! ```
//!
//! - [`exported`] lists the functions of a library, [`find`] looks one up by name, [`matching`] many, local ones too.
//! - [`usdt`] lists static tracepoints.
//! - [`choose`] picks the site in a function's code, [`returns`] and [`indirect_calls`] list its instructions of these kinds.
//! - [`for_library`] is the default selection for a library without `--match`.
//! - [`summary`] counts functions by cost.
//!
//! Nothing here needs the kernel or privileges. Files are not trusted: for all inputs, the work is linear in the file's
//! size, and a malformed symbol only costs that symbol.

mod defaults;
mod error;
mod instructions;
mod library;
mod listing;
mod site;
mod usdt;

pub use defaults::{for_library, registrations};
pub use error::Error;
pub use instructions::{IndirectCall, indirect_calls, returns};
pub use library::{Function, chosen_at_load, code_around, exported, find, linked, matching, offset_in_code, open};
pub use listing::{Summary, summary};
pub use site::{Cost, Site, choose};
pub use usdt::{Argument, Place, Usdt, usdt};
