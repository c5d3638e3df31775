//! `top`: the monitor's numbers on a terminal, with keys. The view has its own thread and requests snapshots as a
//! scrape does.

use std::{io::IsTerminal, process::ExitCode, sync::Arc, thread, time::Duration};

use anyhow::{Context, bail};
use collect::command::signals::Signals;
use metrics::{config::Settings, snapshot::Snapshot, top};

use super::{
    daemon::{Monitor, check},
    health,
    scrape::Scrapes,
    top_recorder::TopRecorder,
};
use crate::args;

/// Runs the command.
pub fn run(options: args::Top) -> anyhow::Result<ExitCode> {
    if !(0.05..=3600.0).contains(&options.interval) {
        bail!("--interval expects a number of seconds from 0.05 to 3600");
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top requires a terminal; warpscope monitor prints the same tables as plain text");
    }
    if !(0.1..=3600.0).contains(&options.record_seconds) {
        bail!("--record-seconds expects a number of seconds from 0.1 to 3600");
    }
    let (interval, seconds) = (Duration::from_secs_f64(options.interval), options.record_seconds);
    let columns = options.columns;
    let settings = Settings {
        metrics_addr: Some(String::new()),
        display_interval: Some(0.0),
        pid: Some(options.pid).filter(|pids| !pids.is_empty()),
        cgroup: options.cgroup,
        nvml: options.no_nvml.then_some(false),
        ..Settings::default()
    };
    let options = settings.options().map_err(anyhow::Error::msg)?;
    check(&options)?;
    health::limit_heaps();
    let signals = Signals::take().context("cannot set up signal handling")?;
    let scrapes = Arc::new(Scrapes::new(options.limits).context("cannot create snapshots")?);
    let mut monitor = Monitor::start(options, signals, Some(scrapes.clone()))?;
    let theirs = scrapes.clone();
    let view = thread::Builder::new().name("top".into()).spawn(move || {
        let mut gather = || {
            let made = theirs.request().ok_or("the monitor has stopped")?;
            Ok(Snapshot::clone(&made.0))
        };
        let ended = top::run(&mut gather, &mut TopRecorder::new(seconds), interval, &columns);
        theirs.close();
        ended
    });
    let view = view.context("cannot start the thread for the terminal")?;
    monitor.watch();
    // The view ends at its next request and restores the terminal.
    let closed_by_us = scrapes.close();
    match view.join() {
        Ok(Err(error)) if !closed_by_us => bail!(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}
