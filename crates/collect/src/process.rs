//! Processes: those that ran before the recording, their images, the mappings of these, and their threads.

pub mod cpu_time;
pub mod images;
pub mod procfs;
pub mod reused;
pub mod scans;
pub mod select;
pub mod thread_ids;
