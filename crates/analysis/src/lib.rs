//! What a recording says, as values: pure functions of a folded recording, which writers of files and of text show.
//!
//! ```text
//!   summary      the numbers of a recording; tables: all rows; trace: calls; diff: two recordings
//!   findings     what to look at first, and the evidence: idle, waits, occupancy, verdicts, stalls, energy, memory
//!   collectives  what ranks communicated, and who made the others wait
//!   hang         which ranks of a stuck job wait, and which have not arrived
//!   steps        the iterations of a program's loop, found in the order of its launches
//!   losses       what is missing, and why
//!   flame_tree   stacks by name with their weights; flame_cache builds each tree once; weighted has all weights of a stack, and series of one type each
//!   explain      what findings, frames and words mean
//!   names        frames as text; family and user_code: whose code a frame is
//! ```
//!
//! What is concluded is concluded here: writers only choose how it looks.

pub mod classes;
pub mod collectives;
mod cpu;
pub mod diff;
pub mod energy;
mod events;
pub mod explain;
pub mod family;
pub mod findings;
mod flame_cache;
pub mod flame_tree;
pub mod hang;
mod host_waits;
pub mod idle;
mod idle_pools;
pub mod limits;
pub mod losses;
pub mod memory;
pub mod names;
pub mod occupancy;
pub mod phases;
pub mod source;
pub mod stalls;
pub mod steps;
pub mod summary;
mod table;
pub mod tables;
pub mod trace;
pub mod user_code;
pub mod verdicts;
pub mod waits;
pub mod weighted;

pub use crate::{
    diff::Diff,
    events::Events,
    findings::Finding,
    flame_cache::Flames,
    flame_tree::{CallView, EventView, MemoryView, View},
    summary::Summary,
    table::Table,
    user_code::Place,
};
