//! What warpscope knows, free of kernels and GPUs: events, the exact join, aggregation, the ledger, the recording.
//!
//! Everything gathered becomes an [`event::Event`]. A [`fold::Fold`] takes events one by one, joins GPU activities to
//! the launches that caused them, and ends as a [`profile::Profile`]. `record` folds while it records; `report` and
//! `export` fold what they read from a recording: the same code, the same result.

pub mod calls;
pub mod counters;
pub mod event;
pub mod fold;
pub mod histogram;
pub mod join;
pub mod ledger;
pub mod profile;
pub mod recording;
pub mod symbols;
