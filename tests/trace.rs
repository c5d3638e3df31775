//! `warpscope trace`: what is in a trace is what happened, call by call.

mod attached;
mod bad_input;
mod calls;
mod driver;
mod formats;
mod layers;
mod libraries;
mod memory;
mod points;
mod stopped;
mod storm;
mod unfinished;

pub use calls::same;
