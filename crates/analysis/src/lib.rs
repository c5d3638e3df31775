//! What a recording says, as values: pure functions of a folded recording, which writers of files and of text show.
//!
//! ```text
//!   findings     what to look at first, and the evidence: idle, waits, occupancy, verdicts, stalls, energy, memory
//!   steps        the iterations of a program's loop, found in the order of its launches
//!   losses       what is missing, and why
//!   flame_tree   stacks by name with their weights; flame_cache builds each tree once
//!   names        frames as text; family and user_code: whose code a frame is
//! ```
//!
//! What is concluded is concluded here: writers only choose how it looks.

pub mod classes;
pub mod cpu;
pub mod energy;
mod events;
pub mod family;
pub mod findings;
mod flame_cache;
pub mod flame_tree;
pub mod host_waits;
pub mod idle;
pub mod idle_pools;
pub mod losses;
pub mod memory;
pub mod names;
pub mod occupancy;
pub mod source;
pub mod stalls;
pub mod steps;
mod table;
pub mod user_code;
pub mod verdicts;
pub mod waits;

pub use crate::{
    events::Events,
    findings::Finding,
    flame_cache::Flames,
    flame_tree::{CallView, EventView, MemoryView, View},
    table::Table,
    user_code::Place,
};
