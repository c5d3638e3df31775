//! Support for the tests: a directory to run in, programs to run, and readers of their output.

pub mod agent;
pub mod attacker;
pub mod browser;
pub mod calls;
pub mod coverage;
pub mod defaults;
pub mod folded;
pub mod group;
pub mod jsonl;
pub mod monitor;
pub mod natives;
pub mod oracle;
pub mod programs;
pub mod pythons;
pub mod recording;
pub mod running;
pub mod scene;
pub mod scripted;
pub mod terminal;
pub mod truth;

pub use group::Group;
pub use programs::program;
pub use running::{Ended, Running};
pub use scene::Scene;
pub use terminal::Terminal;

/// Waits for something that another process does. Fails after a minute.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed().as_secs() < 60, "timed out waiting until {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
