//! Processes: those that ran before the recording, their images, and the mappings of these.

pub mod cpu_time;
pub mod images;
pub mod procfs;
pub mod reused;
pub mod select;
