//! A small HTTP/1.1 server for scrapers: a single thread that never blocks on a client.
//!
//! All connections are polled together and served in rounds:
//!
//! ```text
//!   accept ──> a slot per connection, limited by peer ──> at most one request read from each
//!                                                              │
//!   oldest first, a few per peer and round  <── connections waiting for an answer
//!     └─ one text for all identical requests of this round
//! ```
//!
//! A peer is a user of this machine or another machine's address ([`Peer`]). A client that sends slowly, reads slowly,
//! stays silent, sends thousands of requests at once or reconnects constantly only takes slots and rounds from its own
//! peer.

mod connection;
mod host;
mod message;
mod owner;
mod peer;
mod server;
mod slots;

pub use self::{
    message::{Method, Refusal, Request, Response},
    peer::Peer,
    server::Server,
};
