//! The options of the flight recorder.

use clap::Args;

use super::values;

/// `record --last`: keep the recent past, and write it when something happens.
#[derive(Args, Clone, Debug, Default)]
pub struct Flight {
    /// Keep the last TIME in memory; write it on SIGUSR1 and at the end.
    ///
    /// Keep the last TIME (such as 30s) in memory; write it on SIGUSR1 and at the end.
    #[arg(long, value_name = "TIME", value_parser = values::seconds, help_heading = "Flight recorder")]
    pub last: Option<f64>,
    /// With --last, keep at most SIZE of events.
    ///
    /// With --last, keep at most SIZE (such as 64M) of events; if they need more, the window is shorter.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = values::size, requires = "last", help_heading = "Flight recorder")]
    pub last_size: usize,
    /// With --last, also write when a launch, an allocation or a GPU fails.
    ///
    /// With --last, also write when a launch, copy or memset fails, when GPU memory is exhausted, or when a GPU reports an error
    /// (Xid). Implies --memory: dumps say who held the memory.
    #[arg(long, requires = "last", help_heading = "Flight recorder")]
    pub on_error: bool,
    /// With --last, also write when a GPU is not used for TIME.
    ///
    /// With --last, also write when a process has not used its GPU for TIME.
    #[arg(long, value_name = "TIME", value_parser = values::seconds, requires = "last", help_heading = "Flight recorder")]
    pub on_idle: Option<f64>,
    /// With --last, also write when a function is slow; may be repeated.
    ///
    /// With --last, also write when a function takes longer than a limit: 'FUNCTION > 200ms' (below); may be repeated.
    #[arg(long, value_name = "LIMIT", requires = "last", help_heading = "Flight recorder")]
    pub on_slow: Vec<String>,
    /// With --last, write at most N dumps, plus one at the end.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "last", help_heading = "Flight recorder")]
    pub dumps: u32,
}
