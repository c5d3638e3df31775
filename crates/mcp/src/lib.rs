//! A server of the Model Context Protocol: what recordings say, for agents. It speaks JSON-RPC in lines, protocol versions
//! 2026-07-28 (each request says its version) and 2025-11-25 (the version is agreed on once).
//!
//! ```text
//!   stdio      lines in, lines out: a thread reads and admits requests, another answers them in order
//!   inbox      which requests are admitted, which are cancelled
//!   message    one line as a request, a notification, or an error
//!   protocol   methods: versions, lists, calls, resources
//!   tools      the tools, one file each
//!   answer     an answer of bounded length, in which what recordings say is kept apart from what the server says
//!   library    where recordings, source files and the results of queries come from: the only edge
//! ```
//!
//! Requests are pure functions of a [`Library`]. Nothing here opens a file, starts a process or uses the network.

mod answer;
mod inbox;
mod library;
mod message;
mod protocol;
mod stdio;
mod tools;

pub use self::{
    inbox::{Admitted, Cancel, Inbox},
    library::{Library, Listed, Opened, Query, Rows, Selection, SourceFile},
    message::Id,
    protocol::Server,
    stdio::serve,
};
