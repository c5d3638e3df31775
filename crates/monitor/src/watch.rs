//! Watches the machine: attaches the probes, reads the sums in the kernel into snapshots, and forgets ended processes.

mod calls;
mod cgroup;
mod choice;
mod forget;
mod gather;
pub mod health;
mod kernels;
mod labels;
mod limit;
mod main_loop;
mod map;
mod namer;
mod notes;
mod periodic;
mod rescan;
mod state;
mod suspects;

pub use main_loop::{Monitor, check};
