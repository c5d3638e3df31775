//! Sends requests to receivers of continuous profiles, over HTTP/1.1 and TLS, and copes with what receivers do.
//!
//! ```text
//!   receiver     where to: `otlp=URL`, `pyroscope=URL`
//!   credentials  headers from files; trust: whose certificates are accepted; proxy: the way there
//!   client       one request and its answer; answer: what an answer means
//!   delivery     all requests: splits what is too large, waits, tries again, gives up
//!   labels       what series are labelled with, from environments and control groups
//! ```
//!
//! It does not know what it sends: a payload encodes and splits itself. Only one request is in memory. What a receiver answers is
//! not trusted: it is bounded, and its words are shown as its words, without the credentials that were sent.

pub mod answer;
pub mod client;
pub mod credentials;
pub mod delivery;
pub mod labels;
pub mod proxy;
pub mod receiver;
pub mod trust;

pub use ureq::http::{HeaderName, HeaderValue};
