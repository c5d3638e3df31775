//! `top`: its options.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use anyhow::bail;
use monitor::{config::Settings, top};

use crate::args;

/// Runs the command.
pub fn run(options: args::Top) -> anyhow::Result<ExitCode> {
    if !(0.05..=3600.0).contains(&options.interval) {
        bail!("--interval expects a number of seconds from 0.05 to 3600");
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("top requires a terminal; warpscope monitor prints the same tables as plain text");
    }
    if !(0.1..=3600.0).contains(&options.record_seconds) {
        bail!("--record-seconds expects a number of seconds from 0.1 to 3600");
    }
    let settings = Settings {
        metrics_addr: Some(String::new()),
        display_interval: Some(0.0),
        pid: Some(options.pid).filter(|pids| !pids.is_empty()),
        cgroup: options.cgroup,
        nvml: options.no_nvml.then_some(false),
        ..Settings::default()
    };
    let interval = Duration::from_secs_f64(options.interval);
    let settings = settings.options().map_err(anyhow::Error::msg)?;
    top::run(settings, interval, options.record_seconds, &options.columns)?;
    Ok(ExitCode::SUCCESS)
}
