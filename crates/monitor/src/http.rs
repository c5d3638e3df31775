//! A small HTTP/1.1 server for scrapers: one thread, no blocking on anybody.
//!
//! All connections are polled together. Whoever sends slowly, reads slowly or says nothing has a place in a bounded list until
//! its time is up, or until someone else needs the place; nobody waits for them. The handler runs on the server's thread,
//! one request at a time, so it should take milliseconds.

mod connection;
mod endpoints;
mod message;
mod server;

pub use self::{
    endpoints::{Source, answer},
    message::{Method, Request, Response},
    server::Server,
};
