//! Processes: those that ran before, the images they run, and what these have mapped.

pub mod found;
pub mod images;
pub mod reused;
