//! A small HTTP/1.1 server for scrapers: one thread that waits for nobody.
//!
//! All connections are polled together, and served in turns:
//!
//! ```text
//!   accept ──> a place per connection, limited by peer ──> at most one request read from each
//!                                                              │
//!   oldest first, a few per peer and turn  <── who waits for an answer
//!     └─ one text for all who ask for the same in this turn
//! ```
//!
//! A peer is a user of this machine or another machine's address ([`Peer`]). Whoever sends slowly, reads slowly, says nothing,
//! sends thousands of requests at once or connects again and again takes places and turns from its own peers only.

mod connection;
mod endpoints;
mod message;
mod owner;
mod peer;
mod places;
mod server;

pub use self::{
    endpoints::{Source, answer},
    message::{Method, Refusal, Request, Response},
    peer::Peer,
    server::Server,
};
