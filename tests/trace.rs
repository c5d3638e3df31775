//! `warpscope trace`: a trace has exactly the calls that happened.

mod attached;
mod bad_input;
mod calls;
mod driver;
mod formats;
mod handles;
mod layers;
mod libraries;
mod memory;
mod points;
mod reported;
mod stopped;
mod storm;
mod unfinished;

pub use calls::same;
