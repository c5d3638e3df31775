//! Processes: those that ran before, the images they run, and what these have mapped.

pub mod images;
pub mod procfs;
pub mod reused;
