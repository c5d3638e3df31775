//! The data model, independent of kernels and GPUs: events, the exact join, aggregation, the ledger, the recording.
//!
//! All collected data becomes an [`event::Event`]. A [`fold::Fold`] processes events one by one, joins GPU activities
//! to the launches that caused them, and produces a [`profile::Profile`]. `record` folds while it records; `report` and
//! `export` fold the events of a recording, with the same code and the same result.

pub mod budget;
pub mod calls;
pub mod causes;
pub mod clocks;
pub mod communication;
pub mod counters;
pub mod energy;
pub mod event;
pub mod filter;
pub mod fold;
pub mod gpu_counters;
pub mod hang;
pub mod histogram;
pub mod idle;
pub mod join;
pub mod ledger;
pub mod limits;
pub mod memory;
pub mod merge;
mod nodes;
mod part;
pub mod profile;
pub mod ranges;
pub mod ranks;
pub mod recording;
pub mod stacks;
pub mod stalls;
pub mod steps;
pub mod symbols;
pub mod verdict;
pub mod window;
