//! Reads foreign files in processes without rights.
//!
//! warpscope runs as root and reads files that others wrote. A bug in a parser must not give those others root, so parsers run in
//! processes of their own, one for each file:
//!
//! ```text
//!   warpscope          root, or capabilities     opens files, checks answers
//!      │ a socket: open files
//!   zygote             no rights                 forked before warpscope has threads; sees no foreign byte
//!      │ fork
//!   worker             no rights, few calls      reads one request and its files, answers, ends
//! ```
//!
//! The zygote and its workers have no capability, the user id of nobody, no descriptor but those that they were given, no access to
//! any path (landlock), and only the system calls for reading and for memory (seccomp). A worker that fails costs the answer about
//! its own file: it can neither change answers about others nor keep a later one from starting.
//!
//! - [`start`] forks the zygote, and [`parse`] calls a function in a worker. A program that has not called [`start`], such as a test,
//!   calls it directly.
//! - [`Plain`] is how requests and answers are written. Answers are untrusted: lengths are checked before anything is allocated.
//! - [`keep()`] gives up what warpscope itself does not need once it has started.
//! - [`user`] is about the user behind sudo: whose files and programs are those of the user.
//! - Nothing is executed: a worker is a copy of this program, so a function has the same address there.

mod call;
mod keep;
mod landlock;
mod message;
mod plain;
mod rights;
mod seccomp;
pub mod user;
mod worker;
mod zygote;

pub use call::{Failed, Limits, missing, parse, sentence, start};
pub use keep::{Keep, capability, keep};
pub use landlock::{can_forbid_writing, forbid_writing};
pub use plain::{Bytes, Plain};
pub use rights::drop_capabilities;
