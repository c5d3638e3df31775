//! `--phases` and `--min-duration`.

use analysis::CallView;

/// How lines of JSON describe what took time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Phases {
    // Not doc comments: clap would print each option in two lines.
    // One event with a duration (X).
    #[default]
    Complete,
    // Two events (B and E).
    BeginEnd,
}

impl Phases {
    /// Returns how calls of at least `min` seconds are written.
    pub fn of_calls(self, min: Option<f64>) -> CallView {
        CallView { min_ns: (min.unwrap_or(0.0) * 1e9).round() as u64, begin_end: self == Self::BeginEnd }
    }
}
